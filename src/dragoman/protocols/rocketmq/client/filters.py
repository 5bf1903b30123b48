"""What a consumer wants of a topic: messages with certain tags, or those an expression matches."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.protocols.rocketmq.bodies import SubscriptionData
from dragoman.protocols.rocketmq.client.values import ReceivedMessage
from dragoman.protocols.rocketmq.messages import tag_hash

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"


class Filter(msgspec.Struct, frozen=True):
    """Tags with `||` between them, `*` for all, or with the type `SQL92` an expression."""

    expression: str = ALL
    type: str = TAG

    @property
    def tags(self) -> frozenset[str]:
        """Empty: all."""
        if self.type != TAG or self.expression.strip() in ("", ALL):
            return frozenset()
        return frozenset(each.strip() for each in self.expression.split("||") if each.strip())

    def kept(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Brokers compare hashes of tags; here it is the tags themselves."""
        tags = self.tags
        return [each for each in messages if not tags or each.tags in tags]

    def subscription(self, topic: str, version: int) -> SubscriptionData:
        tags = sorted(self.tags)
        return SubscriptionData(
            topic=topic,
            sub_string=self.expression.strip() or ALL,
            tags_set=tags,
            code_set=[tag_hash(each) for each in tags],
            sub_version=version,
            expression_type=self.type,
        )
