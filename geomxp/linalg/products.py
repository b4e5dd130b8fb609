"""Products of low-precision tiles with FP32 accumulation: on matrix units where they are.

On a CPU, MKL multiplies FP16 and BF16 on AMX. Elsewhere the same numbers are widened to FP32,
which is exact, and multiplied there. FP32 as two FP16 planes costs three products on the units
and is still faster than FP32's own arithmetic.
"""

from ctypes import c_float, c_int
from functools import cache

import numpy as np

from ..errors import MissingPackage
from ..linalg import blas
from ..runtime.dask import PROBES
from .formats import BF16, FP8, FP16, FP32, FP64, Tile, flat_bits, quantize

COLUMN_MAJOR, PLAIN, TRANSPOSED = 102, 111, 112
ROUTINES = {FP16: "cblas_gemm_f16f16f32", BF16: "cblas_gemm_bf16bf16f32"}
FEATURES = {FP16: "amx-fp16", BF16: "amx-bf16"}


@cache
def has_unit(form):
    """Return whether this CPU multiplies a format on matrix units, and MKL is there to use them.

    Parameters
    ----------
    form : Format
    """
    if form not in ROUTINES or blas.mkl() is None or not hasattr(blas.mkl(), ROUTINES[form]):
        return False
    try:
        from ..runtime.devices import binding
    except MissingPackage:
        # the casts to these formats need numba as well
        return False
    return bool(binding.get_host_cpu_features().get(FEATURES[form]))


def operand(tile, form):
    """Return a tile's numbers in the format of an arithmetic.

    Parameters
    ----------
    tile : Tile
    form : Format

    Returns
    -------
    Tile
    """
    if tile.form is form:
        return tile
    tile = tile.casts.get(form) or tile.casts.get(FP32, tile)
    if tile.form is form:
        return tile
    if tile.split and form is FP16:
        return tile.plane(0)
    if form is FP64:
        return Tile(FP64, tile.widen())
    if form is FP16 and tile.form is FP8 and isinstance(tile.values, np.ndarray):
        return _fp8_as_fp16(tile)
    return quantize(tile.widen(np.float32), form, split=splits())


def _fp8_as_fp16(tile):
    from ..linalg import formats

    wide = np.empty(tile.shape, np.float16, order="F")
    formats.fp8_as_fp16(flat_bits(tile.values), flat_bits(wide))
    return Tile(FP16, wide, tile.exponent - 8)


def subtract_product(c, left, right, form, alpha=None):
    """C <- C - A B' in a format's arithmetic: its numbers, multiplied exactly, summed in FP32.

    Parameters
    ----------
    c : (m, n) FP32 array, Fortran order
    left : Tile, (m, k)
    right : Tile, (n, k)
    form : Format
        FP32 or coarser.
    alpha : cupy.ndarray, optional
        On a GPU only; see `matrix_units_gpu.subtract_product`.

    Returns
    -------
    c
    """
    if not isinstance(c, np.ndarray):
        from ..linalg import products_gpu

        return products_gpu.subtract_product(c, left, right, form, alpha)
    if form is FP8:
        # a CPU has no product of its own for FP8, and FP16 holds all its numbers
        form = FP16
    a, b = operand(left, form), operand(right, form)
    if has_unit(form):
        _on_units(c, a, b)
    elif a.split and b.split:
        # (h + l)(h + l)' = hh' + hl' + lh' to FP32's accuracy
        for p, q in ((0, 0), (0, 1), (1, 0)):
            _on_units(c, a.plane(p), b.plane(q))
    else:
        blas.gemm(c, a.widen(np.float32), b.widen(np.float32), alpha=-1.0)
    return c


def _on_units(c, a, b):
    (m, n), k = c.shape, a.shape[1]
    getattr(blas.mkl(), ROUTINES[a.form])(
        *(c_int(COLUMN_MAJOR), c_int(PLAIN), c_int(TRANSPOSED), c_int(m), c_int(n), c_int(k)),
        *(c_float(-(2.0 ** -(a.exponent + b.exponent))), blas._at(a.values), c_int(m)),
        *(blas._at(b.values), c_int(n), c_float(1.0), blas._at(c), c_int(m)),
    )


def splits():
    """Return whether FP32 tiles should stand as two FP16 planes on this CPU."""
    return has_unit(FP16)


PROBES["matrix units"] = (
    *(__name__, "splits"),
    "worker {one} has matrix units for FP16 and worker {other} has none (or no MKL): tiles of one "
    "cannot be read by the other. Use workers of one kind.",
)


def cast_formats(values, forms):
    """Return which casts of an FP64 tile serve those who read it in coarser arithmetic.

    Parameters
    ----------
    values : array, NumPy or CuPy
    forms : set of Format
        Of the tiles that it is multiplied with.

    Returns
    -------
    dict of Format to bool
        Whether the cast stands as two FP16 planes, for which a GPU has no use.
    """
    forms = {FP16 if form is FP8 else form for form in forms} - {FP64}
    split = isinstance(values, np.ndarray) and splits()
    if split and {FP32, FP16} <= forms:
        # the high plane of FP32 is FP16
        forms -= {FP16}
    return dict.fromkeys(forms, split)
