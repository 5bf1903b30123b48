"""`dragoman rocketmq`: what `mqadmin` does, for any RocketMQ cluster, without Java.

Every command has its name as commands have here (`topic-list`) and as `mqadmin` has it
(`topicList`).
"""

from __future__ import annotations

from cyclopts import App

from dragoman.cli.rocketmq import cluster, groups, messages
from dragoman.cli.rocketmq.command import add

app = App(name="rocketmq", help="Administration of RocketMQ clusters, Dragoman's and others.")

for _command in (*cluster.COMMANDS, *groups.COMMANDS, *messages.COMMANDS):
    add(app, _command)
