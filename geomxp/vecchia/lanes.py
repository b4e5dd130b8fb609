"""Eight FP64 numbers of eight places as one value, for numba: kept in SIMD registers by LLVM.

A `Lanes` is written like a float: `a * b + c`. `at` counts entries of a flat, contiguous array;
nothing is checked. Where a register holds fewer than eight numbers, LLVM uses several.
"""

import operator

from ..covariance.table import DEGREE, SPLIT
from ..execution.jit import cgutils, intrinsic, ir, models, overload, register_model, types

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
