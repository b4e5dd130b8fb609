"""Products of BF16 numbers in AVX-512, at up to twice the rate of FP32.

`vdpbf16ps` multiplies 16 pairs of BF16 numbers by 16 others and adds both products of each pair to
an FP32 sum. Operands are packed so that the numbers of two neighbouring columns stand side by side.
Each entry of C is computed by the same operations in the same order wherever it is, so a product
that is computed in parts has the same bits.

Import this module inside the function that calls it: numba takes long to load.

Source: K. Goto and R. van de Geijn (2008), Anatomy of high-performance matrix multiplication.
"""

from math import sqrt

import numpy as np

from ..runtime.devices import binding, ir, njit, share, types, usable_cores
from .loops import flat
from .simd import by_llvm, fused, spread_over
from .views import by_columns

REGISTER_LANES, BLOCK_ROWS, BLOCK_COLUMNS = 16, 32, 12
"""Numbers in a register; rows and columns of the block of C whose sums are held in 24 registers."""

PACKED_PAIRS, PACKED_ROWS_OF_A, PACKED_ROWS_OF_B = 256, 384, 4092
"""A is packed in blocks of 384 rows by 256 pairs of columns, which fit into the second-level cache;
B in blocks of 4,092 rows."""

PIECE_MULTIPLE = 96
"""Threads share C in pieces whose sides are multiples of this number of rows and columns, itself a
multiple of BLOCK_ROWS and BLOCK_COLUMNS."""

MULTIPLICATIONS_PER_PRODUCT_THREAD = 2**25
"""Multiplications for each additional thread; one core takes about 0.3 ms for them."""

FP32_VECTOR, INT32_VECTOR = (
    ir.VectorType(kind, REGISTER_LANES) for kind in (ir.FloatType(), ir.IntType(32))
)


class _BFloat(ir.Type):
    """LLVM's type of BF16 numbers, which llvmlite lacks."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, type(self))

    def __hash__(self):
        return hash(type(self))


LLVM_VERSION = binding.llvm_version_info[0]
PAIRS_OF_BF16 = INT32_VECTOR if LLVM_VERSION < 16 else ir.VectorType(_BFloat(), 2 * REGISTER_LANES)
"""The type of the instruction's operands."""


@by_llvm(types.void)
def _multiply_block(builder, a, at_a, b, at_b, pairs, c, at, step, alpha):
    """C <- C + α A B' for BLOCK_ROWS by BLOCK_COLUMNS entries of C, summed in registers.

    A and B are packed, and begin at a[at_a] and b[at_b]; column j of C begins at c[at + j·step].
    """
    start, body = builder.block, builder.append_basic_block()
    end, index = builder.append_basic_block(), at_a.type
    builder.branch(body)
    builder.position_at_end(body)
    registers = range(BLOCK_COLUMNS * BLOCK_ROWS // REGISTER_LANES)
    p, sums = builder.phi(index), [builder.phi(FP32_VECTOR) for _ in registers]
    p.add_incoming(index(0), start)
    for x in sums:
        x.add_incoming(ir.Constant(FP32_VECTOR, [0.0] * REGISTER_LANES), start)
    from_a = builder.add(at_a, builder.mul(p, index(BLOCK_ROWS)))
    from_b = builder.add(at_b, builder.mul(p, index(BLOCK_COLUMNS)))
    left = [
        builder.bitcast(a.load(builder.add(from_a, index(first)), REGISTER_LANES), PAIRS_OF_BF16)
        for first in range(0, BLOCK_ROWS, REGISTER_LANES)
    ]
    function = ir.FunctionType(FP32_VECTOR, [FP32_VECTOR, PAIRS_OF_BF16, PAIRS_OF_BF16])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    known = builder.module.globals
    dot = known[name] if name in known else ir.Function(builder.module, function, name)
    added = []
    for j in range(BLOCK_COLUMNS):
        pair = builder.load(b.pointer(builder.add(from_b, index(j)), INT32_VECTOR.element))
        right = builder.bitcast(spread_over(builder, pair, INT32_VECTOR), PAIRS_OF_BF16)
        added += [
            builder.call(dot, [sums[len(left) * j + h], x, right]) for h, x in enumerate(left)
        ]
    later = builder.add(p, index(1))
    p.add_incoming(later, body)
    for x, total in zip(sums, added, strict=True):
        x.add_incoming(total, body)
    builder.cbranch(builder.icmp_signed("<", later, pairs), body, end)
    builder.position_at_end(end)
    numbers = c.vector(REGISTER_LANES)
    alpha = spread_over(builder, alpha, numbers)
    for k, total in enumerate(added):
        if numbers != FP32_VECTOR:
            total = builder.fpext(total, numbers)
        first = builder.add(at, index(k % len(left) * REGISTER_LANES))
        c.store(first, fused(builder, alpha, total, c.load(first, REGISTER_LANES)))
        if (k + 1) % len(left) == 0:
            at = builder.add(at, step)


@by_llvm(types.void, literals=("count",))
def _interleave(builder, x, one, two, out, at, count):
    """Out[at:] <- x[one], x[two], x[one + 1], x[two + 1], …, `count` of each, as 32-bit pairs."""
    pair = x.load(one, count), x.load(two, count)
    order = [k // 2 + k % 2 * count for k in range(2 * count)]
    mask = ir.Constant(ir.VectorType(INT32_VECTOR.element, 2 * count), order)
    out.store(at, builder.shuffle_vector(*pair, mask))


def _packer(width):
    """Return a function that packs `width` rows."""

    @njit(nogil=True, cache=True)
    def pack(x, step, by_rows, first, count, column, columns, out, at):
        """Out[at:] <- the numbers of two columns of each row as 32 bits, pair by pair of columns.

        `count` rows from `first` on are packed; missing rows are 0, and so is the missing partner
        of a last single column.
        """
        for p in range(columns // 2):
            pair = out[at + p * width : at + (p + 1) * width]
            k = column + 2 * p
            if by_rows:
                for i in range(count):
                    start = (first + i) * step + k
                    pair[i] = np.uint32(x[start]) | (np.uint32(x[start + 1]) << np.uint32(16))
            elif count == width:
                _interleave(x, k * step + first, (k + 1) * step + first, out, at + p * width, width)
            else:
                one = x[k * step + first : k * step + first + count]
                two = x[(k + 1) * step + first : (k + 1) * step + first + count]
                for i in range(count):
                    pair[i] = np.uint32(one[i]) | (np.uint32(two[i]) << np.uint32(16))
            for i in range(count, width):
                pair[i] = 0
        if columns % 2:
            pair = out[at + columns // 2 * width : at + (columns // 2 + 1) * width]
            k = column + columns - 1
            for i in range(count):
                pair[i] = x[(first + i) * step + k if by_rows else k * step + first + i]
            for i in range(count, width):
                pair[i] = 0

    return pack


_pack_a, _pack_b = _packer(BLOCK_ROWS), _packer(BLOCK_COLUMNS)


@njit(nogil=True, cache=True)
def _copy(c, at, step, part, rows, columns, apart, least, most, back):
    """Copy entries (i, j) of a block of C with least <= apart + j - i <= most to `part`, or back.

    All other entries are left unchanged.
    """
    for j in range(columns):
        first = max(0, apart + j - most)
        stop = min(rows, apart + j - least + 1)
        for i in range(first, stop):
            if back:
                c[at + j * step + i] = part[j * BLOCK_ROWS + i]
            else:
                part[j * BLOCK_ROWS + i] = c[at + j * step + i]


@njit(nogil=True, cache=True)
def _multiply(c, step, m, n, a, step_a, rows_a, b, step_b, rows_b, depth, alpha, least, most):
    """C <- C + α A B' for the entries (i, j) with least <= j - i <= most."""
    packed_a = np.empty(PACKED_PAIRS * PACKED_ROWS_OF_A, np.uint32)
    packed_b = np.empty(PACKED_PAIRS * min(PACKED_ROWS_OF_B, n + BLOCK_COLUMNS), np.uint32)
    part = np.zeros(BLOCK_ROWS * BLOCK_COLUMNS, c.dtype)
    for left in range(0, n, PACKED_ROWS_OF_B):
        width = min(PACKED_ROWS_OF_B, n - left)
        for column in range(0, depth, 2 * PACKED_PAIRS):
            columns = min(2 * PACKED_PAIRS, depth - column)
            pairs = (columns + 1) // 2
            for j in range(0, width, BLOCK_COLUMNS):
                count = min(BLOCK_COLUMNS, width - j)
                place = (packed_b, j * pairs)
                _pack_b(b, step_b, rows_b, left + j, count, column, columns, *place)
            for top in range(0, m, PACKED_ROWS_OF_A):
                height = min(PACKED_ROWS_OF_A, m - top)
                if left - (top + height - 1) > most or left + width - 1 - top < least:
                    continue
                for i in range(0, height, BLOCK_ROWS):
                    count = min(BLOCK_ROWS, height - i)
                    place = (packed_a, i * pairs)
                    _pack_a(a, step_a, rows_a, top + i, count, column, columns, *place)
                for j in range(0, width, BLOCK_COLUMNS):
                    for i in range(0, height, BLOCK_ROWS):
                        # j - i over the entries of this block of C
                        low = left + j - top - i - BLOCK_ROWS + 1
                        high = left + j - top - i + BLOCK_COLUMNS - 1
                        if low > most or high < least:
                            continue
                        at = (left + j) * step + top + i
                        rows, across = min(BLOCK_ROWS, height - i), min(BLOCK_COLUMNS, width - j)
                        whole = rows == BLOCK_ROWS and across == BLOCK_COLUMNS
                        operands = (packed_a, i * pairs, packed_b, j * pairs, pairs)
                        if whole and low >= least and high <= most:
                            _multiply_block(*operands, c, at, step, alpha)
                        else:
                            apart = low + BLOCK_ROWS - 1
                            place = (c, at, step, part, rows, across, apart, least, most)
                            _copy(*place, False)
                            _multiply_block(*operands, part, 0, BLOCK_ROWS, alpha)
                            _copy(*place, True)


def multiply(c, a, b, alpha, triangle=False):
    """C <- C + α A B', or its lower triangle only.

    C is FP32 or FP64, (m, n), the others BF16 bits, (m, k) and (n, k), in either memory order. Up
    to 512 products are summed in FP32 before they are added to C. Subnormal numbers count as 0, and
    a sum that FP32 cannot hold is infinite. Large products are shared by all usable cores.
    """
    least, most = (-np.inf, 0) if triangle else (-np.inf, np.inf)
    if not by_columns(c):
        c, a, b, least, most = c.T, b, a, -most, -least
    (m, n), depth = c.shape, a.shape[1]
    if not (m and n):
        return
    alpha = c.dtype.type(alpha)

    def work(piece):
        rows, columns = piece
        shift = columns.start - rows.start
        bounds = (max(least - shift, -m), min(most - shift, n))
        if bounds[0] >= columns.stop - columns.start or bounds[1] <= rows.start - rows.stop:
            return
        mine = c[rows, columns]
        operands = []
        for x in (a[rows], b[columns]):
            by_rows = not by_columns(x)
            operands += [*flat(x.T if by_rows else x), by_rows]
        _multiply(*flat(mine), *mine.shape, *operands, depth, alpha, *map(int, bounds))

    cores = min(usable_cores(), 1 + m * n * depth // MULTIPLICATIONS_PER_PRODUCT_THREAD)
    # parts of a triangle take unequal time
    share(work, _pieces(m, n, 4 * cores if triangle and cores > 1 else cores), cores)


def _pieces(m, n, count):
    """Cut (m, n) into about `count` pieces that are nearly square; return their slices."""
    by_rows = min(count, max(1, round(sqrt(count * m / n))))
    sides = []
    for size, parts in ((m, by_rows), (n, -(-count // by_rows))):
        step = -(-size // parts)
        step = -(-step // PIECE_MULTIPLE) * PIECE_MULTIPLE if parts > 1 else size
        sides.append([slice(first, min(first + step, size)) for first in range(0, size, step)])
    return [(rows, columns) for columns in sides[1] for rows in sides[0]]
