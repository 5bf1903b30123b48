"""Metadata that all nodes agree on: events, and the image they add up to.

- Events are the entries of the metadata log.
- The image is the state after every committed event.
- The quorum is a port, with two implementations: Raft (`raft_quorum`) and an etcd (`etcd`).
- The codec encodes events as batches and the image as a snapshot.
"""
