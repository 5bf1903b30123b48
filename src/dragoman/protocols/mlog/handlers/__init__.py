"""Handlers of mlog requests: produce, fetch, topics, offsets of client ids and leaders.

A topic of mlog is one partition: `orders` is partition 0 and `orders@2` partition 2. The metadata
image is served as mlog's own metadata events.
"""
