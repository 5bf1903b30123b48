"""Kafka: codec and connection without input or output, handlers, client.

- `schema` has every message as data: names, types and versions. Classes, codecs and the type stub
  are generated from it; encoders and decoders are emitted as straight-line Python per version.
- `bounds` limits what one request may hold, beside the schema.
- `constants` has API keys and the versions that are advertised; `errors` the error codes.
"""
