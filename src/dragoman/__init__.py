"""One durable log; every client speaks its own protocol to it; every topic is a Spark table."""

__version__ = "0.1.0"
