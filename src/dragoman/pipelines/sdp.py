"""Plain projects of Spark Declarative Pipelines (SDP), run with a catalog that outlives the run.

Spark keeps its catalog in memory by default, and then refuses a second run because the tables'
files exist. A catalog in files can only be configured when Spark starts, in a
`spark-defaults.conf` with absolute paths. That file is therefore written before each run, followed
by the lines of the project's own `spark-defaults.conf`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dragoman.errors import ConfigError
from dragoman.installation import install_command
from dragoman.pipelines.runner import PipelineError
from dragoman.spark.failures import readable
from dragoman.spark.runtimes import use_java, use_python

SPEC = "spark-pipeline.yml"
#: The folder in the project that holds the catalog, the tables and the settings.
HOME = ".spark"
_COMPLETED = "Run is COMPLETED"
#: Lines of `spark-pipelines` about the run; other lines are about Spark, even after success.
_EVENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: ")
_PROBLEM = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_SETTINGS = """\
# Written by `dragoman pipeline run`, with absolute paths, which the project's own file cannot have.
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {home}/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={home}/metastore;create=true
spark.driver.extraJavaOptions -Dderby.system.home={home} -Dlog4j2.configurationFile={log}
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
"""


def project_in(target: str) -> Path | None:
    """The folder of an SDP project, if `target` is one."""
    path = Path(target)
    if path.name == SPEC and path.is_file():
        return path.parent
    is_project = (path / SPEC).is_file() and not (path / "pipeline.toml").exists()
    return path if is_project else None


def run(project: Path, *, is_dry: bool, say: Callable[[str], None]) -> int:
    """Run the project once, to its end; returns 0. Raises `PipelineError`, `ConfigError`."""
    project = project.absolute()
    environment = _environment(project)
    program = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    program = program or shutil.which("spark-pipelines")
    if program is None:
        raise ConfigError(f"spark-pipelines is not installed: `{install_command('pipelines')}`")
    command = [program, "dry-run" if is_dry else "run", "--spec", str(project / SPEC)]
    problem = last = ""
    is_completed = False
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.strip()
            is_completed = is_completed or _COMPLETED in text
            if _EVENT.match(text):
                say(text)
            problem = problem or problem_in(text)
            last = text or last
    if is_completed or (is_dry and process.returncode == 0):
        say("done")
        return 0
    raise PipelineError(f"{project / SPEC}: {problem or last}")


def problem_in(line: str) -> str:
    """The error that a line reports, or empty."""
    found = _PROBLEM.search(line)
    # A UserWarning is about a static setting, which Spark cannot change and already has.
    return readable(RuntimeError(found[0])) if found and "UserWarning" not in line else ""


def _environment(project: Path) -> dict[str, str]:
    home = project / HOME
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    own = project / "spark-defaults.conf"
    log = Path(__file__).parents[1] / "spark" / "log4j2.properties"
    settings = _SETTINGS.format(home=home, log=log.as_uri())
    # The last line for a setting wins, so the project's own lines do.
    (conf / "spark-defaults.conf").write_text(settings + (own.read_text() if own.exists() else ""))
    environment = dict(os.environ)
    use_java(environment)
    use_python(environment)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environment["SPARK_CONF_DIR"] = str(conf)
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment
