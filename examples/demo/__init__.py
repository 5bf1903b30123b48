"""The demo that `make demo` runs: the product at work, with stock clients, PostgreSQL and Spark.

It runs `dragoman serve` as a user would, and observes it from outside only: over the wires, over
HTTP, and in the data directory. Each thing it shows is one step; a module holds the steps of one
subject (the node, Kafka, five protocols, PostgreSQL, Spark), and `command.py` puts them in order.

Run it with `make demo`, or with `python examples/demo` where the extra `demo` is installed.
"""
