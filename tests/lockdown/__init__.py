"""A running cluster of three open nodes is locked, step by step, by what an operator types."""
