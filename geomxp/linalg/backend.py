"""The NumPy backend, and the selection of a backend: `backend_of(array)`.

The code above it names no device; `views.Backend` states what a backend does.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import numpy as np

from ..errors import InvalidInput, MissingPackage
from ..runtime.devices import gpu_count, usable_cores
from . import blas
from .views import Backend, by_columns, contiguous, layout, order_of

CACHED_ENTRIES, LEAST_COLUMNS = 2**17, 128
"""Entries of a block that a core's cache holds, and the fewest columns of a fast product."""


TO_BF16 = {None: "to_bf16", "from_fp16": "fp16_to_bf16", "from_fp8": "fp8_to_bf16"}
"""Loops that round stored numbers to BF16, by the format's `decode`; None: FP32 and FP64."""


class NumpyBackend(Backend):
    """NumPy arrays, with BLAS and LAPACK of MKL or SciPy and loops compiled by numba."""

    name, on_gpu, xp = "cpu", False, np

    _gemm, _triangular = staticmethod(blas.gemm), staticmethod(blas.triangular)
    _rank_k, _factor = staticmethod(blas.rank_k), staticmethod(blas.factor)

    def triangular(self, name, side, uplo, trans, diag, t, b):
        # of a small matrix the call itself takes time
        brief = len(t) * b.size <= blas.MOST_WRAPPER_MULTIPLICATIONS
        work = blas.triangular_at_once if brief else blas.triangular
        work(name, side, uplo, trans, diag, t, b)

    def product(self, c, a, b, form, alpha):
        """C <- C + α A B', by the products of the format if it has its own, else in FP32."""
        if not c.size or not a.size:
            return
        if form.wider is not None and not self._held_in_fp32(form):
            a, b = self.as_wider(a, form), self.as_wider(b, form)
            form, alpha = form.wider, alpha * 4.0**form.wider_shift
        if not by_columns(c):
            # C' = C' + αBA'
            self.product(c.T, b, a, form, alpha)
        elif c.dtype != np.float32 and not (blas.has_unit(form) and blas.in_avx512(form)):
            self._add_product(c, a, b, form, alpha)
        elif blas.has_unit(form):
            blas.multiply_on_units(c, a, b, form, alpha)
        else:
            left, right = (self._in_fp32(x, form) for x in (a, b))
            self.gemm(c, left, right.T, alpha, 1.0)

    def _add_product(self, c, a, b, form, alpha):
        """As `product`, for an FP64 C with contiguous columns, by columns that a cache holds."""
        if self._held_in_fp32(form):
            a, b = self._in_fp32(a, form), self._in_fp32(b, form)
        loops, (m, n) = _loops(), c.shape
        step = max(LEAST_COLUMNS, CACHED_ENTRIES // m)
        total = np.empty((m, min(step, n)), np.float32, order="F")
        for first in range(0, n, step):
            some = slice(first, min(first + step, n))
            part = total[:, : some.stop - first]
            if blas.has_unit(form):
                part[...] = 0.0
                blas.multiply_on_units(part, a, b[some], form, 1.0)
            else:
                self.gemm(part, a, b[some].T, 1.0, 0.0)
            # scaled in FP64: FP32 may not hold what FP64 does
            loops.by_column(loops.add_scaled, part, np.float64(alpha), c[:, some])

    def squares(self, panel):
        return panel.values.dtype == np.float32 or blas.in_avx512(panel.form)

    def add_square(self, c, a, form, alpha):
        if a.dtype != np.float32:
            blas.square_on_units(c, a, form, alpha)
        elif c.dtype == np.float32:
            self.syrk(c, a, alpha, 1.0)
        else:
            total = self.syrk(np.empty(c.shape, np.float32, order=order_of(c)), a, 1.0, 0.0)
            # scaled in FP64: FP32 may not hold what FP64 does
            self.add_lower(c, total, np.float64(alpha))

    def threads(self, forms):
        shared = any(map(blas.in_avx512, forms)) and usable_cores() > 1
        return blas.own_threads() if shared else nullcontext()

    def panel_dtype(self, form):
        return np.dtype(np.float32) if self._held_in_fp32(form) else form.dtype

    def _held_in_fp32(self, form):
        """Return whether a format is multiplied in FP32: the CPU has no faster products for it."""
        return form.coarse and not blas.has_unit(form.wider or form)

    def _in_fp32(self, values, form):
        """Return numbers of a format as FP32, exactly."""
        if values.dtype == np.float32:
            return values
        out = np.empty(values.shape, np.float32, order=order_of(values))
        self.widen_into(out, values, form, 0)
        return out

    def round_into(self, out, array, form, exponent):
        out, array = _aligned(out, array)
        scale = array.dtype.type(2.0**exponent)
        if out.dtype == form.dtype:
            _convert(form.encode, array, scale, out)
            return
        if form.rounded:
            _convert(form.rounded, array, scale, out)
            return
        m, n = array.shape
        step = max(1, CACHED_ENTRIES // max(m, 1))
        stored = np.empty((m, min(step, n)), form.dtype, order="F")
        for first in range(0, n, step):
            some = slice(first, min(first + step, n))
            part = stored[:, : some.stop - first]
            _convert(form.encode, array[:, some], scale, part)
            _convert(form.decode, part, np.float32(1.0), out[:, some])

    def widen_into(self, out, values, form, exponent):
        out, values = _aligned(out, values)
        decode = None if values.dtype == np.float32 else form.decode
        _convert(decode, values, out.dtype.type(2.0**-exponent), out)

    def product_with_column(self, tile, x, transposed=False):
        """Return Ax or A'x for a tile A and one column x, (k, 1), without a copy of A in x's type.

        None where no compiled loop does this: for other formats than FP64, FP32, BF16 and FP16,
        tiles in two planes or of low rank, and tiles by rows.
        """
        values, plain = tile.values, tile.values.dtype in blas.BLAS_TYPES
        kernel = _column_products().get("as they are" if plain else tile.form.decode)
        if kernel is None or values.shape != tile.shape or not values.flags.f_contiguous:
            return None
        bits = values.view(np.uint16) if values.dtype == np.float16 else values
        scale = x.dtype.type(2.0**-tile.exponent)
        out = np.zeros(tile.shape[1 if transposed else 0], x.dtype)
        kernel(bits.reshape(-1, order="F"), transposed, np.ascontiguousarray(x[:, 0]), scale, out)
        return out[:, None]

    def split(self, array, exponent):
        values = np.empty((*array.shape, 2), np.float16, order="F")
        scale = array.dtype.type(2.0**exponent)
        _loops().split_fp16(array.reshape(-1, order="F"), scale, *_planes(values))
        return values

    def join_into(self, out, planes, exponent):
        scale = out.dtype.type(2.0**-exponent)
        _loops().join_fp16(*_planes(planes), scale, out.reshape(-1, order="F"))

    def as_wider(self, values, form):
        loops = _loops()
        out = np.empty(values.shape, form.wider.dtype, order=order_of(values))
        to, source = (out, values) if by_columns(values) else (out.T, values.T)
        source = np.asfortranarray(source)
        loops.fp8_as_fp16(loops.flat(source)[0], loops.flat(to)[0].view(np.uint16))
        return out

    def to_bf16(self, out, values, form):
        """Out <- stored numbers of a format as BF16's bits, rounded; FP8's are exact."""
        values, kernel = self.as_columns(values), TO_BF16.get(form.decode)
        if kernel is None or (form.decode is None and values.dtype not in blas.BLAS_TYPES):
            # a format of the user
            wide = np.empty(values.shape, np.float32, order="F")
            self.widen_into(wide, values, form, 0)
            values, kernel = wide, "to_bf16"
        _convert(kernel, values, np.float32(1.0), out)

    def assign(self, out, a):
        # numbers that the caller does not read may be anything
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            out[...] = a

    def largest(self, array):
        if not array.size:
            return 0.0
        loops = _loops()
        if not contiguous(array):
            array = array.copy(order="F")
        array = array if by_columns(array) else array.T
        bits, mask = _bits(array)
        flat, step = loops.flat(bits)
        # an array without gaps is one column
        shape = (flat.size, 1) if flat.size == array.size else array.shape
        return _number(loops.largest_by_column(flat, step, *shape, mask), array)

    def survey(self, a):
        if not len(a):
            return a.diagonal(), 0.0
        lower = a if contiguous(a) else a.copy(order="F")
        bits, mask = _bits(lower)
        line, by_rows = _lines(bits)
        return a.diagonal(), _number(_loops().largest_of_lower(*line, len(a), mask, by_rows), lower)

    def copy_lower(self, out, source, rows=None, columns=None):
        if not (contiguous(source) and contiguous(out)):
            # as the compiled loops, without warnings
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                for i in range(len(source)):
                    row = source[i, : i + 1]
                    out[i, : i + 1] = row if rows is None else row * rows[i] * columns[: i + 1]
            return
        loops = _loops()
        (x, by_rows), (y, out_by_rows) = _lines(source), _lines(out)
        if by_rows != out_by_rows:
            if rows is None:
                rows = columns = np.ones(len(source))
            loops.turn_lower(*x, rows, columns, *y, by_rows)
        elif rows is None:
            loops.convert_lower(*x, *y, len(source), by_rows)
        else:
            along, across = (columns, rows) if by_rows else (rows, columns)
            loops.copy_lower(*x, along, across, *y, by_rows)

    def add_lower(self, c, total, scale=1.0):
        x, y, by_rows = _lines(total, c)
        _loops().add_lower(*x, c.dtype.type(scale), *y, len(c), by_rows)

    def scale_lower(self, c, beta):
        for j in range(len(c) if beta != 1.0 else 0):
            if beta == 0.0:
                c[j:, j] = 0.0
            else:
                c[j:, j] *= c.dtype.type(beta)

    def clear_upper(self, a):
        for j in range(1, len(a)):
            a[:j, j] = 0.0

    def index(self, array):
        return None

    def on(self, array):
        return nullcontext()

    def put(self, array, like):
        backend = backend_of(array)
        return np.asfortranarray(backend.get(array)) if backend.on_gpu else array

    def get(self, array):
        return array


@cache
def _loops():
    """Return the compiled loops, imported when the first one is needed."""
    from . import loops

    return loops


@cache
def _column_products():
    """Return `loops.ADD_PRODUCT`; without numba nothing, and BLAS multiplies."""
    try:
        return _loops().ADD_PRODUCT
    except MissingPackage:
        return {}


def _convert(kernel, source, scale, out):
    """Out <- source · scale by a cast of a `Format`, column by column."""
    if kernel is None:
        # as the compiled loops, without warnings
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if scale == 1.0:
                np.copyto(out, source, casting="same_kind")
            else:
                np.multiply(source, scale, out=out, casting="same_kind")
        return
    loops = _loops()
    kernel = kernel if callable(kernel) else getattr(loops, kernel)
    # compiled loops take FP16 as its bits
    source, out = (x.view(np.uint16) if x.dtype == np.float16 else x for x in (source, out))
    loops.by_column(kernel, source, scale, out)


def _planes(values):
    """Return the bits of two FP16 planes, each in one dimension."""
    bits = values.reshape(-1, order="F").view(np.uint16)
    return bits[: bits.size // 2], bits[bits.size // 2 :]


def _aligned(out, source):
    """Return both, or both transposed, so that their columns are contiguous; copy the source."""
    order = order_of(out)
    if layout(source) != order:
        source = np.array(source, order=order)
    return (out, source) if order == "F" else (out.T, source.T)


def _bits(array):
    """Return an array's numbers as integers, and the mask that removes their sign."""
    whole = np.int32 if array.dtype == np.float32 else np.int64
    return array.view(whole), whole(np.iinfo(whole).max)


def _number(bits, array):
    """Return the number of an array's type that has these bits."""
    return float(np.array(bits, f"i{array.itemsize}").view(array.dtype))


def _lines(*arrays):
    """Return `loops.flat` of views of one layout, and whether their rows are contiguous."""
    by_rows, flat = not by_columns(arrays[0]), _loops().flat
    return (*(flat(x.T if by_rows else x) for x in arrays), by_rows)


NUMPY = NumpyBackend()


def backend_of(array) -> Backend:
    """Return the backend of an array: NumPy's for an `ndarray`, else CuPy's."""
    if isinstance(array, np.ndarray):
        return NUMPY
    from .gpu import CUPY

    return CUPY


def device_of(array):
    """Return a context in which an array's device is current, as CuPy's allocations need it."""
    return backend_of(array).on(array)


def as_array(name, values):
    """Return an argument: a CuPy array unchanged, and all else as a NumPy array."""
    if not hasattr(values, "__cuda_array_interface__"):
        return np.asarray(values)
    # with a clear error without CuPy
    gpu_count()
    import cupy

    if not isinstance(values, cupy.ndarray):
        raise InvalidInput(
            f"`{name}` is on a GPU, but not a CuPy array: use cupy.asarray({name}), which shares "
            "its memory."
        )
    return values
