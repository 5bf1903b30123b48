"""minibroker requests to broker calls to replies, and the pushing of records."""
