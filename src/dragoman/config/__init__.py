"""Configuration: what may be set, what it means, and how the layers become one set of values.

`settings` has the keys of a node, `dynamic` lays changes at run time over them, `topics` has those
of a topic, `listeners` the ports; `keys` reads and shows values, `layers` merges file, environment
and flags, `reference` writes the schema and the documentation. Importing this package costs
milliseconds: the broker and the command line both start with it.
"""

from dragoman.config.keys import Key, Kind, Source, Value, format_value
from dragoman.config.layers import Assignment, ConfigFile, Configuration, Flags, load
from dragoman.config.listeners import LISTENER_NAMES, Address, Listener
from dragoman.config.settings import DYNAMIC_KEYS, NODE_KEYS, Settings
from dragoman.config.topics import (
    TOPIC_CONFIG,
    ConfigEntry,
    TopicConfig,
    TopicKey,
    describe_node_config,
    describe_topic_config,
    validate_topic_config,
)

__all__ = [
    "DYNAMIC_KEYS",
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
