"""Jobs that come with pipelines: materialize, tier, replay and profile.

- Materialize folds a changelog topic into a Delta table of current rows, or of all versions.
- Tier copies the stable part of a topic to Parquet; a reader joins that copy with the log.
- Replay sends a range of a topic, or the rows of a table, to a topic.
- Profile reports sizes, key skew, times and changing fields of a topic, with plots.

A job's module has `Options` and `run(spark, options, report)`. Decisions about rows, files and
offsets are in modules that do not know Spark.
"""
