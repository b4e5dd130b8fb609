"""Number formats: how a tile is stored, and with which error."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from math import frexp
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..runtime.devices import binding, intrinsic, ir, njit, types

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


# The loops of quantization, compiled by numba: one array in, its values in a format out.
#
# All arrays are flat and contiguous; FP16 and BF16 numbers are handled as their bits. Rounding is
# to nearest, ties to even, of the number as FP32: from FP64 that is twice, as for the high plane
# of a split FP32. Compiled functions release the interpreter's lock. Loops run from 0 over
# slices: with an index that numba may take for one from the end they would stay out of SIMD
# registers.


HARDWARE = bool(binding.get_host_cpu_features().get("f16c")) or platform.machine() in (
    *("aarch64", "arm64"),
)
"""Whether the CPU converts FP16 itself; without, LLVM would call a library that may be missing."""

STRIP = 512
_SUMS = {"reassoc", "nsz", "contract"}


@intrinsic
def _round_to_half(context, x):
    def build(context, builder, signature, arguments):
        half = builder.fptrunc(arguments[0], ir.HalfType())
        return builder.bitcast(half, ir.IntType(16))

    return types.uint16(types.float32), build


@intrinsic
def _widen_half(context, bits):
    def build(context, builder, signature, arguments):
        half = builder.bitcast(arguments[0], ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.uint16), build


I32, F32 = ir.IntType(32), ir.FloatType()


def _rounded(builder, bits, dropped):
    """Round off bits of an FP32 number, to nearest and ties to even; the dropped ones are noise."""
    odd = builder.and_(builder.lshr(bits, I32(dropped)), I32(1))
    return builder.add(bits, builder.add(odd, I32((1 << (dropped - 1)) - 1)))


@intrinsic
def _round_to_bf16(context, x):
    def build(context, builder, signature, arguments):
        rounded = _rounded(builder, builder.bitcast(arguments[0], I32), 16)
        return builder.trunc(builder.lshr(rounded, I32(16)), ir.IntType(16))

    return types.uint16(types.float32), build


@intrinsic
def _round_to_tf32(context, x):
    def build(context, builder, signature, arguments):
        rounded = _rounded(builder, builder.bitcast(arguments[0], I32), 13)
        return builder.bitcast(builder.and_(rounded, I32(0xFFFFE000)), F32)

    return types.float32(types.float32), build


@intrinsic
def _round_to_fp8(context, x):
    def build(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], I32)
        sign = builder.and_(builder.lshr(bits, I32(24)), I32(0x80))
        a = builder.and_(bits, I32(0x7FFFFFFF))
        most = I32(0x43E00000)
        # 448, and what is larger becomes that
        a = builder.select(builder.icmp_signed("<", a, most), a, most)
        # subnormals are multiples of 2^-9: adding 2^14 leaves no others
        shifted = builder.fadd(builder.bitcast(a, F32), F32(16384.0))
        subnormal = builder.sub(builder.bitcast(shifted, I32), I32(0x46800000))
        normal = builder.lshr(builder.sub(_rounded(builder, a, 20), I32(120 << 23)), I32(20))
        small = builder.icmp_signed("<", a, I32(121 << 23))
        magnitude = builder.select(small, subnormal, normal)
        return builder.trunc(builder.or_(magnitude, sign), ir.IntType(8))

    return types.uint8(types.float32), build


@njit(nogil=True, cache=True)
def magnitude_fp32(x):
    """Return the bits of max|x| (larger than infinity's where there is a NaN), for FP32."""
    bits = x.view(np.int32)
    largest = np.int32(0)
    for p in range(bits.size):
        largest = max(largest, bits[p] & np.int32(0x7FFFFFFF))
    return largest


@njit(nogil=True, cache=True)
def magnitude_fp64(x):
    """As `magnitude_fp32`, for FP64."""
    bits = x.view(np.int64)
    largest = np.int64(0)
    for p in range(bits.size):
        largest = max(largest, bits[p] & np.int64(0x7FFFFFFFFFFFFFFF))
    return largest


@njit(nogil=True, cache=True, fastmath=_SUMS)
def sum_of_squares(x):
    """Return Σx² in FP64, by strips of FP32 sums where x is FP32."""
    total = 0.0
    for first in range(0, x.size, STRIP):
        strip = x[first : first + STRIP]
        part = strip[0] * strip[0]
        for p in range(1, strip.size):
            part += strip[p] * strip[p]
        total += part
    return total


@njit(nogil=True, cache=True)
def add(c, product):
    """C <- c + product, for an FP64 c and an FP32 product."""
    for p in range(c.size):
        c[p] += product[p]


if HARDWARE:

    @njit(nogil=True, cache=True)
    def to_fp16(x, scale, out):
        """Out <- the bits of x·scale in FP16."""
        for p in range(x.size):
            out[p] = _round_to_half(np.float32(x[p] * scale))

    @njit(nogil=True, cache=True)
    def from_fp16(x, scale, out):
        """Out <- FP16 bits, widened, times scale."""
        for p in range(x.size):
            out[p] = _widen_half(x[p]) * scale

    @njit(nogil=True, cache=True)
    def split_fp16(x, scale, high, low):
        """High + low <- x·scale to FP32's accuracy, both the bits of FP16."""
        for p in range(x.size):
            value = np.float32(x[p] * scale)
            top = _round_to_half(value)
            high[p] = top
            low[p] = _round_to_half(value - _widen_half(top))

    @njit(nogil=True, cache=True)
    def join_fp16(high, low, scale, out):
        """Out <- (high + low)·scale."""
        for p in range(high.size):
            out[p] = (_widen_half(high[p]) + _widen_half(low[p])) * scale

else:

    def to_fp16(x, scale, out):
        """Out <- the bits of x·scale in FP16."""
        out[:] = (x * scale).astype(np.float16).view(np.uint16)

    def from_fp16(x, scale, out):
        """Out <- FP16 bits, widened, times scale."""
        np.multiply(x.view(np.float16), scale, out=out, dtype=out.dtype)

    def split_fp16(x, scale, high, low):
        """High + low <- x·scale to FP32's accuracy, both the bits of FP16."""
        value = (x * scale).astype(np.float32)
        top = value.astype(np.float16)
        high[:] = top.view(np.uint16)
        low[:] = (value - top).astype(np.float16).view(np.uint16)

    def join_fp16(high, low, scale, out):
        """Out <- (high + low)·scale."""
        both = high.view(np.float16).astype(np.float32) + low.view(np.float16)
        np.multiply(both, scale, out=out)


@njit(nogil=True, cache=True)
def to_bf16(x, scale, out):
    """Out <- the bits of x·scale in BF16."""
    for p in range(x.size):
        out[p] = _round_to_bf16(np.float32(x[p] * scale))


@njit(nogil=True, cache=True)
def from_bf16(x, scale, out):
    """Out <- BF16 bits, widened, times scale."""
    strip = np.empty(STRIP, dtype=np.uint32)
    values = strip.view(np.float32)
    for first in range(0, x.size, STRIP):
        some, wide = x[first : first + STRIP], out[first : first + STRIP]
        for p in range(some.size):
            strip[p] = np.uint32(some[p]) << np.uint32(16)
        for p in range(some.size):
            wide[p] = values[p] * scale


@njit(nogil=True, cache=True)
def to_tf32(x, scale, out):
    """Out <- x·scale rounded to 11 significant bits, as FP32."""
    for p in range(x.size):
        out[p] = _round_to_tf32(np.float32(x[p] * scale))


@njit(nogil=True, cache=True)
def to_fp8(x, scale, out):
    """Out <- the bits of x·scale in E4M3; magnitudes above 448 become 448."""
    for p in range(x.size):
        out[p] = _round_to_fp8(np.float32(x[p] * scale))


@njit(nogil=True, cache=True)
def fp8_as_fp16(x, out):
    """Out <- bits of FP16 numbers that are 2^-8 times the E4M3 numbers x, exactly."""
    for p in range(x.size):
        v = np.uint16(x[p])
        sign = (v & np.uint16(0x80)) << np.uint16(8)
        out[p] = sign | ((v & np.uint16(0x7F)) << np.uint16(7))


def flat(view):
    """Return the memory of a view with unit stride down its columns, and its leading dimension."""
    m, n = view.shape
    step = view.strides[1] // view.itemsize if n > 1 else m
    span = (n - 1) * step + m
    return np.lib.stride_tricks.as_strided(view, (span,), (view.itemsize,)), step


def by_column(kernel, source, scale, out):
    """Run a cast on each column of a view with unit stride down its columns.

    Parameters
    ----------
    kernel : callable
        ``kernel(x, scale, out)`` of this module.
    source, out : (m, n) view
    scale : float, of the type of the wider one
    """
    m, n = source.shape
    if not source.size:
        return
    (x, step_x), (y, step_y) = flat(source), flat(out)
    if m == step_x == step_y:
        kernel(x, scale, y)
    elif kernel in _COMPILED:
        _COMPILED[kernel](x, step_x, m, n, scale, y, step_y)
    else:
        for j in range(n):
            kernel(x[j * step_x : j * step_x + m], scale, y[j * step_y : j * step_y + m])


def _over_columns(kernel):
    @njit(nogil=True)
    def run(x, step_x, m, n, scale, y, step_y):
        for j in range(n):
            kernel(x[j * step_x : j * step_x + m], scale, y[j * step_y : j * step_y + m])

    return run


_COMPILED = {
    kernel: _over_columns(kernel)
    for kernel in (to_fp16, from_fp16, to_bf16, from_bf16, to_tf32, to_fp8)
    if hasattr(kernel, "py_func")
}


@njit(nogil=True, cache=True)
def magnitude_by_column(bits, step, m, n, mask):
    """Return max of bits & mask over the columns of a view: max|x| as its bits."""
    largest = bits[0] & mask
    for j in range(n):
        column = bits[j * step : j * step + m]
        for p in range(column.size):
            largest = max(largest, column[p] & mask)
    return largest


@njit(nogil=True, cache=True)
def from_fp8(x, scale, out):
    """Out <- E4M3 bits, widened, times scale."""
    table = np.empty(256, dtype=np.float64)
    for v in range(256):
        e, f = (v >> 3) & 15, v & 7
        magnitude = f * 2.0**-9 if e == 0 else (8 + f) * 2.0 ** (e - 10)
        table[v] = -magnitude if v & 128 else magnitude
    for p in range(x.size):
        out[p] = table[x[p]] * scale


@njit(nogil=True, cache=True)
def _line(matrix, step, j, n, by_rows):
    """Return what the lower triangle has of a square view's column j, or of its row j."""
    return matrix[j * step : j * step + j + 1] if by_rows else matrix[j * step + j : j * step + n]


@njit(nogil=True, cache=True)
def magnitude_of_lower(bits, step, n, mask, by_rows):
    """As `magnitude_by_column`, for the lower triangle of a square view."""
    largest = bits[0] & mask
    for j in range(n):
        line = _line(bits, step, j, n, by_rows)
        for p in range(line.size):
            largest = max(largest, line[p] & mask)
    return largest


@njit(nogil=True, cache=True)
def copy_lower(source, step_s, along, across, out, step_o, by_rows):
    """Lower triangle of out <- that of source times a number for each row and for each column.

    `across` has those of the contiguous lines, which are columns, or rows if so said; `along` has
    those of the others.
    """
    n = along.size
    for j in range(n):
        factor, some = across[j], _line(along, 0, j, n, by_rows)
        x, y = _line(source, step_s, j, n, by_rows), _line(out, step_o, j, n, by_rows)
        for i in range(y.size):
            y[i] = x[i] * some[i] * factor


@njit(nogil=True, cache=True)
def turn_lower(source, step_s, rows, columns, out, step_o, by_rows):
    """As `copy_lower` from a view by rows into one by columns, or from columns into rows.

    By squares that the first cache holds.
    """
    n, side = rows.size, 32
    for left in range(0, n, side):
        for top in range(left, n, side):
            # q counts the lines of out, p along them
            first, start = (left, top) if by_rows else (top, left)
            for q in range(first, min(first + side, n)):
                begin, end = start, min(start + side, n)
                if by_rows:
                    begin = max(begin, q)
                else:
                    end = min(end, q + 1)
                for p in range(begin, end):
                    i, j = (p, q) if by_rows else (q, p)
                    out[q * step_o + p] = source[p * step_s + q] * rows[i] * columns[j]


@njit(nogil=True, cache=True)
def convert_lower(source, step_s, out, step_o, n, by_rows):
    """Lower triangle of out <- that of source."""
    for j in range(n):
        x, y = _line(source, step_s, j, n, by_rows), _line(out, step_o, j, n, by_rows)
        for i in range(y.size):
            y[i] = x[i]


@njit(nogil=True, cache=True)
def add_lower(source, step_s, out, step_o, n, by_rows):
    """Lower triangle of out <- out + that of source."""
    for j in range(n):
        x, y = _line(source, step_s, j, n, by_rows), _line(out, step_o, j, n, by_rows)
        for i in range(y.size):
            y[i] += x[i]


# An array in a format with its power-of-two scale, and back.
#
# A tile that is small enough for a coarse format lies in that format's subnormal range or below
# it. Times a power of two it does not, and that product is exact.


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
            from .formats_gpu import widen

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

    bits = flat_bits(tile.values)
    if tile.split:
        join_fp16(bits[: out.size], bits[out.size :], scale, out)
    elif tile.form is FP16:
        from_fp16(bits, scale, out)
    elif tile.form is BF16:
        from_bf16(bits, scale, out)
    elif tile.form is FP8:
        wide = np.empty(out.size, np.uint16)
        fp8_as_fp16(bits, wide)
        from_fp16(wide, scale * out.dtype.type(2.0**8), out)
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
    flat = array.reshape(-1, order="F")
    if flat.dtype == np.float32:
        return float(np.int32(magnitude_fp32(flat)).view(np.float32))
    return float(np.int64(magnitude_fp64(flat)).view(np.float64))


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
    form = named(form)
    if not isinstance(array, np.ndarray):
        from .formats_gpu import quantize as on_gpu

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
    shape = (*array.shape, 2) if split else array.shape
    values = np.empty(shape, FP16.dtype if split else form.dtype, order="F")
    source, out = array.reshape(-1, order="F"), flat_bits(values)
    factor = array.dtype.type(2.0**exponent)
    if split:
        split_fp16(source, factor, out[: source.size], out[source.size :])
    elif form in (FP64, FP32):
        np.multiply(source, factor, out=out, casting="same_kind")
    else:
        by_name = {FP16: to_fp16, BF16: to_bf16, TF32: to_tf32, FP8: to_fp8}
        if form is FP16 and exponent in (0, -LARGEST_EXPONENT):
            # beyond the largest number: the largest number
            source = np.clip(source, -FP16.largest, FP16.largest)
        by_name[form](source, factor, out)
    return Tile(form, values, exponent)
