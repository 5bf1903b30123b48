"""Filters: expressions over a record, such as `value.amount > 10 and key contains "x"`.

- `syntax.py` parses the text into a tree; there is no `eval`.
- `matching.py` compiles the tree into functions, `patterns.py` the patterns in it.

Truth has three values, as in SQL: a comparison of types that cannot be compared is unknown, and so
is a field of a value that cannot be decoded. A record matches if the whole is true; an unknown
whole is no match and is counted.
"""
