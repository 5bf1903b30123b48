"""Queries over topics: each in a process of its own, which ends with it.

    browser ── POST /sql ── console ── stdin, stdout ── process of the query ── Kafka's protocol

- `values` are the request, and the lines of the answer; both sides of the pipe have them.
- `worker` is the process: `tables` reads topics as Arrow tables with the decoder of the Spark
  source, `engine` runs the query over them with DuckDB (docs/decisions/0030).
- `process` starts it, passes its lines on and kills it when its time is up or its reader has gone.
- `service` is the console's side: who may ask, and how many at a time.

The process logs in to Kafka's listener as the user who asks, so that a query reads what its user
may read. The engine reads no files, loads no extensions and reaches no network.
"""
