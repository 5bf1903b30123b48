"""`make deploy-check`: what is published, and what `deploy/` holds, checked with others' tools.

`run` runs the checks, each a module of its own: `unit`, `prometheus`, `faults`, `dockerfile`,
`compose`, `chart`, `containers`, `wheel`, `upgrade`. `tools` installs programs, `daemon` finds or
starts Docker's, `command` runs programs, `serving` a node, and `settings` parses settings as a node
does.
"""
