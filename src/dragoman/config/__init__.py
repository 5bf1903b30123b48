"""Configuration: the keys, what they mean, and how the layers become one set of values.

- `settings` has the keys of a node, `overrides` those of topics and groups, `listeners` names and
  default ports, `hosts` the nodes of a cluster and lists of hosts, `principals` the rules that map
  certificates to names, `user_names` which names users can have.
- `consistency` refuses settings that contradict each other, `posture` a node open to all.
- `keys` parses and formats values; `layers` merges file, environment and flags; `dynamic` applies
  changes at run time, and lists keys of other brokers that have no effect here.
- `reference` writes the JSON schema and the documentation.

Importing this package takes milliseconds: both the broker and the command line start with it.
"""
