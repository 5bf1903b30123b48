"""What a capture of a database is told, and what its process and its node say to each other."""
