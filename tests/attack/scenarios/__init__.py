"""One module a way to do harm; each lists its attacks as `ATTACKS`."""
