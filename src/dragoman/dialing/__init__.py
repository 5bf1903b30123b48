"""What clients of every protocol are made of: connections, and an event loop beside the caller."""
