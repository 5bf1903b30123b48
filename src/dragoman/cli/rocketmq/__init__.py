"""`dragoman rocketmq`: what `mqadmin` does, for any RocketMQ cluster, without Java.

Commands are grouped by subject: brokers, topics, groups, messages and dead letters. They share the
options that select a cluster and the output. Every command has its name in this command line's
style (`topic-list`) and in the style of `mqadmin` (`topicList`).
"""

from __future__ import annotations

from cyclopts import App

from dragoman.cli.rocketmq import cluster, groups, messages
from dragoman.cli.rocketmq.command import add

app = App(name="rocketmq", help="Administration of RocketMQ clusters, Dragoman's and others.")

for _command in (*cluster.COMMANDS, *groups.COMMANDS, *messages.COMMANDS):
    add(app, _command)
