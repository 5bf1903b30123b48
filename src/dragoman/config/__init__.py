"""Configuration: the keys, what they mean, and how the layers become one set of values.

- `settings` has the keys of a node, `topics` and `groups` those of topics and groups, `listeners`
  names and default ports.
- `keys` parses and prints values; `layers` merges file, environment and flags; `dynamic` lays
  changes at run time over them. `inert` lists keys of other brokers that have no effect here.
- `reference` writes the JSON schema and the documentation.

Importing this package costs milliseconds: the broker and the command line both start with it.
"""
