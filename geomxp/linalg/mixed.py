"""Cholesky's operations on tiles in their formats: gemm, trsm, potrf.

The tile that is being computed is an array, FP64 for an FP64 tile and FP32 for all others; what it
reads are `Tile`s. The arithmetic of a product is that of the coarser operand: rounding the other
one to it commits no larger an error than the coarser one has already.

On a CPU, MKL multiplies FP16 and BF16 on AMX units. Without these units, `products_cpu` multiplies
BF16 in AVX-512, and FP8 as BF16. Otherwise numbers are widened to FP32, which is exact, and
multiplied there. FP32 as two FP16 planes costs three products on the units and is still faster than
FP32's own arithmetic, also on a GPU.
"""

import threading
from contextlib import nullcontext
from math import isqrt

import numpy as np

from ..runtime.dask import WORKER_PROBES
from . import blas, gpu, low_rank, products_gpu, recursive
from .backend import backend_of
from .formats import BF16, FP8, FP16, FP32, FP64, Tile, cast, coarser, in_planes, quantize

LARGEST_GPU_TILE = isqrt(gpu.LARGEST_INDEX)
"""The largest order of a tile whose entries cuSOLVER counts; above, a tile is factored by halves,
and the CPU waits for the GPU."""

LARGEST_DIAGONAL_LEAF = 4096
"""The largest leaf of a diagonal tile on a GPU. It is solved with inverses of its quarters. Larger
quarters need fewer launches, and launches take longer than the products."""

LARGEST_FP64_SQUARE = 1024
"""Largest order of a diagonal block that an FP32 tile in planes updates in FP64. For a diagonal
tile of order 4,096 a quarter of the FP64 work of its updates remains."""

LEAST_SUM_COLUMNS, MOST_SUM_COLUMNS = 256, 1024
"""Columns that a GPU's units sum before they add to FP32. They cut partial sums off where FP32
rounds to nearest. On an H200, for blocks of Matérn factors, the error of 256 columns is close to
FP32's, and that of 1,024 is 2.6 times as large; it was at most 6.1e-6 of a product."""

SUM_ERROR_PER_COLUMN = 2.0**-27
"""Bound of the relative error of a sum on the units, for each column: 0.8 of it was measured,
up to 1,024 columns."""

LEAST_PLANES_ACCURACY = 2.0**-20
"""The smallest ε of formats by norm for which FP32 tiles are planes, of unit roundoff 2^-22."""

LARGEST_FACTOR_ENTRY = 2.0**0.5
"""A bound of the entries of L: tiles are scaled so that the diagonal of Σ is below 2."""


def columns_of_sum(formats):
    """Return how many columns a GPU's units sum at once where FP32 tiles are two FP16 planes.

    0 where FP32 tiles are FP32 numbers: where the formats are prescribed, or the accuracy of a map
    is below `LEAST_PLANES_ACCURACY`. A larger ε allows longer sums. The shortest ones, whose error
    is near that of FP32's own, are used for any ε. Errors were measured on an H200 only.
    """
    if formats.divergence is not None:
        return LEAST_SUM_COLUMNS
    if formats.accuracy is None or formats.accuracy < LEAST_PLANES_ACCURACY:
        return 0
    columns = MOST_SUM_COLUMNS
    while columns > LEAST_SUM_COLUMNS and columns * SUM_ERROR_PER_COLUMN > formats.accuracy:
        columns //= 2
    return columns


def arithmetic(c, left, right):
    """Return the format of A_ik - L_ij L_kj', for an array and two tiles or their formats.

    That of products with the coarser of the operands' formats; the `wider` one, FP16 for FP8,
    beside another format: rounding the other operand to FP8 would gain nothing. For an FP64 array
    FP64 if an operand is FP64, and for an FP32 tile's square in a diagonal tile; for an FP32 array
    at most FP32. FP64 with a tile of low rank.
    """
    if low_rank.takes_part(left, right):
        return FP64
    a, b = (x.form if isinstance(x, Tile) else x for x in (left, right))
    form = coarser(a, b)
    if c.dtype == np.float64 and (FP64 in (a, b) or (form is FP32 and left is right)):
        # a rounded partner is an error in Σ, which Σ⁻¹ magnifies; rounding what L stores is not.
        # Sums of squares in FP32 are off in one direction, and the log-determinant would show it
        return FP64
    if form.wider is not None and a is not b:
        form = form.wider
    return (coarser(form, FP32) if c.dtype == np.float32 else form).products


def gemm(c, pairs, form, columns=0):
    """C <- C - Σ_j A_j B_j' in one arithmetic, in the order given; return C, in Fortran order.

    An FP32 array takes the products in FP32, one after the other; to an FP64 array each is added in
    FP64. `pairs` has (Tile, Tile), of a diagonal tile twice the same one and perhaps the lower
    triangle only; on a GPU perhaps with the α of `subtract_product`. Those with tiles of low rank
    come last. `columns` are those of `columns_of_sum`.
    """
    backend = backend_of(c)
    if form is FP64:
        compressed = []
        for left, right, *alpha in pairs:
            if low_rank.takes_part(left, right):
                compressed.append((left, right))
                continue
            if left is right and left.split and backend.on_gpu:
                _subtract_square(c, left, alpha, columns)
                continue
            a = _widened(left, FP64, 0)
            b = a if left is right else _widened(right, FP64, 1)
            if backend.on_gpu and b is a and len(c) > gpu.LARGEST_WHOLE_PRODUCT_ORDER:
                backend.syrk(c, a, -1.0, 1.0)
            elif backend.on_gpu:
                backend.gemm(c, a, b.T, -1.0, 1.0)
            elif b is a:
                blas.syrk(c, a, -1.0)
            else:
                blas.gemm(c, a, b, -1.0)
        if compressed:
            low_rank.subtract(c, compressed)
    elif c.dtype == np.float32:
        for left, right, *alpha in pairs:
            alpha = alpha[0] if alpha else None
            subtract_product(c, left, right, form, alpha, columns=columns)
    elif backend.on_gpu:
        total = backend.empty(c.shape, np.float32, c)
        for left, right, *alpha in pairs:
            alpha = alpha[0] if alpha else None
            subtract_product(total, left, right, form, alpha, 0.0, columns)
            gpu.combine(c, total, beta=1.0)
    else:
        from .loops import add_scaled, by_column

        for left, right in pairs:
            total = _scratch(c.shape, np.float32, 2)
            total[...] = 0
            subtract_product(total, left, right, form)
            by_column(add_scaled, total, np.float64(1.0), c)
    return c


def _subtract_square(c, tile, alpha, columns):
    """Lower triangle of an FP64 C <- C - A A' on a GPU, by halves, for A in two FP16 planes.

    Diagonal blocks up to `LARGEST_FP64_SQUARE` are FP64 products, because they hold sums of squares
    (see `arithmetic`); the blocks below them are products in planes.
    """
    if len(c) <= LARGEST_FP64_SQUARE:
        a = tile.widen()
        backend_of(c).gemm(c, a, a.T, -1.0, 1.0)
        return
    half, every = len(c) // 2, slice(0, tile.shape[1])
    one, two = (tile.part(rows, every) for rows in (slice(0, half), slice(half, len(c))))
    _subtract_square(c[:half, :half], one, alpha, columns)
    gemm(c[half:, :half], [(two, one, *alpha)], FP32, columns)
    _subtract_square(c[half:, half:], two, alpha, columns)


def subtract_product(c, left, right, form, alpha=None, beta=1.0, columns=0):
    """C <- βC - A B' in a format's arithmetic: its numbers, multiplied exactly, summed in FP32.

    C, (m, n) FP32 in Fortran order, is returned; A is an (m, k) tile, B an (n, k) one. Where both
    are the same tile, entries above C's diagonal may be left as they are. FP8 is
    multiplied as FP8 on GPUs with units for it, where both tiles are FP8 and all dimensions are
    multiples of 16; elsewhere as FP16, or as BF16 on CPUs that multiply BF16 in AVX-512. Both
    formats hold FP8's numbers.

    On a GPU only: α, (2,) FP32, is -2^-(e+f) for the tiles' own exponents e and f, and for those of
    their numbers as FP16, where both are on the GPU (see `gpu.factors`), and computed if not given;
    β may be 0, and C is then not read; `columns` of two FP16 planes are summed at once, all if 0.

    Raises MissingDevice if FP8 is multiplied on a GPU and cuBLASLt, a part of cuBLAS, is missing.

    Hopper's units add groups of FP8 products with about 14 bits before they go to FP32: DeepSeek-V3
    Technical Report (arXiv 2412.19437), section 3.3.2. That is still far below FP8's own rounding.
    """
    if backend_of(c).on_gpu:
        with c.device:
            return _subtract_on_gpu(c, left, right, form, alpha, beta, columns)
    form = _on_cpu(left, right, form)
    if blas.has_unit(form) and blas.in_avx512(form):
        return _subtract_in_avx512(c, left, right)
    if not blas.has_unit(form) and not splits():
        a = _widened(left, form, 0)
        if left is right:
            return blas.syrk(c, a, -1.0)
        return blas.gemm(c, a, _widened(right, form, 1), -1.0)
    a, b = operand(left, form), operand(right, form)
    if a.split and b.split:
        for p, q in products_gpu.PLANE_PAIRS:
            _on_units(c, a.plane(p), b.plane(q))
    elif blas.has_unit(form):
        _on_units(c, a, b)
    else:
        blas.gemm(c, a.widen(np.float32), b.widen(np.float32), alpha=-1.0)
    return c


_mine = threading.local()
"""Scratch arrays of each thread for the operands of a product. Allocating them costs more than
converting into them."""


def _scratch(shape, dtype, place):
    """Return a scratch array of this thread, in Fortran order.

    `place` tells apart arrays that are in use at the same time.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    kept = vars(_mine)
    if place not in kept or kept[place].size < size:
        kept[place] = np.empty(size, np.uint8)
    return kept[place][:size].view(dtype).reshape(shape, order="F")


def release():
    """Release the scratch arrays of this thread."""
    vars(_mine).clear()


def _widened(tile, form, place):
    """Return a tile's numbers in a format as FP64 or FP32.

    On a CPU the next call with the same `place` may overwrite them. `form` is the format of the
    product.
    """
    dtype = np.float64 if form is FP64 else np.float32
    if form not in (FP64, tile.form.wider):
        # the wider format would only hold the same numbers
        tile = operand(tile, form)
    # the exponent of a tile on a GPU may be there as well
    if backend_of(tile.values).on_gpu or (tile.values.dtype == dtype and not tile.exponent):
        return tile.widen(dtype)
    return tile.widen(dtype, _scratch(tile.shape, dtype, place))


def _on_cpu(left, right, form):
    """Return the format in which a CPU computes a product whose arithmetic is `form`.

    FP8's numbers are BF16's as well, and BF16's roundoff is a sixteenth of FP8's own.
    """
    form = form.wider or form
    fp8 = form is FP16 and FP8 in (left.form, right.form)
    return BF16 if fp8 and blas.has_unit(BF16) and blas.in_avx512(BF16) else form


def _on_units(c, a, b):
    alpha = -(2.0 ** -(a.exponent + b.exponent))
    blas.multiply_on_units(c, a.values, b.values, a.form, alpha)


def _subtract_in_avx512(c, left, right):
    """Subtract a product in BF16; the FP32 sums are scaled as they are added to C."""
    a = _in_bf16(left, 3)
    if left is right:
        blas.square_on_units(c, a.values, BF16, _factor(a, a, None))
    else:
        _on_units(c, a, _in_bf16(right, 4))
    return c


def _in_bf16(tile, place):
    """Return a tile rounded to BF16; the next call with the same `place` may overwrite it."""
    tile = tile.casts.get(BF16) or tile.casts.get(FP32, tile)
    if tile.form is BF16:
        return tile
    out = Tile(BF16, _scratch(tile.shape, BF16.dtype, place), tile.exponent)
    backend_of(out.values).to_bf16(out.values, tile.values, tile.form)
    return out


def _subtract_on_gpu(c, left, right, form, alpha, beta, columns):
    own, as_wider = (None, None) if alpha is None else (alpha[:1], alpha[1:])
    if form.wider is not None and left.form is right.form is form:
        scale = _factor(left, right, own)
        flags = (x.flags for x in (c, left.values, right.values))
        if not all(each.f_contiguous or each.c_contiguous for each in flags):
            # parts of larger arrays
            if not beta:
                c[...] = 0.0
            if products_gpu.multiply_fp8(c, left.values, right.values, form, scale):
                return c
        shape, on_device = (*c.shape, left.shape[1]), not isinstance(scale, float)
        plan = products_gpu.plan(form, c.device.id, *shape, on_device=on_device)
        if plan is not None:
            a = _by_rows(left)
            b = a if right is left else _by_rows(right)
            return products_gpu.execute(plan, c, a, b, scale, beta)
    form = form.wider or form
    a, b = operand(left, form), operand(right, form)
    if a.split and b.split:
        alpha = _factor(a, b, as_wider)
        return products_gpu.multiply_planes(c, a.values, b.values, FP16, alpha, beta, columns)
    a, b = _whole(a), _whole(b)
    return products_gpu.multiply(c, a.values, b.values, form, _factor(a, b, as_wider), beta)


def _whole(tile):
    """Return an FP32 tile in two planes as FP32 numbers, other tiles unchanged."""
    return Tile(FP32, tile.widen(np.float32)) if tile.split else tile


def _by_rows(tile):
    """Return the bits of an FP8 tile as cuBLASLt reads them: unchanged, or copied."""
    values = tile.values
    return values if values.flags.c_contiguous else values.copy(order="C")


def _factor(a, b, known):
    """Return α of C <- C + αAB': a float, or an array on the GPU where an exponent is on it.

    It is `known`, if given, where both exponents are on the GPU.
    """
    on_gpu = [not isinstance(tile.exponent, int) for tile in (a, b)]
    if not any(on_gpu):
        return -(2.0 ** -(a.exponent + b.exponent))
    if all(on_gpu) and known is not None:
        return known
    return gpu.factors(_first(a), _first(b), -1.0)


def _first(tile):
    """Return a tile's own exponent on its GPU."""
    if isinstance(tile.exponent, int):
        import cupy

        return cupy.full(1, tile.exponent, np.int32)
    return tile.exponent[:1]


def operand(tile, form):
    """Return a tile's numbers in the format of an arithmetic, as a `Tile`."""
    if tile.form is not form:
        tile = tile.casts.get(form) or tile.casts.get(FP32, tile)
    if tile.form is form:
        return tile
    if tile.split and form is FP16:
        return tile.plane(0)
    if form is tile.form.wider:
        return tile.in_wider()
    if form is FP64:
        return Tile(FP64, tile.widen())
    wide = tile.widen(np.float32)
    if form.top is None and backend_of(wide).on_gpu:
        # without an exponent the CPU need not wait for the GPU
        return Tile(FP32, wide) if form is FP32 else cast(wide, form)
    return quantize(wide, form, split=splits() and not backend_of(wide).on_gpu)


def splits():
    """Return whether FP32 tiles should be stored as two FP16 planes on this CPU."""
    return blas.has_unit(FP16)


WORKER_PROBES["matrix units"] = (
    *(__name__, "splits"),
    "worker {one} has matrix units for FP16 and worker {other} has none (or no MKL): tiles of one "
    "cannot be read by the other. Use workers of one kind.",
)


def cast_formats(forms, planes):
    """Return the casts of an FP64 tile for readers in coarser arithmetic, whose formats are given.

    A dict of Format to bool: whether the cast is stored as two FP16 planes, as FP32 is with
    `planes`.
    """
    forms = {form.wider or form.products for form in forms} - {FP64}
    if planes and FP32 in forms:
        # the high plane of FP32 is FP16
        forms -= {FP16}
    return {form: planes and form is FP32 for form in forms}


def other_formats(form, partners):
    """Return the other formats in which a tile is multiplied with tiles in `partners`, a set."""
    coarse = {coarser(other, form) for other in partners}
    # beside a finer tile FP8 is multiplied as FP16, or as BF16, which is made for each product
    return {other.wider or other.products for other in coarse} - {form}


def stands_by_rows(form, shape, partners, index):
    """Return whether a final tile is stored in C order, as units of GPU `index` for FP8 need it.

    `partners` has the formats of the tiles that it is multiplied with.
    """
    possible = form.wider is not None and form in partners and not any(s % 16 for s in shape)
    return possible and products_gpu.has_units(form, index)


def trsm(c, diagonal, form=FP32, triangle=None, columns=0):
    """C <- C L⁻', in the arithmetic of C, an array in Fortran order, which is returned.

    An FP32 array reads the diagonal tile's cast to FP32, if it has one. On a GPU it is solved by
    halves, with `triangle`, if given, from `solver`. Products are in the format of the tile that C
    becomes, if its numbers are rounded to it in any case: FP32 is slow there. `columns` are those
    of `columns_of_sum`. A `low_rank.Sum` is compressed first, and becomes a tile.
    """
    if isinstance(c, low_rank.Sum):
        return low_rank.solve(c, lambda dtype: _in(np.dtype(dtype), diagonal))
    backend = backend_of(c)
    if c.dtype == np.float32 and backend.on_gpu:
        triangle = solver(diagonal, {form}, columns) if triangle is None else triangle
        form, every = _of_products(form), slice(0, c.shape[1])
        # one product with an inverse reads no casts
        rows = recursive.Rows(c, () if triangle.quarter else (form,), LARGEST_FACTOR_ENTRY)
        copied = triangle.quarter and not triangle.planes
        with rows.copied(every) if copied else nullcontext():
            recursive.solve(triangle.read_in(form), rows, every, True)
        return c
    return backend.trsm(_in(c.dtype, diagonal), c, True)


def solver(diagonal, forms, columns=0, at_once=False):
    """Return a diagonal tile on a GPU as the `Triangle` of `trsm` for tiles in some formats.

    Inverses are multiplied in planes if there are `columns`, see `columns_of_sum`, unless FP32 is
    asked for. With `at_once` the tile is solved with one inverse, of the whole tile.
    """
    lower = _in(np.float32, diagonal)
    planes = in_planes(columns) if columns and FP32 not in forms else None
    leaf = min(LARGEST_DIAGONAL_LEAF, len(lower))
    about = {"bound": LARGEST_FACTOR_ENTRY, "quarter": at_once, "planes": planes}
    triangle = recursive.Triangle(lower, (FP32,), leaf, **about)
    exact = diagonal.values if diagonal.form is FP64 else None
    recursive.prepare(triangle, {_of_products(form) for form in forms}, exact)
    return triangle


def _of_products(form):
    """Return the format of products for an FP32 array that becomes a tile in a format."""
    stored = form if form.products is form else FP32
    return form.wider or coarser(stored, FP32)


def _in(dtype, diagonal):
    """Return the numbers of a diagonal tile in FP64 or FP32."""
    if dtype == np.float32:
        diagonal = diagonal.casts.get(FP32, diagonal)
    return diagonal.widen(dtype)


def potrf(a, info=None):
    """Overwrite a diagonal tile with its Cholesky factor, zeros above the diagonal; return it.

    Large tiles are factored by halves. The entries above the diagonal are not read. On a GPU,
    `info`, (1,) int32, receives the order of the first leading minor that is not positive, 0 if all
    are; without it the CPU waits, and NotPositiveDefinite has that order.
    """
    backend, order = backend_of(a), 0
    if backend.on_gpu and len(a) > LARGEST_GPU_TILE:
        recursive.potrf(a)
    elif backend.on_gpu:
        word = backend.zeros(1, np.int32, a) if info is None else info
        backend.potrf(a, word)
        order = int(word[0]) if info is None else 0
    else:
        form = FP64 if a.dtype == np.float64 else FP32
        leaf = recursive.leaf_size("potrf", len(a), (form,))
        if len(a) > leaf:
            recursive.factor_by_halves(recursive.Triangle(a, (form,), leaf), (form,))
        else:
            order = backend.potrf(a)
        wrong = np.flatnonzero(~np.isfinite(a.diagonal()))
        if wrong.size:
            order = int(min(order or len(a), wrong[0] + 1))
    if order:
        raise recursive.not_positive(order)
    backend.clear_upper(a)
    return a
