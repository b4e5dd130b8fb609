"""A finished tile on a GPU: in its format, with the casts that its readers need.

What `stores.in_format` and `stores.casts_of` do on a CPU, with exponents that stay on the GPU.
"""

import numpy as np

from ..dense.matrix_units_gpu import cast_formats, stands_by_rows
from ..precision.formats import FP8, FP16, FP32, FP64
from ..precision.quantize import Tile, check_largest
from ..precision.quantize_on_gpu import cast, magnitude_of, round_into


def wanted_casts(formats, i, k):
    """Return the formats in which tile (i, k) is read besides its own, as a set."""
    form, partners = formats[i, k], formats.partners(i, k)
    if i == k:
        # the solves of the FP32 arrays in this column
        return {FP32} if form is FP64 and partners - {FP64} else set()
    if form is FP8:
        # widened to FP16 for each product: kept as FP16 too, it would take three times the memory
        return set()
    return cast_formats(form, partners) | ({FP32} if _meets_fp64_in_fp32(formats, i, k) else set())


def _meets_fp64_in_fp32(formats, i, k):
    """Return whether an FP64 tile is multiplied with another one for an FP32 array."""
    if formats[i, k] is not FP64:
        return False
    others = (j for j in range(k + 1, len(formats)) if formats[j, k] is FP64)
    return any(formats[max(i, j), min(i, j)] is not FP64 for j in others)


def is_looked_at(formats, i, k):
    """Return whether the largest magnitude of tile (i, k) is computed."""
    form = formats[i, k]
    if form in (FP64, FP32):
        return i > k and (form is FP32 or bool(wanted_casts(formats, i, k)))
    return True


def order_of(formats, i, k, shape, index):
    """Return the memory order of a finished tile: "C" if FP8 units multiply it, else "F"."""
    by_rows = i > k and stands_by_rows(formats[i, k], shape, formats.partners(i, k), index)
    return "C" if by_rows else "F"


def in_format(found, number, formats, i, k, array, room):
    """Return a finished tile in its format, without casts.

    Parameters
    ----------
    found : Exponents
        Receives the tile's exponent, and that of its cast to FP16.
    number : int
        The tile's number in `found`.
    formats : PrecisionMap
    i, k : int
    array : (m, n) FP64 or FP32 cupy.ndarray
        It is the tile's own where the format is FP64 or FP32.
    room : callable
        Returns an array of the tile's shape and format in a given order, "F" or "C".

    Returns
    -------
    Tile
        With its exponent on the GPU if the format has exponents.
    """
    form, exponent, values = formats[i, k], 0, array
    if form.top is not None:
        exponent = found.find(number, array, form, scale=formats.scale)
    if form not in (FP64, FP32):
        values = room(order_of(formats, i, k, array.shape, array.device.id))
        round_into(values, array, form, exponent)
    tile = Tile(form, values, exponent)
    if form.top is None and is_looked_at(formats, i, k):
        as_fp16 = FP16 if FP16 in wanted_casts(formats, i, k) else None
        found.find(number, _wide(tile), as_fp16, own=False)
    return tile


def cast_of(tile, form, as_fp16):
    """Return a cast of a tile; `as_fp16` is the exponent of its numbers in FP16."""
    return cast(_wide(tile), form, as_fp16 if form is FP16 else 0)


def check(largest, form):
    """Raise `InvalidInput` if a tile of a format is not finite, as `Exponents.fetch` found it."""
    work = FP64 if form is FP64 else FP32
    check_largest(magnitude_of(largest, work.dtype), form)


def _wide(tile):
    return tile.values if tile.form is FP64 else tile.widen(np.float32)
