"""Numbers of several matrices side by side, for numba: one value per lane of a SIMD register.

A `Vector` is a value like a float: generated code holds a tile of them in variables, and LLVM keeps
these in registers. `at` counts entries of a flat, contiguous array; nothing is checked.
"""

import platform

import numpy as np

from ..runtime.devices import binding, cgutils, intrinsic, ir, models, register_model, types

FEATURES = binding.get_host_cpu_features()
FUSED = bool(FEATURES.get("fma")) or platform.machine() in ("aarch64", "arm64")
"""Whether the CPU multiplies and adds with one rounding; else there are two."""

REGISTER = 64 if FEATURES.get("avx512f") else 32 if FEATURES.get("avx2") else 16
"""Bytes of a SIMD register of this CPU."""


def width(dtype):
    """Return how many numbers a SIMD register holds."""
    return REGISTER // np.dtype(dtype).itemsize


class Vector(types.Type):
    """Numba's type of so many numbers that go through the same operations."""

    def __init__(self, scalar, lanes):
        self.scalar, self.lanes = scalar, lanes
        super().__init__(name=f"Vector({scalar}, {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        scalar = dmm.lookup(fe_type.scalar).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(scalar, fe_type.lanes))


def _pointer(context, builder, array_type, array, at, lanes):
    """Return a pointer to the lanes that begin at an entry of a flat array."""
    data = context.make_array(array_type)(context, builder, array).data
    scalar = context.get_data_type(array_type.dtype)
    place = builder.gep(data, [at])
    return builder.bitcast(place, ir.VectorType(scalar, lanes).as_pointer())


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
    """Call one of LLVM's own functions on vectors."""
    kind = arguments[0].type
    bits = "f64" if isinstance(kind.element, ir.DoubleType) else "f32"
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind] * len(arguments)),
        f"llvm.{name}.v{kind.count}{bits}",
    )
    return builder.call(function, arguments)


@intrinsic
def width_of(context, a):
    """Return how many numbers of an array a SIMD register holds."""

    def build(context, builder, signature, arguments):
        return context.get_constant(types.intp, width(a.dtype.name))

    return types.intp(a), build


@intrinsic
def load(context, a, at):
    """Return as many numbers of a flat array as a SIMD register holds."""
    count = width(a.dtype.name)

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, arguments[0], arguments[1], count)
        return _loaded(builder, pointer, a)

    return Vector(a.dtype, count)(a, types.intp), build


@intrinsic
def store(context, a, at, value):
    """Write the numbers of a register to a[at] and what follows."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, arguments[0], arguments[1], value.lanes)
        _stored(builder, arguments[2], pointer, a)

    return types.void(a, types.intp, value), build


@intrinsic(prefer_literal=True)
def clear(context, a, at, past_cache):
    """Write 0 to a register's width of numbers from a[at]."""
    count, past = width(a.dtype.name), past_cache.literal_value

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, a, *arguments[:2], count)
        kind = ir.VectorType(context.get_data_type(a.dtype), count)
        _stored(builder, ir.Constant(kind, [0.0] * count), pointer, a, past)

    return types.void(a, types.intp, past_cache), build


@intrinsic
def touch(context, a, at):
    """Have the cache line of a[at] read, if there is one, while the CPU goes on."""

    def build(context, builder, signature, arguments):
        byte, number = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        place = builder.bitcast(_pointer(context, builder, a, *arguments, 1), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # to be read, into the second cache, data
        builder.call(prefetch, [place, number(0), number(2), number(1)])

    return types.void(a, types.intp), build


@intrinsic
def proper(context, a, at):
    """Return whether a register's width of numbers from a[at] are positive and finite."""
    count = width(a.dtype.name)

    def build(context, builder, signature, arguments):
        x = _loaded(builder, _pointer(context, builder, a, *arguments, count), a)
        above = builder.fcmp_ordered(">", x, ir.Constant(x.type, [0.0] * count))
        below = builder.fcmp_ordered("<", x, ir.Constant(x.type, [float("inf")] * count))
        mask = builder.bitcast(builder.and_(above, below), ir.IntType(count))
        return builder.icmp_unsigned("==", mask, ir.IntType(count)(2**count - 1))

    return types.boolean(a, types.intp), build


@intrinsic
def minus(context, c, a, b):
    """Return c - a b, rounded once where the CPU can."""

    def build(context, builder, signature, arguments):
        c, a, b = arguments
        if not FUSED:
            return builder.fsub(c, builder.fmul(a, b))
        return _llvm(builder, "fma", [builder.fneg(a), b, c])

    return c(c, c, c), build


@intrinsic
def times(context, a, b):
    """Return a b."""

    def build(context, builder, signature, arguments):
        return builder.fmul(*arguments)

    return a(a, a), build


@intrinsic
def root(context, a):
    """Return √a."""

    def build(context, builder, signature, arguments):
        return _llvm(builder, "sqrt", arguments)

    return a(a), build


@intrinsic
def reciprocal(context, a):
    """Return 1/a."""

    def build(context, builder, signature, arguments):
        kind = arguments[0].type
        return builder.fdiv(ir.Constant(kind, [1.0] * a.lanes), arguments[0])

    return a(a), build


def _halves(lanes, half):
    """Return the shuffles that exchange, for two rows half apart, the blocks off the diagonal."""
    low = [p if p // half % 2 == 0 else p - half + lanes for p in range(lanes)]
    high = [p + half if p // half % 2 == 0 else p + lanes for p in range(lanes)]
    return [ir.Constant(ir.VectorType(ir.IntType(32), lanes), mask) for mask in (low, high)]


@intrinsic(prefer_literal=True)
def transpose(context, source, at, apart, target, to, step, past_cache):
    """Let target[to + p step + m] <- source[at + m apart + p] for all m and p of a register.

    Where `past_cache` is 1 the target goes straight to memory; its rows must be aligned.
    """
    count, past = width(source.dtype.name), past_cache.literal_value

    def build(context, builder, signature, arguments):
        x, at, apart, y, to, step, _ = arguments
        rows = []
        for _ in range(count):
            rows.append(_loaded(builder, _pointer(context, builder, source, x, at, count), source))
            at = builder.add(at, apart)
        half = count // 2
        while half:
            masks = _halves(count, half)
            for p in range(count):
                if p // half % 2 == 0:
                    pair = rows[p], rows[p + half]
                    rows[p], rows[p + half] = (builder.shuffle_vector(*pair, m) for m in masks)
            half //= 2
        for row in rows:
            pointer = _pointer(context, builder, target, y, to, count)
            _stored(builder, row, pointer, target, past)
            to = builder.add(to, step)

    integers = (types.intp, types.intp)
    return types.void(source, *integers, target, *integers, past_cache), build
