"""Measures of the code base: size, import cycles, continuations, names."""
