"""RocketMQ: codec and connection without input or output, handlers, client."""
