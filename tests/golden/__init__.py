"""What must stay the same, byte for byte, while the code changes.

`forms`, `values` and `vectors.json` are what nodes write to disk and send each other: encoded
values, compared by `tests/unit/test_golden_vectors.py`. `python -m golden.vectors` adds those that
are missing.
"""
