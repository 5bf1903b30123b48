"""What a bug report needs: `dragoman debug bundle`.

- `collection` keeps files within bounds, and what could not be had.
- `node`, `directory` and `machine` are where they come from.
- `secrets` hides secrets in all of them, `names` the names of topics, groups, users and clients.
- `archive` writes the rest.
"""
