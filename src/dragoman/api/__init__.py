"""The HTTP surface of a node: health, metrics and a versioned JSON API.

- The listener accepts connections inside the node's event loop and imports the HTTP libraries with
  the first one. Each connection has time-outs of its own; requests that begin in one turn of the
  loop, and operations in progress, are bounded.
- Requests for a host that the node does not serve, or from pages of other sites, are refused.
- Operations are functions in one table; routes and the OpenAPI document are made from that table.
  They cover topics, groups, the cluster, captures and pipelines.
- Values of the API are typed; errors become RFC 9457 problem documents.
- `ports` says what the API needs of a node. It and `values` are cheap to import.
"""
