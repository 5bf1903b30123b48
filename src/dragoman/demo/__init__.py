"""`make demo`: the product at work in front of you, with clients that others wrote.

A program on top of everything else: it runs `dragoman serve` as any user would and looks at it from
outside only, over the wire, over HTTP, and in the data directory. Each thing it shows is one step
(`story.py`); a new capability adds a module with its steps.
"""
