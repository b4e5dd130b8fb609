"""SIMD for numba: vectors of numbers, one lane for each of several matrices.

A `Vector` is used like a float. Compiled code holds a tile of vectors in variables, which LLVM
keeps in registers. Batched factorizations use vectors as wide as a register (`load`); Vecchia's
blocks use eight FP64 numbers (`load8`) on every CPU, so that sums over lanes have the same bits
everywhere; LLVM spreads these over several registers where one is narrower.

`at` counts entries of a flat, contiguous array. Nothing is checked.
"""

import operator
import platform

import numpy as np

from ..runtime.devices import (
    binding,
    cgutils,
    intrinsic,
    ir,
    models,
    njit,
    overload,
    register_model,
    types,
)

FEATURES = binding.get_host_cpu_features()
FUSED = bool(FEATURES.get("fma")) or platform.machine() in ("aarch64", "arm64")
"""Whether the CPU has a fused multiply-add, which rounds once instead of twice."""

REGISTER = 64 if FEATURES.get("avx512f") else 32 if FEATURES.get("avx2") else 16
"""Bytes of a SIMD register of this CPU."""

EIGHT = 8
"""Lanes of the vectors of `load8`, and coefficients in a row of a table for `polynomial`."""


def width(dtype):
    """Return how many numbers a SIMD register holds."""
    return REGISTER // np.dtype(dtype).itemsize


class Vector(types.Type):
    """Numba's type of a vector of `lanes` numbers."""

    def __init__(self, scalar, lanes):
        self.scalar, self.lanes = scalar, lanes
        super().__init__(name=f"Vector({scalar}, {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        scalar = dmm.lookup(fe_type.scalar).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(scalar, fe_type.lanes))


NUMBERS, INDICES = Vector(types.float64, EIGHT), Vector(types.int64, EIGHT)
_FP64, _INT64 = (ir.VectorType(kind, EIGHT) for kind in (ir.DoubleType(), ir.IntType(64)))


def _pointer(context, builder, array_type, array, at, lanes):
    """Return a pointer to the vector that begins at an entry of a flat array."""
    data = context.make_array(array_type)(context, builder, array).data
    scalar = context.get_data_type(array_type.dtype)
    return builder.bitcast(builder.gep(data, [at]), ir.VectorType(scalar, lanes).as_pointer())


def _loaded(builder, pointer, array_type):
    value = builder.load(pointer)
    value.align = array_type.dtype.bitwidth // 8
    return value


def _stored(builder, value, pointer, array_type, past_cache=False):
    instruction = builder.store(value, pointer)
    instruction.align = REGISTER if past_cache else array_type.dtype.bitwidth // 8
    if past_cache:
        one = ir.Constant(ir.IntType(32), 1)
        instruction.set_metadata("nontemporal", builder.module.add_metadata([one]))


def _llvm(builder, name, arguments):
    """Call an LLVM intrinsic on vectors."""
    kind = arguments[0].type
    bits = "f64" if isinstance(kind.element, ir.DoubleType) else "f32"
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind] * len(arguments)),
        f"llvm.{name}.v{kind.count}{bits}",
    )
    return builder.call(function, arguments)


def _all(kind, value):
    """Return a constant vector whose lanes are all equal."""
    return ir.Constant(kind, [value] * kind.count)


def _spread(builder, value, kind):
    """Return a vector whose lanes are all a value known only at run time."""
    index = ir.IntType(32)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(index, 0))
    lanes = _all(ir.VectorType(index, kind.count), 0)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), lanes)


def _transposed(builder, rows):
    """Transpose as many vectors as each has lanes, in registers, by blocks of …, 4, 2 and 1."""
    count = len(rows)
    kind, half = ir.VectorType(ir.IntType(32), count), count // 2
    while half:
        low = [p if p // half % 2 == 0 else p - half + count for p in range(count)]
        high = [p + half if p // half % 2 == 0 else p + count for p in range(count)]
        masks = ir.Constant(kind, low), ir.Constant(kind, high)
        for p in range(count):
            if p // half % 2 == 0:
                pair = rows[p], rows[p + half]
                rows[p], rows[p + half] = (builder.shuffle_vector(*pair, m) for m in masks)
        half //= 2
    return rows


# Memory


@intrinsic
def width_of(context, a):
    """Return how many numbers of an array a SIMD register holds."""

    def build(context, builder, signature, arguments):
        return context.get_constant(types.intp, width(a.dtype.name))

    return types.intp(a), build


def _loader(lanes_of):
    @intrinsic
    def load(context, a, at):
        """Return the vector that begins at a[at]."""
        lanes = lanes_of(a.dtype)

        def build(context, builder, signature, arguments):
            return _loaded(builder, _pointer(context, builder, a, *arguments, lanes), a)

        return Vector(a.dtype, lanes)(a, types.intp), build

    return load


load = _loader(lambda dtype: width(dtype.name))
"""load(a, at): the vector of a register's width that begins at a[at]."""

load8 = _loader(lambda dtype: EIGHT)
"""load8(a, at): a[at : at + 8]."""


@intrinsic
def store(context, a, at, value):
    """Write a vector to a[at] and the entries that follow."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, *arguments[:2], value.lanes)
        _stored(builder, arguments[2], pointer, a)

    return types.void(a, types.intp, value), build


@intrinsic(prefer_literal=True)
def clear(context, a, at, past_cache):
    """Write a register's width of zeros from a[at]; see `transpose` for `past_cache`."""
    count, past = width(a.dtype.name), past_cache.literal_value

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, *arguments[:2], count)
        zeros = _all(ir.VectorType(context.get_data_type(a.dtype), count), 0.0)
        _stored(builder, zeros, pointer, a, past)

    return types.void(a, types.intp, past_cache), build


@intrinsic
def touch(context, a, at):
    """Prefetch the cache line of a[at]; an address outside the array does no harm."""

    def build(context, builder, signature, arguments):
        byte, number = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        place = builder.bitcast(_pointer(context, builder, a, *arguments, 1), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # for reading, into the second-level cache, data
        builder.call(prefetch, [place, number(0), number(2), number(1)])

    return types.void(a, types.intp), build


@intrinsic(prefer_literal=True)
def transpose(context, source, at, apart, target, to, step, past_cache):
    """Let target[to + p step + m] <- source[at + m apart + p] for all m and p of a register.

    If `past_cache` is 1, the target is written to memory without passing through the cache; its
    rows must then be aligned to registers.
    """
    count, past = width(source.dtype.name), past_cache.literal_value

    def build(context, builder, signature, arguments):
        x, at, apart, y, to, step, _ = arguments
        rows = []
        for _ in range(count):
            rows.append(_loaded(builder, _pointer(context, builder, source, x, at, count), source))
            at = builder.add(at, apart)
        for row in _transposed(builder, rows):
            _stored(builder, row, _pointer(context, builder, target, y, to, count), target, past)
            to = builder.add(to, step)

    integers = (types.intp, types.intp)
    return types.void(source, *integers, target, *integers, past_cache), build


# Arithmetic


def _arithmetic(operation, name):
    """Define an operator of two vectors; LLVM may fuse a product with a sum or a difference."""
    flags = () if name == "fdiv" else ("contract",)

    @intrinsic
    def compute(context, a, b):
        def build(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments, flags=flags)

        return a(a, a), build

    @overload(operation)
    def vectors(a, b):
        if isinstance(a, Vector) and a == b:
            return lambda a, b: compute(a, b)
        return None

    return compute


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.truediv, "fdiv")
times = _arithmetic(operator.mul, "fmul")
"""times(a, b): a b."""


@intrinsic
def minus(context, c, a, b):
    """Return c - a b, rounded once if the CPU has a fused multiply-add."""

    def build(context, builder, signature, arguments):
        c, a, b = arguments
        if not FUSED:
            return builder.fsub(c, builder.fmul(a, b))
        return _llvm(builder, "fma", [builder.fneg(a), b, c])

    return c(c, c, c), build


@intrinsic
def root(context, a):
    """Return √a; NaN where a is below 0."""

    def build(context, builder, signature, arguments):
        return _llvm(builder, "sqrt", arguments)

    return a(a), build


@intrinsic
def reciprocal(context, a):
    """Return 1/a."""

    def build(context, builder, signature, arguments):
        return builder.fdiv(_all(arguments[0].type, 1.0), arguments[0])

    return a(a), build


@intrinsic
def proper(context, a, at):
    """Return whether a register's width of numbers from a[at] are positive and finite."""
    count = width(a.dtype.name)

    def build(context, builder, signature, arguments):
        x = _loaded(builder, _pointer(context, builder, a, *arguments, count), a)
        above = builder.fcmp_ordered(">", x, _all(x.type, 0.0))
        below = builder.fcmp_ordered("<", x, _all(x.type, float("inf")))
        mask = builder.bitcast(builder.and_(above, below), ir.IntType(count))
        return builder.icmp_unsigned("==", mask, ir.IntType(count)(2**count - 1))

    return types.boolean(a, types.intp), build


@intrinsic
def spread(context, x):
    """Return eight copies of the number x."""

    def build(context, builder, signature, arguments):
        return _spread(builder, arguments[0], _FP64)

    return NUMBERS(types.float64), build


@intrinsic
def where_less(context, a, b, x, y):
    """Return x where a < b, and y elsewhere."""

    def build(context, builder, signature, arguments):
        a, b, x, y = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), x, y)

    return x(a, a, x, x), build


@intrinsic
def total(context, a):
    """Return the sum of the lanes, always added in the same order."""

    def build(context, builder, signature, arguments):
        lanes = range(a.lanes)
        parts = [builder.extract_element(arguments[0], ir.IntType(32)(k)) for k in lanes]
        while len(parts) > 1:
            parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return a.scalar(a), build


# Piecewise polynomials of a number s ≥ 0, eight numbers at a time. Each octave of s is cut into
# 2^split equal intervals: the exponent of s and its leading mantissa bits are the interval's
# number. A row of the table holds the eight coefficients of one interval; the first row is for
# s = 0 and below the table, the last for s above it.


@intrinsic(prefer_literal=True)
def interval(context, s, split, base, top):
    """Return the rows of a table whose first interval is `base` and whose last row is `top`."""
    shift = 52 - split.literal_value

    def build(context, builder, signature, arguments):
        s, _, base, top = arguments
        row = builder.ashr(builder.bitcast(s, _INT64), _all(_INT64, shift))
        row = builder.sub(row, _spread(builder, builder.sub(base, base.type(1)), _INT64))
        zero, last = _all(_INT64, 0), _spread(builder, top, _INT64)
        row = builder.select(builder.icmp_signed(">", row, zero), row, zero)
        return builder.select(builder.icmp_signed("<", row, last), row, last)

    return INDICES(s, split, types.intp, types.intp), build


@intrinsic(prefer_literal=True)
def fraction(context, s, split):
    """Return the places of the numbers s within their intervals, t in [-1, 1)."""
    split_bits = split.literal_value

    def build(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], _INT64)
        # the bits below the interval's, as the mantissa of a number in [2, 4), less 3
        bits = builder.and_(bits, _all(_INT64, (1 << (52 - split_bits)) - 1))
        bits = builder.or_(builder.shl(bits, _all(_INT64, split_bits)), _all(_INT64, 1024 << 52))
        return builder.fsub(builder.bitcast(bits, _FP64), _all(_FP64, 3.0))

    return NUMBERS(s, split), build


@intrinsic
def missed(context, s, row):
    """Return a number that is not 0 if some s > 0 lies below the table."""

    def build(context, builder, signature, arguments):
        s, row = arguments
        below = builder.icmp_signed("==", row, _all(_INT64, 0))
        some = builder.icmp_signed(">", builder.bitcast(s, _INT64), _all(_INT64, 0))
        flags = builder.bitcast(builder.and_(below, some), ir.IntType(EIGHT))
        return builder.zext(flags, ir.IntType(64))

    return types.intp(s, row), build


@intrinsic
def polynomial(context, table, start, row, t):
    """Return Σ_k table[start + 8 row + k] tᵏ, each lane by its own row."""

    def build(context, builder, signature, arguments):
        array, start, row, t = arguments
        rows = []
        for lane in range(EIGHT):
            k = builder.extract_element(row, ir.IntType(32)(lane))
            at = builder.add(start, builder.shl(k, k.type(EIGHT.bit_length() - 1)))
            rows.append(
                _loaded(builder, _pointer(context, builder, table, array, at, EIGHT), table)
            )
        *coefficients, value = _transposed(builder, rows)
        for coefficient in reversed(coefficients):
            value = _llvm(builder, "fmuladd", [value, t, coefficient])
        return value

    return NUMBERS(table, types.intp, row, t), build


# Packing. Canonical: (batch, n, n), each matrix contiguous. Interleaved: (n, n, lanes), entry
# (i, j) of all matrices of a chunk side by side. As many matrices as a register has lanes move
# together, in square blocks that are transposed in registers. Arrays are flat and contiguous.


WHOLE = 16
"""Largest order for which moving the upper triangle too is faster than leaving it out."""


@njit(nogil=True, cache=True)
def pack(a, size, member, members, chunk, lanes):
    """Chunk <- all entries of members, `size` each; lanes without a member keep their values."""
    width, ahead = width_of(a), lanes * size
    for first in range(0, members, width):
        at = (member + first) * size
        if first + width <= members and size >= width:
            for t in range(0, size, width):
                t = min(t, size - width)
                if t // width % 2 == 0:
                    prefetch(a, at + ahead + t, size)
                transpose(a, at + t, size, chunk, t * lanes + first, lanes, 0)
        else:
            for m in range(first, min(first + width, members)):
                for t in range(size):
                    chunk[t * lanes + m] = a[(member + m) * size + t]


@njit(nogil=True, cache=True)
def unpack(chunk, lanes, a, size, member, members, source):
    """All entries of members, `size` each <- chunk; `source`, like a, is what is packed next."""
    width, ahead = width_of(a), lanes * size
    for first in range(0, members, width):
        at = (member + first) * size
        if first + width <= members and size >= width:
            for t in range(0, size, width):
                t = min(t, size - width)
                if t // width % 2:
                    prefetch(source, at + ahead + t, size)
                transpose(chunk, t * lanes + first, lanes, a, at + t, size, 0)
        else:
            for m in range(first, min(first + width, members)):
                for t in range(size):
                    a[(member + m) * size + t] = chunk[t * lanes + m]


@njit(nogil=True, cache=True)
def prefetch(a, at, apart):
    """Prefetch what `transpose` reads from the next chunk.

    The hardware prefetcher follows one stream of addresses, not one for each lane. It can wait for
    few cache lines at a time: `pack` requests every other block, `unpack` the rest.
    """
    for m in range(width_of(a)):
        touch(a, at + m * apart)


@njit(nogil=True, cache=True)
def pack_lower(a, n, member, members, chunk, lanes):
    """Lower triangles of a chunk <- those of members; lanes without a member hold the identity.

    The chunk is zero above the diagonal up to order WHOLE, or if lanes are left over; otherwise
    nothing is written there.
    """
    width = width_of(a)
    if members < lanes:
        chunk[:] = 0
        for i in range(n):
            chunk[(i * n + i) * lanes : (i * n + i + 1) * lanes] = 1
    if n <= WHOLE or members < lanes:
        pack(a, n * n, member, members, chunk, lanes)
        clear_upper(chunk, n, lanes)
        return
    block, ahead = np.empty(width * width, a.dtype), lanes * n * n
    for first in range(0, lanes, width):
        for i in range(n):
            at = (member + first) * n * n + i * n
            for j in range(0, i + 1, width):
                j = min(j, n - width)
                to = (i * n + j) * lanes + first
                prefetch(a, at + ahead + j, n * n)
                if j + width <= i + 1:
                    transpose(a, at + j, n * n, chunk, to, lanes, 0)
                    continue
                transpose(a, at + j, n * n, block, 0, width, 0)
                for p in range(i + 1 - j):
                    store(chunk, to + p * lanes, load(block, p * width))


def _unpacker(past_cache):
    @njit(nogil=True, cache=True)
    def unpack_triangles(chunk, n, lanes, a, member):
        width = width_of(a)
        for first in range(0, lanes, width):
            for i in range(n):
                at = (member + first) * n * n + i * n
                for j in range(0, i + 1, width):
                    j = min(j, n - width)
                    source = (i * n + j) * lanes + first
                    transpose(chunk, source, lanes, a, at + j, n * n, past_cache)
                # a register of zeros may reach into the next row, which is written afterwards
                for m in range(width):
                    for j in range((i // width + 1) * width, n, width):
                        clear(a, at + m * n * n + j, past_cache)

    return unpack_triangles


_unpack_triangles, _unpack_past_cache = _unpacker(0), _unpacker(1)


@njit(nogil=True, cache=True)
def unpack_lower(chunk, n, lanes, a, member, members, source, past_cache):
    """Members <- lower triangular matrices of a chunk that is zero above the diagonal.

    `source`, like a, is what is packed next. With `past_cache`, rows of `a` must be aligned and
    consist of whole registers.
    """
    if past_cache and members == lanes:
        _unpack_past_cache(chunk, n, lanes, a, member)
        return
    if n <= WHOLE or members < lanes:
        unpack(chunk, lanes, a, n * n, member, members, source)
        return
    _unpack_triangles(chunk, n, lanes, a, member)


@njit(nogil=True, cache=True)
def clear_upper(chunk, n, lanes):
    """Chunk <- 0 above the diagonal."""
    width = width_of(chunk)
    for i in range(n):
        for t in range((i * n + i + 1) * lanes, (i + 1) * n * lanes, width):
            clear(chunk, t, 0)


@njit(nogil=True, cache=True)
def check(chunks, start, n, lanes, members, info, member):
    """Write LAPACK's info of the factors in a chunk; return whether a factorization failed.

    The diagonal entry is NaN, infinite or 0 where a pivot is not positive or follows a NaN.
    """
    good = True
    for first in range(start, start + lanes, width_of(chunks)):
        for i in range(n):
            good &= proper(chunks, (i * n + i) * lanes + first)
    if good:
        return False
    for m in range(members):
        for i in range(n):
            entry = chunks[start + (i * n + i) * lanes + m]
            if not (entry > 0 and entry < np.inf):
                info[member + m] = i + 1
                break
    return True


@njit(nogil=True, cache=True)
def spoil(chunk, n, lanes, a, member, info):
    """Failed factors <- NaN; info <- -row if that row of the matrix has a NaN or an infinity."""
    for m in range(len(info)):
        if not info[m]:
            continue
        for i in range(n):
            for j in range(i + 1):
                chunk[(i * n + j) * lanes + m] = np.nan
                if info[m] > 0 and not np.isfinite(a[((member + m) * n + i) * n + j]):
                    info[m] = -i - 1
