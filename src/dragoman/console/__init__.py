"""The console: a node and its cluster in the browser, served by a process of its own.

    browser ── console ──┬── HTTP API of a node       everything but records
                         └── Kafka's protocol         records: read, scanned and decoded here

- The process holds no right of its own. It passes on the credentials of the user who has logged in,
  and the nodes decide; without a login it reads what anonymous callers may read.
- Sessions are kept in memory and end with the process. A cookie names the session, and a request
  that does not come from a page of the console is refused (`guard.py`).
- Lists that the API gives in pages are collected here, so that a browser asks once (`lists.py`).
- Pages are ES modules and one style sheet, served as they are (`static/`). They build their
  elements with `textContent` only, so that what clients write is never markup.
"""
