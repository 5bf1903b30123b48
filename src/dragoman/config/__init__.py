"""Configuration: what may be set, what it means, and how the layers become one set of values.

`settings` has the keys of a node, `dynamic` lays changes at run time over them, `topics` has those
of a topic, `listeners` the ports; `keys` reads and shows values, `layers` merges file, environment
and flags, `reference` writes the schema and the documentation. Importing this package costs
milliseconds: the broker and the command line both start with it.
"""
