"""Deferred records: kept aside durably, and appended to their partition once, when they are due or
somebody has decided that they are to be.

For protocols with delays and with messages that wait for the outcome of something else. `state` is
what is known in memory, `records` what is in the log; `delivery` brings records to their
partitions, which are `targets`, `holding` is about those that others decide about; `keeping` joins
them to the internal topic and to time, and `service` is what protocols use, by way of `reaching`,
on any node.
"""

from dragoman.broker.deferring.records import TOPIC as DEFERRED_TOPIC
from dragoman.broker.deferring.service import Deferring
from dragoman.broker.deferring.state import Content, Target, Token

__all__ = ["DEFERRED_TOPIC", "Content", "Deferring", "Target", "Token"]
