"""A raw Kafka client: whole batches, records, administration, groups seen from outside."""
