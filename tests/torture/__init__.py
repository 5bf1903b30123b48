"""Groups and transactions under torture: clients nobody here wrote, killed and paused at random,
against a served node that is killed too. What they saw they write down; a judge reads it.
"""
