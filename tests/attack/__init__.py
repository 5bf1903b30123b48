"""Attacks on real nodes, beside good clients that must not notice: `make attack`."""
