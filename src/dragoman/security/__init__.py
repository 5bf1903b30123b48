"""Authorization: the principal of a connection, and the one question that the broker asks about it.

Everything is allowed until rules are configured.
"""
