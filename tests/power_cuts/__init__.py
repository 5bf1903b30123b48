"""The log under power cuts, and the log made wrong on purpose: what `make sim` runs."""
