"""The scenarios by name; each is a module with `run(context)`, imported when it is its turn.

A new one is a module here and a line in this table. Promises about its figures go to
`harness/targets.py`.
"""

SCENARIOS = {
    "starting": "starting",
    "produce-batches": "produce_batches",
    "produce-sync": "produce_sync",
    "produce-in-flight": "produce_in_flight",
    "produce-under-load": "produce_under_load",
    "produce-replicated": "produce_replicated",
    "publish-minibroker": "publish_minibroker",
    "publish-cursus": "publish_cursus",
    "tail-fetch": "tail_fetch",
    "catch-up-fetch": "catch_up_fetch",
    "idle-consumers": "idle_consumers",
    "idle-connections": "idle_connections",
    "many-partitions": "many_partitions",
    "publish-mlog": "publish_mlog",
    "publish-rocketmq": "publish_rocketmq",
    "capture": "capture",
    "flatness": "flatness",
    "scale": "scale",
    "spark-read": "spark_read",
    "spark-write": "spark_write",
    "spark-latency": "spark_latency",
}
