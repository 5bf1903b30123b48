"""Cursus's wire protocol without input and output: frames, text commands, binary batches."""
