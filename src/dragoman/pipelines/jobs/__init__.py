"""Jobs that come with pipelines: materialize, tier, replay and profile.

Each module has `Options` and `run(spark, options, report)`. What decides about rows, files and
offsets is beside them and knows no Spark.
"""
