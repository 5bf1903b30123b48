"""The raw Kafka client; `dragoman.client.kafka` has its public names.

- Whole batches or records: producing with idempotence and transactions, fetching, reading without a
  group, offsets by time.
- Administration of topics, configurations and groups.
- Staging and publication, which only Dragoman's brokers serve.
- Cluster metadata, connections, version negotiation and retries are shared by every call.
"""
