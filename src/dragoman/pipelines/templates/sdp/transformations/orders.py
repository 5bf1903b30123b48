"""Records of the topic `orders` as a table that grows with each run, and their number by key."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = "127.0.0.1:9092"


@dp.table
def orders() -> DataFrame:
    spark = SparkSession.active()
    return (
        spark.readStream.format("dragoman")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) as key", "cast(value as string) as value", "timestamp")
    )


@dp.materialized_view
def orders_by_key() -> DataFrame:
    spark = SparkSession.active()
    return spark.sql("select key, count(*) as orders from orders group by key")
