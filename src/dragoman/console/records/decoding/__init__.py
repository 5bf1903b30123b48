"""What the bytes of keys, values and headers mean.

- `decoders.py` has a decoder for each form, and one that finds out the form.
- `topic_schema.py` reads the schema that is pinned in a topic's configuration, as the table format
  for Spark does (`dragoman.spark.value_schemas`).
- `avro.py` decodes single values of Avro: the decoder for Spark works on columns and needs numpy.
- `protobuf.py` decodes messages with the library of the extra `spark`, loaded when it is needed.
"""
