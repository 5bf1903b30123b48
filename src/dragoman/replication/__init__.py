"""Replication of partitions: the leader, the follower, and the controller.

- The controller decides who leads, who is in sync and who may lead, as metadata events. It runs on
  the node that leads the metadata log.
- A leader tracks its followers, advances the high watermark, and asks for changes of the in-sync
  set.
- Fetches of followers are served from one session per follower node.
- A follower fetches all partitions of one leader node together, appends what comes, and truncates
  where histories diverge.
- A throttle bounds how fast new replicas are filled.
- The ports say what replication needs of other nodes and of the controller.
"""
