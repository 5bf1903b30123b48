"""Records for the console: searched, followed, decoded and exported in its own process.

    browser ── routes.py ──┬── search.py      lines of JSON: progress, records, how it ended
                           │     files.py       what it finds, as a file
                           │     statistics.py  what it finds, counted
                           ├── tail.py        new records as events, at most so many a second
                           └── one.py         a record, whole
                                  │
                    scan.py       what partitions hold, a slice at a time
                    clients.py    a Kafka client for each session, with the rights of its user

- Work on records is cut into slices, one in a turn of the loop, so that other requests are served
  between them (`scan.py`).
- A browser that does not read stops the search that it has asked for; one that goes away ends it.
- Filters are compiled from a language of their own (`filters/`), values decoded as the topic's
  schema says (`decoding/`). The page gets text, never markup.
"""
