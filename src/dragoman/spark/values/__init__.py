"""Typed values: bytes to columns of Spark types, for text, JSON, Avro and Protobuf.

A format is plain data, so that executors receive all of it. It states the type of its values
(`spark_type`) and makes a decoder for that type, or for some of its fields. Values that do not
match the schema are reported with the reason.
"""
