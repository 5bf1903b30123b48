"""The durable log: journal, segments, recovery, cleaning. Knows bytes, offsets and files."""
