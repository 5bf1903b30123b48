"""Writes docs/reference/configuration.md from the tables of settings.

    python docs/configuration_page.py            rewrite it (`make docs`)

`tests/unit/config/test_reference.py` compares.
"""

from __future__ import annotations

from pathlib import Path

from dragoman.config.dynamic import INERT_KEYS
from dragoman.config.keys import Key, format_value
from dragoman.config.listeners import LISTENER_NAMES
from dragoman.config.overrides import GROUP_CONFIG, TOPIC_CONFIG, GroupKey, TopicKey
from dragoman.config.settings import DYNAMIC_KEYS, LISTENER_KEYS, NODE_KEYS, Settings

PAGE = Path(__file__).parent / "reference" / "configuration.md"

_INTRODUCTION = """\
# Configuration

<!-- Written by `python docs/configuration_page.py`; a test compares it with the code. -->

For operators. Settings come from three places. Each overrides the one before:

1. a TOML file, named by `--config FILE` or `DRAGOMAN_CONFIG`;
2. environment variables: `DRAGOMAN_` and the key in capitals with `_` for `.`;
3. flags: `--set KEY=VALUE` for any key, and flags of their own for a few.

The same setting three ways:

```
num.partitions = 3                     # in the file
DRAGOMAN_NUM_PARTITIONS=3              # in the environment
dragoman serve --set num.partitions=3  # as a flag
```

`dragoman config show --origin` prints every setting and where it comes from; `dragoman config
schema` prints a JSON schema of the file for editors. An unknown key or variable, or a value out of
bounds, is an error: one line that names it, and exit status 2. The file may hold at most 1 MiB.
Variables that Kubernetes sets for a service named `dragoman` are ignored.

## Listeners

| name | default address | serves |
|---|---|---|
"""

_LISTENER_RULES = """
`--listen NAME=HOST:PORT` opens a listener at an address, `--listen NAME=off` closes it. In the file
this is a table `[listen]` with `NAME = "HOST:PORT"`, in the environment
`DRAGOMAN_LISTEN=NAME=HOST:PORT,NAME=off`. A place that gives an address to any listener opens only
the listeners it gives addresses to; one that says only `off` closes those and leaves the rest. IPv6
addresses stand in brackets: `[::1]:9092`. Port 0 lets the system choose.

`--advertise NAME=HOST:PORT` (`[advertise]`, `DRAGOMAN_ADVERTISE`) is the address that replies
give clients of that listener. By default it is the bound address, and with a bind to every address
(`0.0.0.0`, `[::]`) the one at which their own connection arrived. For a listener that is closed it
has no effect.

`NAME-LABEL` is another listener of the kind `NAME`: `--listen kafka-tls=0.0.0.0:9093`. Labels have
small letters, digits and hyphens; of two names that fit, the longest counts
(`rocketmq-broker-tls` is a `rocketmq-broker`). Each advertises itself: clients of `kafka-tls` get
the addresses that the nodes have for `kafka-tls`, so all nodes of a cluster should have it. Routes
of `rocketmq-LABEL` name `rocketmq-broker-LABEL`. `peer` has no others of its kind.

The settings that the table below marks with *per listener* are the node's defaults; a listener has
values of its own under `listener.NAME.KEY`:

```
listener.kafka-tls.tls = "required"                  # in the file
DRAGOMAN_LISTENER_KAFKA_TLS_TLS=required             # in the environment
dragoman serve --set listener.kafka-tls.tls=required # as a flag
```

On a listener with TLS, and one that allows it, a connection is closed that has sent nothing, or
whose handshake has not ended, after ten seconds. Changes of these settings apply to new
connections.

An address that another program uses ends the start with exit status 2, also a default one, because
clients would reach that program: `--listen NAME=off` starts without the listener.

## Settings of a node

Settings marked *live* may also be changed while the node runs, for one node or for all: by
`dragoman config set KEY=VALUE`, with `--node 1` for one, or by any Kafka admin client (broker `1`,
or broker with an empty name). Such a change is kept with the cluster's metadata, counts at once,
and goes before the file, the environment and flags.

| key | type | default | accepts | meaning |
|---|---|---|---|---|
"""

_INERT_HEADING = """
### Keys of brokers without effect

Kafka's clients set these for brokers, `kafka-reassign-partitions` for one. They are accepted,
checked, kept with the cluster's metadata and shown, and nothing obeys them. So is any other key
that no table here has, as in Kafka: a plug-in's, for example. The value of such a key is never
shown.

| key | type | accepts | why it has no effect |
|---|---|---|---|
"""

_TOPIC_HEADING = """
## Settings of a topic

Set when a topic is created (`dragoman topic create NAME --config KEY=VALUE`, or any Kafka admin
client) and kept with the topic. A key that the topic does not set has the default; where the table
names a setting of the node, that is the default.

| key | type | default | accepts | meaning |
|---|---|---|---|---|
"""

_IGNORED_HEADING = """
### Keys without effect

Kafka clients set and expect these. They are accepted, checked, kept with the topic and shown, and
nothing obeys them.

| key | type | default | accepts | why it has no effect |
|---|---|---|---|---|
"""

_GROUP_HEADING = """
## Groups

Kafka clients can give a single group its own values (resource type `GROUP`), within the bounds that
the node sets. They count from the members' next heartbeat on.

| key | type | default | accepts | meaning |
|---|---|---|---|---|
"""


def reference_page() -> str:
    """The text of docs/reference/configuration.md."""
    effective = [key for key in TOPIC_CONFIG.values() if key.effective]
    ignored = [key for key in TOPIC_CONFIG.values() if not key.effective]
    return (
        _INTRODUCTION
        + _listener_rows()
        + _LISTENER_RULES
        + "".join(_node_row(key) for key in NODE_KEYS.values())
        + _INERT_HEADING
        + "".join(_inert_row(key) for key in INERT_KEYS.values())
        + _TOPIC_HEADING
        + "".join(_topic_row(key) for key in effective)
        + _IGNORED_HEADING
        + "".join(_topic_row(key) for key in ignored)
        + _GROUP_HEADING
        + "".join(_topic_row(key) for key in GROUP_CONFIG.values())
    )


def _listener_rows() -> str:
    return "".join(
        f"| `{row.name}` | `127.0.0.1:{row.port}` | {row.serves} |\n" for row in LISTENER_NAMES
    )


def _node_row(key: Key) -> str:
    live = " *Live.*" if key.name in DYNAMIC_KEYS else ""
    own = " *Per listener.*" if key.name in LISTENER_KEYS else ""
    return _table_row(key, f"`{format_value(Settings().value(key.name))}`", live + own)


def _inert_row(key: Key) -> str:
    return f"| `{key.name}` | {key.kind.value} | {key.expectation()} | {key.doc} |\n"


def _topic_row(key: TopicKey | GroupKey) -> str:
    default = f"`{key.default}`" if key.default else "empty"
    if key.node_key:
        default = f"`{format_value(Settings().value(key.node_key))}` (`{key.node_key}`)"
    return _table_row(key, default)


def _table_row(key: Key, default: str, remark: str = "") -> str:
    accepted, meaning = key.expectation(), key.doc + remark
    return f"| `{key.name}` | {key.kind.value} | {default} | {accepted} | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(reference_page())
