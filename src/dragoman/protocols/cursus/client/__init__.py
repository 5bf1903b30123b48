"""The Cursus client; `dragoman.client.cursus` has its public names.

It has an idempotent producer, a member of a consumer group, event streams, transactions and topic
administration, for asyncio and for blocking code.
"""
