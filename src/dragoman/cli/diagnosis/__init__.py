"""Checks of `dragoman doctor`: what is found, and what to type.

`finding` is the result of a check, `directory` checks a data directory and what a node would find
when it starts there, `node` a running node over HTTP, `console` its console, `machine` what both
depend on.
"""
