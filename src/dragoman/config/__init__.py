"""Configuration: what may be set, what it means, and how the layers become one set of values.

`settings` has the keys of a node, `topics` those of a topic, `listeners` the ports; `keys` reads
and shows values, `layers` merges file, environment and flags, `reference` writes the schema and the
documentation. Importing this package costs milliseconds: the broker and the command line both start
with it.
"""

from dragoman.config.keys import Key, Kind, Value, format_value
from dragoman.config.layers import Assignment, ConfigFile, Configuration, Flags, load
from dragoman.config.listeners import LISTENER_NAMES, Address, Listener
from dragoman.config.settings import NODE_KEYS, Settings
from dragoman.config.topics import (
    TOPIC_CONFIG,
    ConfigEntry,
    Source,
    TopicConfig,
    TopicKey,
    describe_node_config,
    describe_topic_config,
    validate_topic_config,
)

__all__ = [
    "LISTENER_NAMES",
    "NODE_KEYS",
    "TOPIC_CONFIG",
    "Address",
    "Assignment",
    "ConfigEntry",
    "ConfigFile",
    "Configuration",
    "Flags",
    "Key",
    "Kind",
    "Listener",
    "Settings",
    "Source",
    "TopicConfig",
    "TopicKey",
    "Value",
    "describe_node_config",
    "describe_topic_config",
    "format_value",
    "load",
    "validate_topic_config",
]
