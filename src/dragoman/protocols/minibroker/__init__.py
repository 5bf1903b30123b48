"""minibroker: a codec and a connection that do no input or output, handlers, client and import.

Error replies are texts without codes. Keys map to partitions by FNV-1a. The import reads the data
directories of the original: records, keys, offsets and commits.
"""
