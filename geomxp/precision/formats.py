"""Number formats: how a tile is stored and in which arithmetic it is used."""

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput


@dataclass(frozen=True)
class Format:
    """A number format.

    Parameters
    ----------
    name : str
        Lower case, as the command line spells it.
    dtype : numpy.dtype
        What one stored number is.
    unit_roundoff : float
        u, half the distance from 1 to the next number.
    largest : float
        The largest finite number.
    """

    name: str
    dtype: np.dtype
    unit_roundoff: float
    largest: float

    @property
    def bytes(self):
        """Bytes of one stored number."""
        return self.dtype.itemsize


FP64 = Format("fp64", np.dtype(np.float64), 2.0**-53, float(np.finfo(np.float64).max))

FORMATS = {form.name: form for form in (FP64,)}


def named(name):
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
