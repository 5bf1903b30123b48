"""How tests have Java run: a test is over before code that is compiled well has paid for itself."""

from __future__ import annotations

from pathlib import Path

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def quick_spark(folder: Path) -> dict[str, str]:
    """Variables for a program that starts a Spark itself, whose defaults are put into `folder`."""
    (folder / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {QUICK_JAVA}\n")
    return {"SPARK_CONF_DIR": str(folder)}
