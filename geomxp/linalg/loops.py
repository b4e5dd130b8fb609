"""Compiled loops over arrays: casts between formats, norms, lower triangles, scaled blocks.

Import this module inside the function that calls a loop: numba takes long to load, and what runs
on a GPU needs none of it.

Arrays are flat and contiguous unless a step is given; FP16 and BF16 numbers are handled as their
bits. Rounding is to nearest, ties to even, of the number as FP32: a number in FP64 is rounded
twice. Compiled functions release the interpreter's lock. Loops run from 0 over slices: numba tests
other indices for being negative, and then LLVM leaves the loop scalar.
"""

import numpy as np

from ..runtime.devices import ir, njit, types
from .simd import CPU_FEATURES, ON_ARM, by_llvm

HAS_FP16_CONVERSION = bool(CPU_FEATURES.get("f16c")) or ON_ARM
"""Whether the CPU converts FP16 itself; without, LLVM would call a library that may be missing."""

STRIP_ENTRIES = 512
_SUM_FLAGS = {"reassoc", "nsz", "contract"}


I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


@by_llvm(types.uint16)
def _round_to_half(builder, x):
    return builder.bitcast(builder.fptrunc(x, ir.HalfType()), I16)


@by_llvm(types.float32)
def _widen_half(builder, bits):
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), F32)


def _rounded(builder, bits, dropped):
    """Round off bits of an FP32 number, to nearest and ties to even; the dropped ones are noise."""
    odd = builder.and_(builder.lshr(bits, I32(dropped)), I32(1))
    return builder.add(bits, builder.add(odd, I32((1 << (dropped - 1)) - 1)))


@by_llvm(types.uint16)
def _round_to_bf16(builder, x):
    rounded = _rounded(builder, builder.bitcast(x, I32), 16)
    return builder.trunc(builder.lshr(rounded, I32(16)), I16)


@by_llvm(types.float32)
def _widen_bf16(builder, bits):
    return builder.bitcast(builder.shl(builder.zext(bits, I32), I32(16)), F32)


@by_llvm(types.float32)
def _keep_bf16(builder, x):
    rounded = _rounded(builder, builder.bitcast(x, I32), 16)
    return builder.bitcast(builder.and_(rounded, I32(0xFFFF0000)), F32)


@by_llvm(types.float32)
def _round_to_tf32(builder, x):
    rounded = _rounded(builder, builder.bitcast(x, I32), 13)
    return builder.bitcast(builder.and_(rounded, I32(0xFFFFE000)), F32)


@by_llvm(types.uint8)
def _round_to_fp8(builder, x):
    bits = builder.bitcast(x, I32)
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


@njit(nogil=True, cache=True, fastmath=_SUM_FLAGS)
def sum_of_squares(x):
    """Return Σx² in FP64, by strips of FP32 sums where x is FP32."""
    total = 0.0
    for first in range(0, x.size, STRIP_ENTRIES):
        strip = x[first : first + STRIP_ENTRIES]
        part = strip[0] * strip[0]
        for p in range(1, strip.size):
            part += strip[p] * strip[p]
        total += part
    return total


@njit(nogil=True, cache=True)
def fp8_as_fp16(x, out):
    """Out <- the bits in FP16 of 2^-8 times E4M3 numbers, exactly."""
    for p in range(x.size):
        v = np.uint16(x[p])
        sign = (v & np.uint16(0x80)) << np.uint16(8)
        out[p] = sign | ((v & np.uint16(0x7F)) << np.uint16(7))


if HAS_FP16_CONVERSION:

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
    def as_fp16(x, scale, out):
        """Out <- x·scale rounded to FP16, as FP32."""
        for p in range(x.size):
            out[p] = _widen_half(_round_to_half(np.float32(x[p] * scale)))

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

    @njit(nogil=True, cache=True)
    def from_fp8(x, scale, out):
        """Out <- E4M3 bits, widened, times scale."""
        strip = np.empty(STRIP_ENTRIES, dtype=np.uint16)
        for first in range(0, x.size, STRIP_ENTRIES):
            some, wide = x[first : first + STRIP_ENTRIES], out[first : first + STRIP_ENTRIES]
            fp8_as_fp16(some, strip)
            for p in range(some.size):
                wide[p] = _widen_half(strip[p]) * np.float32(256.0) * scale

else:

    def to_fp16(x, scale, out):
        """Out <- the bits of x·scale in FP16."""
        out[:] = (x * scale).astype(np.float16).view(np.uint16)

    def from_fp16(x, scale, out):
        """Out <- FP16 bits, widened, times scale."""
        np.multiply(x.view(np.float16), scale, out=out, dtype=out.dtype)

    def as_fp16(x, scale, out):
        """Out <- x·scale rounded to FP16, as FP32."""
        out[:] = (x * scale).astype(np.float16)

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
def to_bf16(x, scale, out):
    """Out <- the bits of x·scale in BF16."""
    for p in range(x.size):
        out[p] = _round_to_bf16(np.float32(x[p] * scale))


@njit(nogil=True, cache=True)
def from_bf16(x, scale, out):
    """Out <- BF16 bits, widened, times scale."""
    strip = np.empty(STRIP_ENTRIES, dtype=np.uint32)
    values = strip.view(np.float32)
    for first in range(0, x.size, STRIP_ENTRIES):
        some, wide = x[first : first + STRIP_ENTRIES], out[first : first + STRIP_ENTRIES]
        for p in range(some.size):
            strip[p] = np.uint32(some[p]) << np.uint32(16)
        for p in range(some.size):
            wide[p] = values[p] * scale


@njit(nogil=True, cache=True)
def fp16_to_bf16(x, scale, out):
    """Out <- the bits in BF16 of FP16 numbers, given as bits, times scale."""
    for p in range(x.size):
        out[p] = _round_to_bf16(_widen_half(x[p]) * np.float32(scale))


@njit(nogil=True, cache=True)
def fp8_to_bf16(x, scale, out):
    """Out <- the bits in BF16 of E4M3 numbers, given as bits, times scale."""
    strip = np.empty(STRIP_ENTRIES, dtype=np.float32)
    for first in range(0, x.size, STRIP_ENTRIES):
        some, bits = x[first : first + STRIP_ENTRIES], out[first : first + STRIP_ENTRIES]
        from_fp8(some, scale, strip[: some.size])
        for p in range(some.size):
            bits[p] = _round_to_bf16(strip[p])


@njit(nogil=True, cache=True)
def as_bf16(x, scale, out):
    """Out <- x·scale rounded to BF16, as FP32."""
    for p in range(x.size):
        out[p] = _keep_bf16(np.float32(x[p] * scale))


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
def add_scaled(x, scale, out):
    """Out <- out + x·scale."""
    for p in range(x.size):
        out[p] += x[p] * scale


# Products with one column read a matrix once, and write no wider copy of it. They go through its
# memory from end to end: loops over several of its columns took twice as long, and so did one loop
# for all formats over columns that had been widened.


@njit(nogil=True, cache=True, fastmath=_SUM_FLAGS)
def add_product_of_bf16(a, transposed, x, scale, y):
    """Y <- y + scale·Ax, or scale·A'x, for the bits of BF16 numbers and one column."""
    m = x.size if transposed else y.size
    for k in range(y.size if transposed else x.size):
        column = a[k * m : k * m + m]
        if transposed:
            total = scale - scale
            for p in range(x.size):
                total += _widen_bf16(column[p]) * x[p]
            y[k] += total * scale
        else:
            factor = x[k] * scale
            for p in range(y.size):
                y[p] += _widen_bf16(column[p]) * factor


@njit(nogil=True, cache=True, fastmath=_SUM_FLAGS)
def add_product(a, transposed, x, scale, y):
    """Y <- y + scale·Ax, or scale·A'x, for FP32 or FP64 numbers and one column."""
    m = x.size if transposed else y.size
    for k in range(y.size if transposed else x.size):
        column = a[k * m : k * m + m]
        if transposed:
            total = scale - scale
            for p in range(x.size):
                total += column[p] * x[p]
            y[k] += total * scale
        else:
            factor = x[k] * scale
            for p in range(y.size):
                y[p] += column[p] * factor


if HAS_FP16_CONVERSION:

    @njit(nogil=True, cache=True, fastmath=_SUM_FLAGS)
    def add_product_of_fp16(a, transposed, x, scale, y):
        """Y <- y + scale·Ax, or scale·A'x, for the bits of FP16 numbers and one column."""
        m = x.size if transposed else y.size
        for k in range(y.size if transposed else x.size):
            column = a[k * m : k * m + m]
            if transposed:
                total = scale - scale
                for p in range(x.size):
                    total += _widen_half(column[p]) * x[p]
                y[k] += total * scale
            else:
                factor = x[k] * scale
                for p in range(y.size):
                    y[p] += _widen_half(column[p]) * factor


ADD_PRODUCT = {"from_bf16": add_product_of_bf16, "as they are": add_product}
"""Products with one column, by the `decode` of the matrix's format.

FP32 and FP64, which have no `decode`, are under "as they are".
"""
if HAS_FP16_CONVERSION:
    ADD_PRODUCT["from_fp16"] = add_product_of_fp16


def flat(view):
    """Return the memory of a view with unit stride down its columns, and its leading dimension."""
    m, n = view.shape
    if view.flags.f_contiguous:
        return view.reshape(-1, order="F"), m
    step = view.strides[1] // view.itemsize if n > 1 else m
    span = (n - 1) * step + m
    return np.lib.stride_tricks.as_strided(view, (span,), (view.itemsize,)), step


def by_column(kernel, source, scale, out):
    """Run a cast of this module on each column of views (m, n) with unit stride down columns.

    The scale has the type of the wider view.
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
    for kernel in (
        *(to_fp16, from_fp16, as_fp16, to_bf16, from_bf16, as_bf16),
        *(to_tf32, to_fp8, from_fp8, add_scaled, fp16_to_bf16, fp8_to_bf16),
    )
    if hasattr(kernel, "py_func")
}


@njit(nogil=True, cache=True)
def largest_by_column(bits, step, m, n, mask):
    """Return max of bits & mask over the columns of a view: max|x| as its bits."""
    largest = bits[0] & mask
    for j in range(n):
        column = bits[j * step : j * step + m]
        for p in range(column.size):
            largest = max(largest, column[p] & mask)
    return largest


@njit(nogil=True, cache=True)
def _line(matrix, step, j, n, by_rows):
    """Return what the lower triangle has of a square view's column j, or of its row j."""
    return matrix[j * step : j * step + j + 1] if by_rows else matrix[j * step + j : j * step + n]


@njit(nogil=True, cache=True)
def largest_of_lower(bits, step, n, mask, by_rows):
    """As `largest_by_column`, for the lower triangle of a square view."""
    largest = bits[0] & mask
    for j in range(n):
        line = _line(bits, step, j, n, by_rows)
        for p in range(line.size):
            largest = max(largest, line[p] & mask)
    return largest


@njit(nogil=True, cache=True)
def copy_lower(source, step_s, along, across, out, step_o, by_rows):
    """Lower triangle of out <- that of source times a number for each row and for each column.

    `across` has the numbers of the contiguous lines, which are columns, or rows if `by_rows`;
    `along` has those of the others.
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
def add_lower(source, step_s, scale, out, step_o, n, by_rows):
    """Lower triangle of out <- out + that of source times scale."""
    for j in range(n):
        x, y = _line(source, step_s, j, n, by_rows), _line(out, step_o, j, n, by_rows)
        for i in range(y.size):
            y[i] += x[i] * scale


@njit(nogil=True, cache=True, error_model="numpy")
def scaled(a, top, left, scale, multiple, out, diagonal):
    """Out, (p, q), <- multiple · a_ij / (s_i s_j) of a block of a, (n, n), from (top, left) on.

    Both are in Fortran order; only the lower triangle of a diagonal block is read.
    """
    rows = out.shape[0]
    for j in range(out.shape[1]):
        factor = multiple / scale[left + j]
        first = j if diagonal else 0
        x, y = a.T[left + j][top + first : top + rows], out.T[j][first:]
        divisors = scale[top + first : top + rows]
        for i in range(y.size):
            y[i] = x[i] / divisors[i] * factor
    if diagonal:
        _mirror(out)


@njit(nogil=True, cache=True)
def _mirror(out):
    """Upper triangle <- lower one, by squares that the first cache holds."""
    n = out.shape[0]
    for left in range(0, n, 32):
        for top in range(left, n, 32):
            for j in range(left, min(left + 32, n)):
                for i in range(max(top, j + 1), min(top + 32, n)):
                    out[j, i] = out[i, j]


@njit(nogil=True, cache=True, error_model="numpy", fastmath=_SUM_FLAGS)
def row_sums(a, first, last, scale, sums):
    """Add |a_ij| / (s_i s_j), and |a_ij|, to the sums of both rows, for columns first ≤ j < last.

    a, (n, n), is in Fortran order; sums are (2, n).
    """
    for j in range(first, last):
        ours, plain, inverse = 0.0, 0.0, 1 / scale[j]
        column, divisors = a.T[j][j + 1 :], scale[j + 1 :]
        theirs, theirs_plain = sums[0, j + 1 :], sums[1, j + 1 :]
        for i in range(column.size):
            value = abs(column[i])
            theirs_plain[i] += value
            plain += value
        for i in range(column.size):
            share = abs(column[i]) / divisors[i] * inverse
            theirs[i] += share
            ours += share
        value = abs(a[j, j])
        sums[0, j] += ours + value / scale[j] * inverse
        sums[1, j] += plain + value
