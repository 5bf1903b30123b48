"""RocketMQ: codec and connection without input or output, handlers, client.

Commands have headers in JSON or in the binary form; bodies are JSON with the deviations of Java's
encoder. Messages have a stored form, with properties and ids. Consumers filter by tags or by SQL92.
"""
