"""Dead letters: records that a consumer has given up, to be sent again.

A dead letter stays where it is, since a log only grows. A copy that is sent has a header that names
the dead letter, and before anything is sent the target is searched for such headers: a dead letter
that was sent before is refused, unless it is sent again on purpose.

- `letters` says what a dead letter came from, and what a copy of it has.
- `resend` sends chosen ones through the API of the node, with an outcome for each.
"""
