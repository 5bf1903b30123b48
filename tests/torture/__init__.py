"""Groups and transactions under torture: stock clients, killed and paused at random,
against a served node that is killed too. What they saw they write down; a judge reads it.
"""
