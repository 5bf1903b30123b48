"""The command line: `dragoman serve` runs a node; other commands ask a node or read files.

- `main` dispatches. `serve` and its imports stay light, because a node's start waits for them.
- Commands over HTTP: topics, groups, the cluster, captures, pipelines, users, access rules and the
  security mode.
- Commands over a wire: `produce` and `consume` in any protocol, `rocketmq` for administration.
- Commands on files: `log` verifies, repairs and adopts a data directory; `import` reads the data
  directories of other brokers.
- `doctor` checks a node or a data directory, and says what to type.
- `sql` runs a query with Spark on this machine; `cluster up` runs a local cluster.
- Shared parts: exit statuses, output as tables or JSON, records as text, positions in a partition.

This is the only package that prints: data on stdout, everything about it on stderr.
"""
