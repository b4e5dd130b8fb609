"""An array in a format with its power-of-two scale, and back.

A tile that is small enough for a coarse format lies in that format's subnormal range or below it.
Times a power of two it does not, and that product is exact.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InvalidInput
from . import formats
from .formats import BF16, FP8, FP16, FP32, FP64, LARGEST_EXPONENT, TF32, Format


@dataclass(frozen=True)
class Tile:
    """A ≈ values · 2^-exponent, with `values` in a format.

    Parameters
    ----------
    form : Format
    values : (m, n) NumPy or CuPy array, Fortran order
        Numbers of the format, or their bits. FP32 may stand as two FP16 planes, high and low,
        (m, n, 2): as many bytes, and matrix units can use them. On a GPU FP8 may be stored in C
        order, as its units need it.
    exponent : int or (2,) cupy.ndarray of int32
        While a GPU factors a matrix it may be known there only; see `quantize_on_gpu.Exponents`.
    casts : dict of Format to Tile
        The same numbers in coarser formats, for as long as somebody reads them.
    """

    form: Format
    values: Any
    exponent: int = 0
    casts: dict = field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self):
        """(m, n)."""
        return self.values.shape[:2]

    @property
    def split(self):
        """Whether an FP32 tile stands as two FP16 planes."""
        return self.values.ndim == 3

    @property
    def nbytes(self):
        """Bytes of the values, and of the casts that are still there."""
        return self.values.nbytes + sum(cast.nbytes for cast in self.casts.values())

    def __sizeof__(self):
        # a cluster counts by this
        return object.__sizeof__(self) + self.nbytes

    def __reduce__(self):
        # a tile travels as it is stored; casts are made where they are read
        return _arrived, (self.form, self.values, self.exponent)

    def plane(self, number):
        """Return the high (0) or the low (1) half of a split FP32 tile, as an FP16 tile."""
        return Tile(FP16, self.values[:, :, number], self.exponent)

    def widen(self, dtype=np.float64, out=None):
        """Return the values as FP64, or as FP32.

        Parameters
        ----------
        dtype : dtype, optional
        out : ndarray, Fortran order, optional
            Written over, and returned.

        Returns
        -------
        (m, n) array, Fortran order
            The tile's own values where they are of that type already.
        """
        if not isinstance(self.values, np.ndarray):
            from .quantize_on_gpu import widen

            return widen(self, dtype)
        if out is None and self.values.dtype == dtype and not self.exponent:
            return self.values
        if out is None:
            out = np.empty(self.shape, dtype, order="F")
        scale, flat = np.dtype(dtype).type(2.0**-self.exponent), out.reshape(-1, order="F")
        _widen(self, scale, flat)
        return out


def _arrived(form, values, exponent):
    """Return a tile from another process, whose numbers may stand at odd addresses."""
    return Tile(form, aligned(values), exponent)


def aligned(array):
    """Return an array with the same numbers, where BLAS takes them."""
    on_cpu = isinstance(array, np.ndarray)
    return array.copy(order="K") if on_cpu and not array.flags.aligned else array


def _widen(tile, scale, out):
    from . import casts

    bits = flat_bits(tile.values)
    if tile.split:
        casts.join_fp16(bits[: out.size], bits[out.size :], scale, out)
    elif tile.form is FP16:
        casts.from_fp16(bits, scale, out)
    elif tile.form is BF16:
        casts.from_bf16(bits, scale, out)
    elif tile.form is FP8:
        wide = np.empty(out.size, np.uint16)
        casts.fp8_as_fp16(bits, wide)
        casts.from_fp16(wide, scale * out.dtype.type(2.0**8), out)
    else:
        np.multiply(bits, scale, out=out, casting="same_kind")


def flat_bits(values):
    """Return a Fortran-ordered array as one dimension, FP16 as its bits."""
    flat = values.reshape(-1, order="F")
    return flat.view(np.uint16) if flat.dtype == np.float16 else flat


def magnitude(array):
    """Return max|a| of an FP32 or FP64 array in Fortran order: inf or NaN where one stands there.

    Examples
    --------
    >>> magnitude(np.array([[1.0, -3.0]], order="F"))
    3.0
    """
    from . import casts

    flat = array.reshape(-1, order="F")
    if flat.dtype == np.float32:
        return float(np.int32(casts.magnitude_fp32(flat)).view(np.float32))
    return float(np.int64(casts.magnitude_fp64(flat)).view(np.float64))


def check_largest(largest, form):
    """Raise `InvalidInput` unless an array with this largest magnitude has values in a format."""
    if not np.isfinite(largest) or (form is not FP64 and largest > FP32.largest):
        raise InvalidInput(f"a tile holds {largest:g}, which {form.name} cannot represent.")


def quantize(array, form, *, scale=True, split=False):
    """Return an array as a tile in a format.

    Parameters
    ----------
    array : (m, n) FP32 or FP64 array, NumPy or CuPy, Fortran order
    form : Format or str
    scale : bool
        Multiply by the power of two that uses the format's range best. Without, whatever is
        too small for the format is lost; that is for comparisons only.
    split : bool
        Keep FP32 as two FP16 planes.

    Returns
    -------
    Tile

    Raises
    ------
    InvalidInput
        If the array holds a NaN or an infinity.

    Examples
    --------
    >>> small = np.full((2, 2), 3e-9, order="F")
    >>> float(abs(quantize(small, "fp8").widen() / small - 1).max()) < 2**-4
    True
    >>> float(quantize(small, "fp8", scale=False).widen().max())
    0.0
    """
    form = formats.named(form)
    if not isinstance(array, np.ndarray):
        from .quantize_on_gpu import quantize as on_gpu

        return on_gpu(array, form, scale)
    largest = magnitude(array)
    check_largest(largest, form)
    split = split and form is FP32
    exponent = (FP16 if split else form).exponent_for(largest) if scale or split else 0
    return cast(array, form, exponent, split)


def cast(array, form, exponent=0, split=False):
    """Return array·2^exponent as a tile in a format, in one pass; see `quantize`.

    Parameters
    ----------
    array : (m, n) FP32 or FP64 ndarray, Fortran order
    form : Format
    exponent : int
    split : bool

    Returns
    -------
    Tile
    """
    from . import casts

    shape = (*array.shape, 2) if split else array.shape
    values = np.empty(shape, FP16.dtype if split else form.dtype, order="F")
    source, out = array.reshape(-1, order="F"), flat_bits(values)
    factor = array.dtype.type(2.0**exponent)
    if split:
        casts.split_fp16(source, factor, out[: source.size], out[source.size :])
    elif form in (FP64, FP32):
        np.multiply(source, factor, out=out, casting="same_kind")
    else:
        by_name = {FP16: casts.to_fp16, BF16: casts.to_bf16, TF32: casts.to_tf32, FP8: casts.to_fp8}
        if form is FP16 and exponent in (0, -LARGEST_EXPONENT):
            # beyond the largest number: the largest number
            source = np.clip(source, -FP16.largest, FP16.largest)
        by_name[form](source, factor, out)
    return Tile(form, values, exponent)
