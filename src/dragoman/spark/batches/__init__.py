"""Record batches to Arrow and back, without a loop over records in Python.

- The decoder turns batches into Arrow batches, the encoder Arrow batches into batches.
- Batches are found, checked and gathered into units before their records are scanned.
- The scan of records exists twice, with the same results: compiled from `records.c` where a C
  compiler was present at installation, and in numpy everywhere (docs/decisions/0014).
"""

from dragoman.spark.batches.decoder import BatchDecoder
from dragoman.spark.batches.encoder import encode_batches

__all__ = ["BatchDecoder", "encode_batches"]
