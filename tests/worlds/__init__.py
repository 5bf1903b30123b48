"""Brokers, logs and groups on virtual time, and clients on pipes in memory."""
