"""`make deploy-check`: what is published, and what `deploy/` holds, checked with others' tools.

`run` runs the checks, each a module of its own: `wheel`. `command` runs programs, `serving` a node.
"""
