"""The HTTP surface of a node: health, metrics and a versioned JSON API.

- The listener accepts connections inside the node's event loop and imports the HTTP libraries with
  the first one. Each connection has time-outs of its own; requests that begin in one turn of the
  loop, and operations in progress, are bounded.
- Requests for a host that the node does not serve, or from pages of other sites, are refused.
- Each operation is declared once, as a method of a service's protocol; routes, parameters, the
  OpenAPI document and the reference page come from that list. The services are topics, groups, the
  cluster, captures, pipelines, metrics, the history, users, access rules and the security mode.
- Health is a list of checks, each `ok`, a warning or failed; probes get one line of text.
- Every request has an id, in its response and in the log.
- Values of the API are typed; errors become RFC 9457 problem documents.
- The services of a running node declare what they use of the broker as ports of their own.
"""
