"""Record batches to Arrow and back, without a loop over records in Python.

    decoder.py   batches → Arrow batches               encoder.py    Arrow batches → batches
    walk.py      finds and checks batches              units.py      gathers what is in them
    compiled.py  their records to columns and back,    numpy_*.py    the same by numpy
                 by records.c                          layout.py     what these two share

The compiled library is there when a C compiler was there at installation; numpy always is. Both
give the same result (docs/decisions/0014).
"""

from dragoman.spark.batches.decoder import BatchDecoder
from dragoman.spark.batches.encoder import encode_batches

__all__ = ["BatchDecoder", "encode_batches"]
