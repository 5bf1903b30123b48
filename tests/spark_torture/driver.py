"""The job: values of the topic `in` get a word more and go to the topic `out`.

It runs over what there is and ends. A batch job, when the plan has one, then counts the values by
key and writes the counts to the topic `counts`.
"""

from __future__ import annotations

import os
import sys
import threading

from pyspark.sql import SparkSession

from dragoman.spark import session
from spark_torture.faults import Plan, Point, TorturedSource, load_plan
from tables.java_options import QUICK_JAVA

#: Rows of one micro-batch, so that a life has several.
BATCH_ROWS = 100


def main() -> None:
    plan = load_plan()
    spark = session(
        "tortured",
        # A task may fail three times before its job does.
        master="local[2,4]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.defaultJavaOptions": QUICK_JAVA,
            "spark.local.dir": str(plan.home / "scratch"),
            "spark.sql.warehouse.dir": str(plan.home / "warehouse"),
        },
    )
    spark.dataSource.register(TorturedSource)
    plan.write_pid("driver.pid", os.getpid())
    plan.write_pid("jvm.pid", spark.sparkContext._gateway.proc.pid)
    if plan.point is Point.ANYTIME:
        threading.Timer(plan.delay_s, plan.kill_driver).start()
    stream(spark, plan)
    if plan.with_batch_job:
        count(spark, plan)
    # Neither a timer nor Spark's own farewell shall decide about the status.
    sys.stdout.flush()
    os._exit(0)


def stream(spark: SparkSession, plan: Plan) -> None:
    source = (
        spark.readStream.format("dragoman")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        .load()
    )
    query = (
        source.selectExpr("key", "concat(cast(value as string), ' seen') as value")
        .writeStream.format("tortured")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("topic", "out")
        .option("checkpointLocation", str(plan.home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def count(spark: SparkSession, plan: Plan) -> None:
    table = (
        spark.read.format("dragoman")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("subscribe", "out")
        .load()
    )
    counts = table.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    (
        counts.write.format("dragoman")
        .mode("append")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("topic", "counts")
        .save()
    )


if __name__ == "__main__":
    main()
