"""The broker core: topics, records, groups and transactions, in terms of no protocol.

- Producing checks batches and places them in the log; fetching reads several partitions and waits
  when there is too little. Records of protocols that send one at a time are gathered into batches.
- A replica is one partition as the broker sees it: its log, its marks, and the requests that wait.
- Metadata changes (topics, settings, quotas, users, rules, membership, placement) are checked here
  and proposed to the quorum as events, from any node.
- Internal topics hold the broker's own state. The leader of an internal partition is a coordinator.
- Requests that another node must answer are forwarded to its broker over one port.
- Readers get decoded records of a partition, from the local replica or from its leader.
- Maintenance rolls segments, applies retention, compacts, and expires idle producers.

Packages: consumer groups, transactions, replication of partitions, delayed records, and atomic
publication of staged records. The core never blocks: what waits for
the disk or another node answers later.
"""
