"""Number formats: how a tile is stored, and with which error."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np

from ..errors import InvalidInput

LARGEST_EXPONENT = 120
"""Values are scaled by at most 2^±120, which FP32 holds."""


@dataclass(frozen=True)
class Format:
    """A number format.

    Parameters
    ----------
    name : str
        Lower case, as the command line spells it.
    dtype : numpy.dtype
        What holds one number; unsigned integers hold the bits where NumPy has no such float.
    unit_roundoff : float
        u, half the distance from 1 to the next number.
    largest : float
        The largest finite number.
    top : int or None
        Values are scaled so that their largest magnitude lies in [2^(top-1), 2^top); None where
        the range is wide enough without.
    """

    name: str
    dtype: np.dtype
    unit_roundoff: float
    largest: float
    top: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of one stored number."""
        return self.dtype.itemsize

    def exponent_for(self, largest: float) -> int:
        """Return the e for which largest·2^e is at the top of the range, as high as is exact.

        Parameters
        ----------
        largest : float
            The largest magnitude of an array.

        Examples
        --------
        >>> FP16.exponent_for(1.0), FP8.exponent_for(3.0), FP64.exponent_for(3.0)
        (14, 6, 0)
        """
        if self.top is None or not 0 < largest < np.inf:
            return 0
        exponent = self.top - frexp(largest)[1]
        return max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        # formats are compared by identity, in other processes too
        return named, (self.name,)


FP64 = Format("fp64", np.dtype(np.float64), 2.0**-53, float(np.finfo(np.float64).max))
FP32 = Format("fp32", np.dtype(np.float32), 2.0**-24, float(np.finfo(np.float32).max))
TF32 = Format("tf32", np.dtype(np.float32), 2.0**-11, (2 - 2.0**-10) * 2.0**127)
BF16 = Format("bf16", np.dtype(np.uint16), 2.0**-8, (2 - 2.0**-7) * 2.0**127)
FP16 = Format("fp16", np.dtype(np.float16), 2.0**-11, 65504.0, 15)
FP8 = Format("fp8", np.dtype(np.uint8), 2.0**-4, 448.0, 8)

FORMATS = {form.name: form for form in (FP64, FP32, TF32, BF16, FP16, FP8)}
"""All formats, by name."""

FINER = {FP8: FP16, FP16: FP32, BF16: FP32, TF32: FP32, FP32: FP64, FP64: FP64}
"""What a tile is promoted to."""


def named(name: str | Format) -> Format:
    """Return the format called `name`.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    if isinstance(name, Format):
        return name
    try:
        return FORMATS[str(name).lower()]
    except KeyError:
        known = ", ".join(FORMATS)
        raise InvalidInput(f"`format` must be one of: {known}. Got {name!r}.") from None


def coarser(a: Format, b: Format) -> Format:
    """Return the format with the larger unit roundoff, of equals the one of fewer bytes.

    Examples
    --------
    >>> coarser(FP64, FP16)
    fp16
    """
    return max(a, b, key=lambda form: (form.unit_roundoff, -form.bytes))
