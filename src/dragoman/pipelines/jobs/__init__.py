"""Jobs that come with pipelines: materialize, tier, replay and profile.

- materialize merges a changelog topic into a Delta table of current rows, or of all versions.
- tier copies the stable part of a topic to Parquet; a reader joins that copy with the log.
- replay sends a range of a topic, or the rows of a table, to a topic.
- profile reports sizes, key skew, times and changing fields of a topic, with plots.

A job's module has `Options` and `run(spark, options, report)`. Decisions about rows, files and
offsets are in modules that do not know Spark.
"""
