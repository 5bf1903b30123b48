"""The command line: `dragoman serve` runs a node, everything else asks one or reads files.

`main` dispatches; `serve` and what it imports stay light because a node's start waits for them.
The only package that prints: data on stdout, everything said about it on stderr.
"""
