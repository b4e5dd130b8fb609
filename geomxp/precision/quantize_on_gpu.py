"""As `geomxp.precision.quantize`, on a GPU: the same exponents, the same bits.

CuPy arrays in, tiles of CuPy arrays out; `round_into` and `widen_into` work on views. FP32 never
stands as two FP16 planes in a tile there.
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

MOST_DOWN = 65535
"""Blocks that CUDA allows in a grid's second dimension."""

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
    largest = magnitude(array)
    if not np.isfinite(largest):
        raise InvalidInput(f"a tile holds {largest}: it has no values in {form.name}.")
    return cast(array, form, form.exponent_for(largest) if scale else 0)


def magnitude(array):
    """Return max|a| of an FP32 or FP64 array: inf or NaN where one stands there.

    Parameters
    ----------
    array : (m, n) cupy.ndarray
        Copied if its columns are not contiguous.

    Returns
    -------
    float
    """
    import cupy

    with array.device:
        largest = cupy.zeros(1, f"u{array.itemsize}")
        if not _by_columns(array):
            array = cupy.asfortranarray(array)
        _launch(f"magnitude_{SOURCES[array.dtype.name]}", [array], (), (largest,))
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

    with array.device:
        values = cupy.empty(array.shape, form.dtype, order="F")
        round_into(values, cupy.asfortranarray(array), form, exponent)
    return Tile(form, values, exponent)


def round_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in a format.

    Parameters
    ----------
    out : (m, n) cupy.ndarray of the format's dtype
    array : (m, n) FP32 or FP64 cupy.ndarray
        Both with contiguous columns.
    form : Format
    exponent : int
    """
    scale = array.dtype.type(2.0**exponent)
    _launch(f"{SOURCES[array.dtype.name]}_to_{form.name}", [array, out], (scale,))


def split_into(high, low, array, exponent):
    """High + low <- array·2^exponent to FP32's accuracy, both FP16; see `round_into`."""
    _launch("fp32_to_planes", [array, high, low], (np.float32(2.0**exponent),))


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
        widen_into(out, cupy.asfortranarray(values), tile.form, tile.exponent)
    return out


def widen_into(out, values, form, exponent):
    """Out <- numbers in a format times 2^-exponent.

    Parameters
    ----------
    out : (m, n) FP32 or FP64 cupy.ndarray
    values : (m, n) cupy.ndarray of the format's dtype
        Both with contiguous columns.
    form : Format
    exponent : int
    """
    source = SOURCES.get(values.dtype.name, form.name)
    # what is multiplied, FP32 or FP64, is multiplied as what it is
    real = values.dtype if values.dtype.name in SOURCES else out.dtype
    scale = real.type(2.0**-exponent)
    _launch(f"{source}_to_{SOURCES[out.dtype.name]}", [values, out], (scale,))


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
        fp8_as_fp16_into(wide, cupy.asfortranarray(tile.values))
    return Tile(FP16, wide, tile.exponent - 8)


def fp8_as_fp16_into(out, values):
    """Out <- 2^-8 times the numbers of FP8, as FP16; see `round_into`."""
    _launch("fp8_to_fp16", [values, out])


def _launch(kernel, arrays, scale=(), result=()):
    """Start a kernel over the entries of arrays of one shape, in the order of the columns.

    Its arguments are the first array, the scale, the other arrays, and what is no array of entries.
    """
    (m, n), index = arrays[0].shape, arrays[0].device.id
    if not m * n:
        return
    leading = [_leading(array) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        m, n, leading = m * n, 1, [m * n] * len(arrays)
    across = min(-(-m // THREADS), _most_blocks(index))
    down = min(n, -(-_most_blocks(index) // across), MOST_DOWN)
    source, *targets = zip(arrays, leading, strict=True)
    arguments = (source[0], m, n, source[1], *scale, *(x for pair in targets for x in pair))
    with arrays[0].device:
        launch = module("quantize.cu").get_function(kernel)
        launch((across, down), (THREADS,), (*arguments, *result))


def _by_columns(array):
    """Return whether an array has contiguous columns."""
    return array.shape[0] <= 1 or array.strides[0] == array.itemsize


def _leading(array):
    """Return the distance between columns, in entries."""
    if not _by_columns(array):
        raise ValueError("columns are not contiguous")
    return array.strides[1] // array.itemsize


@cache
def _most_blocks(index):
    """Return how many blocks fill a GPU: 2048 threads to each of its processors."""
    from cupy.cuda import runtime

    return (
        2048 // THREADS * runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index)
    )
