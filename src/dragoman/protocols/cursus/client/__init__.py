"""A Cursus client: producer, group consumer, event store, transactions and administration."""
