"""Eight FP64 numbers of eight places as one value, for numba: kept in SIMD registers by LLVM.

A `Lanes` is written like a float: `a * b + c`. `at` counts entries of a flat, contiguous array;
nothing is checked. Where a register holds fewer than eight numbers, LLVM uses several.
"""

import operator

from ..covariance.table import DEGREE, SPLIT
from ..runtime.devices import cgutils, intrinsic, ir, models, njit, overload, register_model, types

WIDTH = 8
"""Numbers side by side; a row of a `CorrelationTable` has as many coefficients."""

_FP64, _INT, _BIT = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
_VECTOR, _INTEGERS = ir.VectorType(_FP64, WIDTH), ir.VectorType(_INT, WIDTH)
_CONTRACT = ("contract",)
_SHIFT = 52 - SPLIT


class Lanes(types.Type):
    """Numba's type of eight FP64 numbers."""

    def __init__(self):
        super().__init__(name="Lanes")


class Rows(types.Type):
    """Numba's type of eight numbers of rows of a table."""

    def __init__(self):
        super().__init__(name="Rows")


LANES, ROWS = Lanes(), Rows()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _VECTOR)


@register_model(Rows)
class _RowsModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _INTEGERS)


def _constant(kind, value):
    return ir.Constant(kind, [value] * WIDTH)


def _pointer(context, builder, kind, array, at):
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _VECTOR.as_pointer())


def _call(builder, name, arguments, kind=_VECTOR, suffix="v8f64"):
    types_ = ir.FunctionType(kind, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, types_, f"llvm.{name}.{suffix}")
    return builder.call(function, arguments)


def _spread(builder, value, kind=_VECTOR):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0))
    nothing = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), nothing)


@intrinsic
def load(context, a, at):
    """Return a[at : at + 8]."""

    def build(context, builder, signature, arguments):
        value = builder.load(_pointer(context, builder, a, *arguments))
        value.align = 8
        return value

    return LANES(a, types.intp), build


@intrinsic
def store(context, a, at, value):
    """a[at : at + 8] <- value."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, *arguments[:2])
        builder.store(arguments[2], pointer).align = 8

    return types.void(a, types.intp, LANES), build


@intrinsic
def spread(context, x):
    """Return eight times the number x."""

    def build(context, builder, signature, arguments):
        return _spread(builder, arguments[0])

    return LANES(types.float64), build


@intrinsic
def total(context, a):
    """Return the sum of the eight numbers, always in one order."""

    def build(context, builder, signature, arguments):
        parts = [builder.extract_element(arguments[0], ir.Constant(_INT, k)) for k in range(WIDTH)]
        while len(parts) > 1:
            parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return types.float64(LANES), build


@intrinsic
def root(context, a):
    """Return √a; NaN for a below 0."""

    def build(context, builder, signature, arguments):
        return _call(builder, "sqrt", arguments)

    return LANES(LANES), build


def _arithmetic(name):
    @intrinsic
    def operation(context, a, b):
        def build(context, builder, signature, arguments):
            flags = () if name == "fdiv" else _CONTRACT
            return getattr(builder, name)(*arguments, flags=flags)

        return LANES(LANES, LANES), build

    return operation


_add, _subtract, _multiply, _divide = map(_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))


@overload(operator.add)
def _plus(a, b):
    if a is LANES and b is LANES:
        return lambda a, b: _add(a, b)
    return None


@overload(operator.sub)
def _minus(a, b):
    if a is LANES and b is LANES:
        return lambda a, b: _subtract(a, b)
    return None


@overload(operator.mul)
def _times(a, b):
    if a is LANES and b is LANES:
        return lambda a, b: _multiply(a, b)
    return None


@overload(operator.truediv)
def _over(a, b):
    if a is LANES and b is LANES:
        return lambda a, b: _divide(a, b)
    return None


@intrinsic
def interval(context, s, base, top):
    """Return the rows of a `CorrelationTable` that hold s ≥ 0; 0 where s is 0 or too small."""

    def build(context, builder, signature, arguments):
        s, base, top = arguments
        bits = builder.bitcast(s, _INTEGERS)
        row = builder.ashr(bits, _constant(_INTEGERS, _SHIFT))
        row = builder.sub(row, _spread(builder, builder.sub(base, ir.Constant(_INT, 1)), _INTEGERS))
        zero, last = _constant(_INTEGERS, 0), _spread(builder, top, _INTEGERS)
        row = builder.select(builder.icmp_signed(">", row, zero), row, zero)
        return builder.select(builder.icmp_signed("<", row, last), row, last)

    return ROWS(LANES, types.intp, types.intp), build


@intrinsic
def fraction(context, s):
    """Return where in their intervals the numbers s are, t in [-1, 1)."""

    def build(context, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], _INTEGERS)
        # the bits below the interval's, as those of a number in [2, 4), less 3
        bits = builder.and_(bits, _constant(_INTEGERS, (1 << _SHIFT) - 1))
        bits = builder.shl(bits, _constant(_INTEGERS, SPLIT))
        bits = builder.or_(bits, _constant(_INTEGERS, 1024 << 52))
        return builder.fsub(builder.bitcast(bits, _VECTOR), _constant(_VECTOR, 3.0))

    return LANES(LANES), build


@intrinsic
def missed(context, s, row):
    """Return how many of the numbers s are not 0 and yet below the table."""

    def build(context, builder, signature, arguments):
        s, row = arguments
        below = builder.icmp_signed("==", row, _constant(_INTEGERS, 0))
        some = builder.icmp_signed(">", builder.bitcast(s, _INTEGERS), _constant(_INTEGERS, 0))
        flags = builder.bitcast(builder.and_(below, some), ir.IntType(WIDTH))
        return builder.zext(flags, _INT)

    return types.intp(LANES, ROWS), build


def _exchange(builder, rows):
    """Transpose eight rows of eight numbers in registers, by blocks of 4, 2 and 1."""
    for half in (4, 2, 1):
        low = [p if p // half % 2 == 0 else p - half + WIDTH for p in range(WIDTH)]
        high = [p + half if p // half % 2 == 0 else p + WIDTH for p in range(WIDTH)]
        kind = ir.VectorType(ir.IntType(32), WIDTH)
        masks = [ir.Constant(kind, mask) for mask in (low, high)]
        for p in range(WIDTH):
            if p // half % 2 == 0:
                pair = rows[p], rows[p + half]
                rows[p], rows[p + half] = (builder.shuffle_vector(*pair, m) for m in masks)
    return rows


@intrinsic
def polynomial(context, table, row, t):
    """Return Σ_k table[row, k] tᵏ: each lane by its own row, read as one register."""

    def build(context, builder, signature, arguments):
        array, row, t = arguments
        found = []
        for lane in range(WIDTH):
            k = builder.extract_element(row, ir.Constant(_INT, lane))
            at = builder.shl(k, ir.Constant(_INT, WIDTH.bit_length() - 1))
            value = builder.load(_pointer(context, builder, table, array, at))
            value.align = 8
            found.append(value)
        found = _exchange(builder, found)
        value = found[DEGREE]
        for k in range(DEGREE - 1, -1, -1):
            value = _call(builder, "fmuladd", [value, t, found[k]])
        return value

    return LANES(table, ROWS, LANES), build


# Eight small Cholesky factors at once, and substitutions with them, compiled by numba.
#
# Entry (i, j) of the eight lower triangles is the `Lanes` at 8 (i (i + 1)/2 + j) of one flat
# array; entry i of eight vectors is the `Lanes` at 8 i. Orders are multiples of 4, the side of a
# tile that LLVM keeps in registers.


TILE = 4
"""Rows and columns of a tile: 16 sums and 5 factors fit into AVX-512's 32 registers."""


@njit(nogil=True, cache=True)
def _row(i):
    return 4 * i * (i + 1)


@njit(nogil=True, cache=True)
def _four(a, at):
    return load(a, at), load(a, at + 8), load(a, at + 16), load(a, at + 24)


@njit(nogil=True, cache=True)
def _keep(a, at, c):
    store(a, at, c[0])
    store(a, at + 8, c[1])
    store(a, at + 16, c[2])
    store(a, at + 24, c[3])


@njit(nogil=True, cache=True)
def _less(c, x, y):
    """C - x y', one row of a tile."""
    return c[0] - x * y[0], c[1] - x * y[1], c[2] - x * y[2], c[3] - x * y[3]


@njit(nogil=True, cache=True)
def _below(a, i):
    """Return what stands below the diagonal of diagonal tile i: l10, l20, l21, l30, l31, l32."""
    at = 8 * i
    r1, r2, r3 = _row(i + 1) + at, _row(i + 2) + at, _row(i + 3) + at
    return (
        *(load(a, r1), load(a, r2), load(a, r2 + 8)),
        *(load(a, r3), load(a, r3 + 8), load(a, r3 + 16)),
    )


@njit(nogil=True, cache=True)
def _solved(c, lower, inverse):
    """C <- c L^-T for one row c of a tile; the same as L^-1 c of a column."""
    c0 = c[0] * inverse[0]
    c1 = (c[1] - c0 * lower[0]) * inverse[1]
    c2 = (c[2] - c0 * lower[1] - c1 * lower[2]) * inverse[2]
    c3 = (c[3] - c0 * lower[3] - c1 * lower[4] - c2 * lower[5]) * inverse[3]
    return c0, c1, c2, c3


@njit(nogil=True, cache=True)
def factor(a, inverse, order):
    """Overwrite a with its Cholesky factor, row of tiles by row of tiles; 1/l_ii into `inverse`.

    Where a matrix is not positive definite its last pivot, too, is NaN, infinite or 0.
    """
    for i in range(0, order, 4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        for j in range(0, i, 4):
            # A_ij <- (A_ij - Σ_k A_ik A_jk') L_jj^-T
            s0, s1, s2, s3 = _row(j), _row(j + 1), _row(j + 2), _row(j + 3)
            at = 8 * j
            c0, c1 = _four(a, r0 + at), _four(a, r1 + at)
            c2, c3 = _four(a, r2 + at), _four(a, r3 + at)
            for k in range(0, at, 8):
                y = load(a, s0 + k), load(a, s1 + k), load(a, s2 + k), load(a, s3 + k)
                c0 = _less(c0, load(a, r0 + k), y)
                c1 = _less(c1, load(a, r1 + k), y)
                c2 = _less(c2, load(a, r2 + k), y)
                c3 = _less(c3, load(a, r3 + k), y)
            lower, diagonal = _below(a, j), _four(inverse, at)
            _keep(a, r0 + at, _solved(c0, lower, diagonal))
            _keep(a, r1 + at, _solved(c1, lower, diagonal))
            _keep(a, r2 + at, _solved(c2, lower, diagonal))
            _keep(a, r3 + at, _solved(c3, lower, diagonal))
        _factor_diagonal(a, inverse, i)


@njit(nogil=True, cache=True)
def _factor_diagonal(a, inverse, i):
    """A_ii <- chol(A_ii - Σ_k A_ik A_ik')."""
    r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
    at = 8 * i
    one = spread(1.0)
    d0 = load(a, r0 + at)
    l10, d1 = load(a, r1 + at), load(a, r1 + at + 8)
    l20, l21, d2 = load(a, r2 + at), load(a, r2 + at + 8), load(a, r2 + at + 16)
    l30, l31, l32 = load(a, r3 + at), load(a, r3 + at + 8), load(a, r3 + at + 16)
    d3 = load(a, r3 + at + 24)
    for k in range(0, at, 8):
        x0, x1, x2, x3 = load(a, r0 + k), load(a, r1 + k), load(a, r2 + k), load(a, r3 + k)
        d0, d1, d2, d3 = d0 - x0 * x0, d1 - x1 * x1, d2 - x2 * x2, d3 - x3 * x3
        l10, l20, l30 = l10 - x1 * x0, l20 - x2 * x0, l30 - x3 * x0
        l21, l31, l32 = l21 - x2 * x1, l31 - x3 * x1, l32 - x3 * x2
    d0 = root(d0)
    i0 = one / d0
    l10, l20, l30 = l10 * i0, l20 * i0, l30 * i0
    d1 = root(d1 - l10 * l10)
    i1 = one / d1
    l21, l31 = (l21 - l20 * l10) * i1, (l31 - l30 * l10) * i1
    d2 = root(d2 - l20 * l20 - l21 * l21)
    i2 = one / d2
    l32 = (l32 - l30 * l20 - l31 * l21) * i2
    d3 = root(d3 - l30 * l30 - l31 * l31 - l32 * l32)
    i3 = one / d3
    _keep(inverse, at, (i0, i1, i2, i3))
    store(a, r0 + at, d0)
    store(a, r1 + at, l10)
    store(a, r1 + at + 8, d1)
    store(a, r2 + at, l20)
    store(a, r2 + at + 8, l21)
    store(a, r2 + at + 16, d2)
    _keep(a, r3 + at, (l30, l31, l32, d3))


@njit(nogil=True, cache=True)
def forward(a, inverse, y, start, order):
    """Y <- L^-1 y, for the vectors that begin at an entry of an array."""
    for i in range(0, order, 4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        c = _four(y, start + 8 * i)
        for k in range(0, 8 * i, 8):
            x = load(y, start + k)
            c = _less(c, x, (load(a, r0 + k), load(a, r1 + k), load(a, r2 + k), load(a, r3 + k)))
        _keep(y, start + 8 * i, _solved(c, _below(a, i), _four(inverse, 8 * i)))


@njit(nogil=True, cache=True)
def backward(a, inverse, y, start, order):
    """Y <- L^-T y, for the vectors that begin at an entry of an array."""
    for i in range(order - 4, -1, -4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        lower, diagonal, c = _below(a, i), _four(inverse, 8 * i), _four(y, start + 8 * i)
        c3 = c[3] * diagonal[3]
        c2 = (c[2] - lower[5] * c3) * diagonal[2]
        c1 = (c[1] - lower[4] * c3 - lower[2] * c2) * diagonal[1]
        c0 = (c[0] - lower[3] * c3 - lower[1] * c2 - lower[0] * c1) * diagonal[0]
        _keep(y, start + 8 * i, (c0, c1, c2, c3))
        for k in range(0, 8 * i, 8):
            x = load(y, start + k) - c0 * load(a, r0 + k) - c1 * load(a, r1 + k)
            x = x - c2 * load(a, r2 + k) - c3 * load(a, r3 + k)
            store(y, start + k, x)
