"""The Spark session of a pipeline: its own views and settings, on whatever Spark there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.pipelines.definition import Definition
from dragoman.pipelines.sources import as_text
from dragoman.pipelines.state import StateFolder
from dragoman.spark.sessions import PUSHDOWN, register_source, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's own words go to a file: they are many, and in Java.
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def pipeline_session(definition: Definition, folder: StateFolder) -> SparkSession:
    from pyspark.sql import SparkSession

    # Modules beside the file are found by Spark's workers, too.
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    directory = os.path.dirname(definition.file)
    if directory not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, *path)))
    settings = {
        "spark.sql.session.timeZone": "UTC",
        PUSHDOWN: "true",
        # The command shows the progress of the pipeline instead.
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" "-Ddragoman.log={folder.log}"'
        ),
        "spark.sql.warehouse.dir": str(folder.path / "warehouse"),
        **as_text(definition.spark.conf),
    }
    running = SparkSession.getActiveSession() or session(
        f"dragoman {definition.name}", master=definition.spark.master or None, config=settings
    )
    own = running.newSession()
    for name, value in settings.items():
        # What only a start can set is as it is.
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    register_source(own)
    return own
