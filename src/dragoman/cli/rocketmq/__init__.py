"""`dragoman rocketmq`: the commands of `mqadmin`, for any RocketMQ cluster, without Java.

Commands are grouped by subject: topics and brokers, groups, messages and dead letters, users and
permissions. All take the options for the name servers, the credentials and the output. A command
has a name in the style of this command line (`topic-list`) and one in the style of `mqadmin`
(`topicList`).
"""

from __future__ import annotations

from cyclopts import App

from dragoman.cli.rocketmq import access, cluster, groups, messages
from dragoman.cli.rocketmq.command import add

app = App(name="rocketmq", help="Administration of RocketMQ clusters, Dragoman's and others.")

for _command in (
    *cluster.COMMANDS,
    *groups.COMMANDS,
    *messages.COMMANDS,
    *access.COMMANDS,
):
    add(app, _command)
