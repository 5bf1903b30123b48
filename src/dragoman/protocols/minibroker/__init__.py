"""minibroker: codec and connection without input or output, handlers, client, import.

Error replies are texts without codes. A key maps to a partition by FNV-1a. The import reads data
directories of the original: records, keys, offsets and commits.
"""
