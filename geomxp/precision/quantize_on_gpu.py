"""As `geomxp.precision.quantize`, on a GPU: the same exponents, the same bits.

CuPy arrays in, tiles of CuPy arrays out. FP32 never stands as two FP16 planes there.
"""

from functools import cache

import numpy as np

from ..cuda import module
from ..errors import InvalidInput
from . import formats
from .formats import FP16
from .quantize import Tile

THREADS = 256
"""Threads of a block, as in cuda/quantize.cu."""

SOURCES = {"float64": "fp64", "float32": "fp32"}


def quantize(array, form, scale=True):
    """Return an array as a tile in a format; see `geomxp.precision.quantize.quantize`.

    Parameters
    ----------
    array : (m, n) FP32 or FP64 cupy.ndarray, Fortran order
    form : Format or str
    scale : bool

    Returns
    -------
    Tile
        With values in Fortran order: the bits, as unsigned integers, of BF16 and FP8.

    Raises
    ------
    InvalidInput
        If the array holds a NaN or an infinity. To know, the CPU waits for the GPU.
    """
    form = formats.named(form)
    with array.device:
        largest = magnitude(array)
        if not np.isfinite(largest):
            raise InvalidInput(f"a tile holds {largest}: it has no values in {form.name}.")
        return cast(array, form, form.exponent_for(largest) if scale else 0)


def magnitude(array):
    """Return max|a| of an FP32 or FP64 array: inf or NaN where one stands there.

    Parameters
    ----------
    array : (m, n) cupy.ndarray, Fortran order

    Returns
    -------
    float
    """
    import cupy

    largest = cupy.zeros(1, f"u{array.itemsize}")
    _launch(f"magnitude_{SOURCES[array.dtype.name]}", array, largest)
    return float(largest.get().view(array.dtype)[0])


def cast(array, form, exponent=0):
    """Return array·2^exponent as a tile in a format, in one pass; see `quantize`.

    Magnitudes beyond the largest number of FP16 or FP8 become that number.

    Parameters
    ----------
    array : (m, n) FP32 or FP64 cupy.ndarray, Fortran order
    form : Format
    exponent : int

    Returns
    -------
    Tile
    """
    import cupy

    values = cupy.empty(array.shape, form.dtype, order="F")
    scale = array.dtype.type(2.0**exponent)
    _launch(f"{SOURCES[array.dtype.name]}_to_{form.name}", array, scale, values)
    return Tile(form, values, exponent)


def widen(tile, dtype):
    """Return a tile's values as FP64, or as FP32; see `geomxp.precision.quantize.Tile.widen`.

    Parameters
    ----------
    tile : Tile
        Of CuPy arrays.
    dtype : dtype

    Returns
    -------
    (m, n) cupy.ndarray, Fortran order
        The tile's own values where they are of that type already.
    """
    import cupy

    values, dtype = tile.values, np.dtype(dtype)
    if values.dtype == dtype and not tile.exponent:
        return values
    with values.device:
        out = cupy.empty(tile.shape, dtype, order="F")
        source = SOURCES.get(values.dtype.name, tile.form.name)
        # what is multiplied, FP32 or FP64, is multiplied as what it is
        real = values.dtype if values.dtype.name in SOURCES else dtype
        scale = real.type(2.0**-tile.exponent)
        _launch(f"{source}_to_{SOURCES[dtype.name]}", values, scale, out)
    return out


def fp8_as_fp16(tile):
    """Return the numbers of an FP8 tile as an FP16 tile, exactly.

    Parameters
    ----------
    tile : Tile
        Of CuPy arrays.

    Returns
    -------
    Tile
    """
    import cupy

    with tile.values.device:
        wide = cupy.empty(tile.shape, FP16.dtype, order="F")
        _launch("fp8_to_fp16", tile.values, wide)
    return Tile(FP16, wide, tile.exponent - 8)


def _launch(kernel, array, *arguments):
    """Start a kernel over the entries of an array, in the order of the columns."""
    import cupy

    array = cupy.asfortranarray(array)
    blocks = min(-(-array.size // THREADS), _most_blocks(array.device.id))
    launch = module("quantize.cu").get_function(kernel)
    launch((max(1, blocks),), (THREADS,), (array, array.size, *arguments))


@cache
def _most_blocks(index):
    """Return how many blocks fill a GPU: 2048 threads to each of its processors."""
    from cupy.cuda import runtime

    return (
        2048 // THREADS * runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index)
    )
