"""The broker core: topics, records, groups, transactions, in domain terms."""
