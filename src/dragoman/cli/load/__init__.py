"""Load on a broker, and what is measured of it: `dragoman bench`.

- `plan` is what to do, `batches` prepares what is sent, `topics` makes and deletes topics.
- `worker` is a process that sends and reads; `schedule` says when, `traces` joins what was sent
  with what was read, `latencies` and `tally` count.
- `fleet` runs the workers, `report` prints.
"""
