"""Where the metrics of a node come from.

Whatever does the work counts it in plain integers; a snapshot reads them, a part at a time. Each
part is small, or yields an empty one between its steps, so that a scrape never holds the loop for
long (`telemetry/snapshot.py`).

The history of a node reads them whether or not it serves HTTP: all but `listing` import no service.

- `node`: the whole snapshot; connections, requests and the process itself.
- `log`: the journal, the segments and their damage.
- `replicas`: partitions, leaders and followers, and the quorum of the metadata.
- `lag`: how far groups are behind.
- `groups`: groups, transactions and delayed records that this node coordinates.
- `listing`: the snapshot as JSON.
- `aliases`: the same under the names of other programs.
- `captures`: the captures that this node runs.
- `pipelines`: what pipelines have reported.
"""
