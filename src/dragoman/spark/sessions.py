"""Creates a Spark session that is configured for Dragoman.

External settings (`spark-defaults.conf`, `spark-submit`) take precedence over the defaults of this
module. Spark reads them when it starts, but a session's own settings would replace them, so this
module reads them first.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import ConfigError
from dragoman.installation import install_command
from dragoman.limits import SPARK_DEFAULTS_BYTES_MAX
from dragoman.spark.runtimes import use_java, use_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Spark passes filters to a source only with this setting; a source with pushdown fails without.
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_DEFAULTS = {
    PUSHDOWN: "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
#: On a single machine nothing connects from the network, and little is shuffled. A cluster keeps
#: its own number of shuffle partitions, which depends on its size.
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}


def session(
    app_name: str = "dragoman",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one, with the source `dragoman` registered.

    `master` is `local[*]` unless it is given here, by `spark-submit` or in `spark-defaults.conf`.
    Settings made there take precedence over the defaults, `config` over both. Workers use the
    interpreter of this program unless `PYSPARK_PYTHON` names another.
    Raises `ConfigError` when Spark or Java is missing.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(f"PySpark is not installed: `{install_command('spark')}`") from None

    running = SparkSession.getActiveSession()
    if running is None:
        running = _started(SparkSession.builder, app_name, master, config or {})
    else:
        for name, value in {PUSHDOWN: "true", **(config or {})}.items():
            # Static settings can only be set when Spark starts.
            if running.conf.isModifiable(name):
                running.conf.set(name, value)
    register_source(running)
    return running


def register_source(spark: SparkSession) -> None:
    """Register the source in a session, unless Spark has found it.

    Spark imports `pyspark_dragoman` where the package is installed, and warns about a source that
    is registered twice.
    """
    if not _has_source(spark):
        from dragoman.spark.datasource import DragomanDataSource

        spark.dataSource.register(DragomanDataSource)


def _has_source(spark: SparkSession) -> bool:
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists("dragoman"))
    except Exception:  # noqa: BLE001 (a session without a local JVM, or other internals of Spark)
        return False


def default_master() -> str:
    """The master of sessions if neither this program nor `spark-submit` names one."""
    return external_settings().get("spark.master", "local[*]")


def is_local(master: str) -> bool:
    """Whether Spark runs in one JVM: `local`, `local[4]`, `local[*, 2]`."""
    return master == "local" or master.startswith("local[")


def _started(
    builder: SparkSession.Builder, app_name: str, master: str | None, config: Mapping[str, str]
) -> SparkSession:
    use_java()
    submitted = os.environ.get("SPARK_ENV_LOADED") or os.environ.get("PYSPARK_GATEWAY_PORT")
    external = external_settings()
    if master is None and not submitted:
        master = default_master()
    settings = dict(_DEFAULTS)
    if master is not None and is_local(master):
        settings |= _LOCAL_DEFAULTS
        use_python()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {name: value for name, value in settings.items() if name not in external}
    for name, value in (chosen | dict(config)).items():
        builder = builder.config(name, value)
    builder = builder.appName(app_name)
    return (builder.master(master) if master is not None else builder).getOrCreate()


_FILE = "spark-defaults.conf"
_LINE = re.compile(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$")


def external_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of `spark-defaults.conf` and `PYSPARK_SUBMIT_ARGS`; the latter win."""
    return _in_file(environment) | _in_arguments(environment)


def _in_file(environment: Mapping[str, str]) -> dict[str, str]:
    folder = environment.get("SPARK_CONF_DIR") or (
        os.path.join(home, "conf") if (home := environment.get("SPARK_HOME")) else ""
    )
    if not folder:
        return {}
    try:
        with Path(folder, _FILE).open(errors="replace") as file:
            lines = file.read(SPARK_DEFAULTS_BYTES_MAX).splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _LINE.match(line))}


def _in_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError:
        return {}
    found = {}
    for word, following in pairwise(words):
        if word in ("--conf", "-c"):
            name, _, value = following.partition("=")
            found[name] = value
        elif word == "--master":
            found["spark.master"] = following
    return found
