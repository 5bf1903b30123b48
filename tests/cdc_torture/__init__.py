"""A database under load, its capture killed again and again, and an oracle that knows the truth."""
