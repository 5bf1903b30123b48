"""What PostgreSQL sends about changes: sans-IO, bytes to messages and values."""
