"""Three nodes as processes under faults and load; the checker knows only what clients saw."""
