"""The metadata quorum on an existing etcd, behind the same port as Raft.

- The layout says which keys and values the quorum keeps in etcd.
- A session holds the node's lease; leadership depends on it.
- The leader writes proposals as numbered keys, in transactions that fail after another leader's.
- History is read in pages and then watched. Snapshots replace old entries.
- Calls go through etcd's JSON gateway; only known etcd versions are accepted.
"""
