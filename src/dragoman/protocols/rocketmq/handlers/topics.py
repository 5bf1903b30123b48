"""Topics by name, and their making on first use."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.outcome import start
from dragoman.protocols.rocketmq.constants import TOPIC_CONFIG
from dragoman.protocols.rocketmq.handlers.attributes import ATTRIBUTES_KEY, Attributes, written
from dragoman.protocols.rocketmq.handlers.names import check_topic_name, topic_name
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource


def make_topic(
    call: Call,
    spelt: str,
    queues: int,
    use: Callable[[TopicMetadata], None],
    attributes: Attributes | None = None,
) -> None:
    """Have `use` called with a topic that is made unless it exists; what it raises is answered.

    This node leads it: whoever asked is connected here. Raises `DragomanError`.
    """
    check_topic_name(spelt)
    name = topic_name(spelt)
    broker = call.service.broker
    call.session.authorize(Operation.CREATE, Resource.TOPIC, name)

    def made(error: DragomanError | None) -> None:
        def go_on() -> None:
            topic = broker.image.topics.get(name)
            if topic is None:
                raise error or UnknownTopic(f"topic {name!r} is gone")
            use(topic)

        call.guarded(go_on)

    config = dict(TOPIC_CONFIG)
    text = "" if attributes is None else written(attributes)
    if text:
        config[ATTRIBUTES_KEY] = text
    new = NewTopic(
        name=name,
        partition_count=queues,
        config=config,
        led_by=broker.node_id,
    )
    start(broker.ensure_topic(new)).then(made)
