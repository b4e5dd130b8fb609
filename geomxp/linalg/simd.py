"""SIMD for numba: vectors of numbers, one lane for each of several matrices.

A `Vector` is used like a float. Compiled code holds a tile of vectors in variables, which LLVM
keeps in registers. Batched factorizations use vectors as wide as a register (`load`); Vecchia's
blocks use eight FP64 numbers (`load8`) on every CPU, so that sums over lanes have the same bits
everywhere; LLVM spreads these over several registers where one is narrower.

`at` counts entries of a flat, contiguous array. Nothing is checked.
"""

import inspect
import operator
import platform
from functools import wraps

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

CPU_FEATURES = binding.get_host_cpu_features()
ON_ARM = platform.machine() in ("aarch64", "arm64")
HAS_FMA = bool(CPU_FEATURES.get("fma")) or ON_ARM
"""Whether the CPU has a fused multiply-add, which rounds once instead of twice."""

REGISTER_BYTES = 64 if CPU_FEATURES.get("avx512f") else 32 if CPU_FEATURES.get("avx2") else 16
"""Bytes of a SIMD register of this CPU."""

VECTOR_LANES = 8
"""Lanes of the vectors of `load8`, and coefficients in a row of a table for `polynomial`."""


def width(dtype):
    """Return how many numbers a SIMD register holds."""
    return REGISTER_BYTES // np.dtype(dtype).itemsize


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


VECTOR_OF_FP64, VECTOR_OF_INT64 = (
    Vector(types.float64, VECTOR_LANES),
    Vector(types.int64, VECTOR_LANES),
)
_FP64, _INT64 = (ir.VectorType(kind, VECTOR_LANES) for kind in (ir.DoubleType(), ir.IntType(64)))
_INT32 = ir.IntType(32)


class _Flat:
    """A flat array for which LLVM code is built: loads and stores vectors."""

    def __init__(self, context, builder, kind, array):
        self._builder, self._align = builder, kind.dtype.bitwidth // 8
        self._data = context.make_array(kind)(context, builder, array).data
        self._scalar, self.width = context.get_data_type(kind.dtype), width(kind.dtype.name)

    def vector(self, lanes=None):
        """Return LLVM's type of a vector; of a register's width by default."""
        return ir.VectorType(self._scalar, lanes or self.width)

    def pointer(self, at, kind):
        return self._builder.bitcast(self._builder.gep(self._data, [at]), kind.as_pointer())

    def load(self, at, lanes=None):
        value = self._builder.load(self.pointer(at, self.vector(lanes)))
        value.align = self._align
        return value

    def store(self, at, value, past_cache=False):
        instruction = self._builder.store(value, self.pointer(at, value.type))
        instruction.align = REGISTER_BYTES if past_cache else self._align
        if past_cache:
            one = self._builder.module.add_metadata([_INT32(1)])
            instruction.set_metadata("nontemporal", one)


def by_llvm(result, literals=()):
    """Define a function of compiled code by the builder of its LLVM code.

    `result` is numba's type of its result, or a function of the arguments' types. The code gets
    arrays as `_Flat`, arguments in `literals` as Python's numbers, and others as LLVM values;
    signed integers are indices.
    """

    def define(build):
        names = tuple(inspect.signature(build).parameters)[1:]

        @wraps(build)
        def typed(context, *given):
            kinds = [
                kind if name in literals or not _is_index(kind) else types.intp
                for name, kind in zip(names, given, strict=True)
            ]

            def code(context, builder, signature, values):
                operands = []
                for name, kind, value in zip(names, kinds, values, strict=True):
                    if name in literals:
                        value = kind.literal_value
                    elif isinstance(kind, types.Array):
                        value = _Flat(context, builder, kind, value)
                    operands.append(value)
                return build(builder, *operands)

            kind = result if isinstance(result, types.Type) else result(*kinds)
            return kind(*kinds), code

        return intrinsic(prefer_literal=bool(literals))(typed)

    return define


def _is_index(kind):
    return isinstance(kind, types.Integer) and kind.signed


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


def fused(builder, a, b, c):
    """Return a b + c, rounded once."""
    return _llvm(builder, "fma", [a, b, c])


def _all(kind, value):
    """Return a constant vector whose lanes are all equal."""
    return ir.Constant(kind, [value] * kind.count)


def spread_over(builder, value, kind):
    """Return a vector whose lanes are all a value known only at run time."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT32(0))
    lanes = _all(ir.VectorType(_INT32, kind.count), 0)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), lanes)


def _transposed(builder, rows):
    """Transpose as many vectors as each has lanes, in registers, by blocks of …, 4, 2 and 1."""
    count = len(rows)
    kind, half = ir.VectorType(_INT32, count), count // 2
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


@by_llvm(types.intp)
def width_of(builder, a):
    """Return how many numbers of an array a SIMD register holds."""
    return ir.IntType(types.intp.bitwidth)(a.width)


@by_llvm(lambda a, at: Vector(a.dtype, width(a.dtype.name)))
def load(builder, a, at):
    """Return the vector of a register's width that begins at a[at]."""
    return a.load(at)


@by_llvm(VECTOR_OF_FP64)
def load8(builder, a, at):
    """Return a[at : at + 8]."""
    return a.load(at, VECTOR_LANES)


@by_llvm(types.void)
def store(builder, a, at, value):
    """Write a vector to a[at] and the entries that follow."""
    a.store(at, value)


@by_llvm(types.void, literals=("past_cache",))
def clear(builder, a, at, past_cache):
    """Write a register's width of zeros from a[at]; see `transpose` for `past_cache`."""
    a.store(at, _all(a.vector(), 0.0), past_cache)


@by_llvm(types.void)
def touch(builder, a, at):
    """Prefetch the cache line of a[at]; an address outside the array does no harm."""
    byte = ir.IntType(8)
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), _INT32, _INT32, _INT32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # for reading, into the second-level cache, data
    builder.call(prefetch, [a.pointer(at, byte), _INT32(0), _INT32(2), _INT32(1)])


@by_llvm(types.void, literals=("past_cache",))
def transpose(builder, source, at, apart, target, to, step, past_cache):
    """Let target[to + p step + m] <- source[at + m apart + p] for all m and p of a register.

    If `past_cache` is 1, the target is written to memory without passing through the cache; its
    rows must then be aligned to registers.
    """
    rows = []
    for _ in range(source.width):
        rows.append(source.load(at))
        at = builder.add(at, apart)
    for row in _transposed(builder, rows):
        target.store(to, row, past_cache)
        to = builder.add(to, step)


# Arithmetic


def _elementwise(vector, *others):
    return vector


def _arithmetic(operation, name):
    """Define an operator of two vectors; LLVM may fuse a product with a sum or a difference."""
    flags = () if name == "fdiv" else ("contract",)

    @by_llvm(_elementwise)
    def compute(builder, a, b):
        return getattr(builder, name)(a, b, flags=flags)

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


@by_llvm(_elementwise)
def minus(builder, c, a, b):
    """Return c - a b, rounded once if the CPU has a fused multiply-add."""
    if not HAS_FMA:
        return builder.fsub(c, builder.fmul(a, b))
    return fused(builder, builder.fneg(a), b, c)


@by_llvm(_elementwise)
def root(builder, a):
    """Return √a; NaN where a is below 0."""
    return _llvm(builder, "sqrt", [a])


@by_llvm(_elementwise)
def reciprocal(builder, a):
    """Return 1/a."""
    return builder.fdiv(_all(a.type, 1.0), a)


@by_llvm(_elementwise)
def where_less(builder, a, b, x, y):
    """Return x where a < b, and y elsewhere."""
    return builder.select(builder.fcmp_ordered("<", a, b), x, y)


@by_llvm(types.boolean)
def proper(builder, a, at):
    """Return whether a register's width of numbers from a[at] are positive and finite."""
    x = a.load(at)
    above = builder.fcmp_ordered(">", x, _all(x.type, 0.0))
    below = builder.fcmp_ordered("<", x, _all(x.type, float("inf")))
    bits = ir.IntType(a.width)
    mask = builder.bitcast(builder.and_(above, below), bits)
    return builder.icmp_unsigned("==", mask, bits(2**a.width - 1))


@by_llvm(VECTOR_OF_FP64)
def spread(builder, x):
    """Return eight copies of the number x."""
    return spread_over(builder, x, _FP64)


@by_llvm(lambda a: a.scalar)
def total(builder, a):
    """Return the sum of the lanes, always added in the same order."""
    parts = [builder.extract_element(a, _INT32(k)) for k in range(a.type.count)]
    while len(parts) > 1:
        parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


# Piecewise polynomials of a number s ≥ 0, eight numbers at a time. Each octave of s is cut into
# 2^split equal intervals: the exponent of s and its leading mantissa bits are the interval's
# number. A row of the table holds the eight coefficients of one interval; the first row is for
# s = 0 and below the table, the last for s above it.


@by_llvm(VECTOR_OF_INT64, literals=("split",))
def interval(builder, s, split, base, top):
    """Return the rows of a table whose first interval is `base` and whose last row is `top`."""
    row = builder.ashr(builder.bitcast(s, _INT64), _all(_INT64, 52 - split))
    row = builder.sub(row, spread_over(builder, builder.sub(base, base.type(1)), _INT64))
    zero, last = _all(_INT64, 0), spread_over(builder, top, _INT64)
    row = builder.select(builder.icmp_signed(">", row, zero), row, zero)
    return builder.select(builder.icmp_signed("<", row, last), row, last)


@by_llvm(VECTOR_OF_FP64, literals=("split",))
def fraction(builder, s, split):
    """Return the positions of the numbers s within their intervals, t in [-1, 1)."""
    bits = builder.bitcast(s, _INT64)
    # the bits below the interval's, as the mantissa of a number in [2, 4), less 3
    bits = builder.and_(bits, _all(_INT64, (1 << (52 - split)) - 1))
    bits = builder.or_(builder.shl(bits, _all(_INT64, split)), _all(_INT64, 1024 << 52))
    return builder.fsub(builder.bitcast(bits, _FP64), _all(_FP64, 3.0))


@by_llvm(types.intp)
def missed(builder, s, row):
    """Return a number that is not 0 if some s > 0 lies below the table."""
    below = builder.icmp_signed("==", row, _all(_INT64, 0))
    some = builder.icmp_signed(">", builder.bitcast(s, _INT64), _all(_INT64, 0))
    flags = builder.bitcast(builder.and_(below, some), ir.IntType(VECTOR_LANES))
    return builder.zext(flags, ir.IntType(64))


@by_llvm(VECTOR_OF_FP64)
def polynomial(builder, table, start, row, t):
    """Return Σ_k table[start + 8 row + k] tᵏ, each lane by its own row."""
    rows = []
    for lane in range(VECTOR_LANES):
        k = builder.extract_element(row, _INT32(lane))
        at = builder.add(start, builder.shl(k, k.type(VECTOR_LANES.bit_length() - 1)))
        rows.append(table.load(at, VECTOR_LANES))
    *coefficients, value = _transposed(builder, rows)
    for coefficient in reversed(coefficients):
        value = _llvm(builder, "fmuladd", [value, t, coefficient])
    return value


@by_llvm(VECTOR_OF_INT64)
def pairs_of(builder, numbers, i, j, count):
    """Return count·numbers[i + k] + numbers[j + k] for each lane k."""
    first = builder.mul(numbers.load(i, VECTOR_LANES), spread_over(builder, count, _INT64))
    return builder.add(first, numbers.load(j, VECTOR_LANES))


@by_llvm(VECTOR_OF_INT64)
def moved(builder, row, x):
    """Return row + x for numbers x that are whole."""
    return builder.add(row, builder.fptosi(x, _INT64))


@by_llvm(types.void)
def fetch(builder, table, row, first, count, out):
    """Write the eight numbers of row `first + count·row` of a table for each lane to out.

    Number k of lane l goes to out[8 k + l].
    """
    rows = []
    for lane in range(VECTOR_LANES):
        k = builder.extract_element(row, _INT32(lane))
        at = builder.add(first, builder.mul(k, count))
        at = builder.shl(at, at.type(VECTOR_LANES.bit_length() - 1))
        rows.append(table.load(at, VECTOR_LANES))
    for k, column in enumerate(_transposed(builder, rows)):
        out.store(first.type(VECTOR_LANES * k), column)


# Packing. Canonical: (batch, n, n), each matrix contiguous. Interleaved: (n, n, lanes), entry
# (i, j) of all matrices of a chunk side by side. As many matrices as a register has lanes move
# together, in square blocks that are transposed in registers. Arrays are flat and contiguous.


WHOLE_SQUARE_ORDER = 16
"""Largest order for which moving the upper triangle too is faster than leaving it out."""


@njit(nogil=True, cache=True)
def two_ahead(m, lanes, width, size):
    """Return how far the register after the next one begins from that of lane m, over chunks."""
    later = m + 2 * width
    return later // lanes * size + later % lanes - m


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

    The chunk is zero above the diagonal up to order WHOLE_SQUARE_ORDER, or if lanes are left over;
    otherwise nothing is written there.
    """
    width = width_of(a)
    if members < lanes:
        chunk[:] = 0
        for i in range(n):
            chunk[(i * n + i) * lanes : (i * n + i + 1) * lanes] = 1
    if n <= WHOLE_SQUARE_ORDER or members < lanes:
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
    if n <= WHOLE_SQUARE_ORDER or members < lanes:
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
def singular(lower, first, n, lanes):
    """Return the first lane of a register whose diagonal has a 0, a NaN or an infinity, or -1."""
    good = True
    for i in range(n):
        good &= proper(lower, (i * n + i) * lanes + first)
    for m in range(0 if good else width_of(lower)):
        for i in range(n):
            entry = abs(lower[(i * n + i) * lanes + first + m])
            if not (entry > 0 and entry < np.inf):
                return m
    return -1


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
