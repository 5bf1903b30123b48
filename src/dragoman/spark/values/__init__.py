"""Bytes of a value to columns of Spark's types: text, JSON, Avro, Protobuf.

A format is plain data, so that executors get it whole. It says which type its values have
(`spark_type`) and makes a decoder for that type, or for some of its fields.
"""
