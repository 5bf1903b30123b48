"""One folder per wire protocol."""
