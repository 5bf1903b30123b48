"""Replication of partitions: leaders, followers, and the controller that says which is which."""
