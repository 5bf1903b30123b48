"""PostgreSQL's row changes become topics: a process of its own, a client of broker and database."""
