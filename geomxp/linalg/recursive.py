"""Recursive potrf, trsm, trmm and syrk by halves, on blocks that are views or stored.

    A = [A11    ]    cut at a multiple of 128 near the middle,
        [A21 A22]    each half again, down to a leaf

Each block is computed in its own format. A block that is final is cast once, in one pass, and every
product reads the cast: a `Panel`.

Sources: paper 000, algorithms 1-3; paper 003 for the triangular solve and product.
"""

from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from math import frexp

import numpy as np
import scipy

from ..errors import InvalidInput, NotPositiveDefinite
from ..runtime.devices import subnormals_as_zero, usable_cores
from . import blas, gpu
from .backend import backend_of, device_of
from .device import empty_matrix, streams
from .formats import FP16, FP32, FP64, LARGEST_EXPONENT
from .views import by_columns, leading, order_of

CUT_MULTIPLE = 128
"""A matrix is cut at a multiple of this."""

ONE_FORMAT_LEAVES = {"potrf": 4096, "trsm": 2048, "trmm": 2048, "syrk": 4096}
"""Leaf sizes of dense matrices that are FP64 or FP32 throughout: orders up to which a routine of
the library is called instead of another halving. The studies trsm_trmm and nested_cholesky vary
them, `run.py leaves`."""

EQUAL_SPEED_LEAVES = {"potrf": 1024, "trsm": 2048, "trmm": 2048, "syrk": 1024, "tree": 512}
"""Leaf sizes with several formats whose products have one speed, and of a `SymmetricTree`, which
stores each leaf as a square."""

FAST_PRODUCT_LEAVES = {"potrf": 256, "trsm": 256, "trmm": 256, "syrk": 512, "tree": 256}
"""Leaf sizes where products are much faster than leaves: with a format that is multiplied faster
than FP32, or with layers above FP64."""

ONE_LEAF_ORDER = 1536
"""Up to this order a matrix with layers above FP32 is computed in FP32, as one leaf, if only
AVX-512 multiplies a layer faster: on two cores, halves and casts cost what BF16 saves."""

GPU_LEAVES = {"potrf": 1024, "trsm": 1024, "trmm": 1024, "syrk": 2048, "tree": 1024}
"""Smaller products do not fill a GPU. For potrf this is the leaf of its solves; for the diagonal
blocks that are factored by one call see `at_once`."""

LARGEST_COVARIANCE = 2.0
"""A bound of the right-hand sides of solves with planes: tiles of a Σ whose diagonal is below 2."""

AT_ONCE_ORDER_ON_GPU = 4096
"""Diagonal blocks up to this order are factored by one call of cuSOLVER. In FP32 it takes 0.41 ms
at order 1,024 and 1.61 ms at 4,096, on an H200: as much as four blocks of a quarter, without the
launches between them."""


def leaf_size(name, n, forms, on="cpu"):
    """Return the leaf size of a routine, by its LAPACK name, or of a "tree", for order n."""
    if on != "cpu":
        return min(GPU_LEAVES[name], max(n, 1))
    # this takes noticeable time for small matrices
    one = len(forms) == 1 or not any(form.coarser_than(forms[-1].dtype) for form in forms)
    if one:
        leaves = EQUAL_SPEED_LEAVES if name == "tree" else ONE_FORMAT_LEAVES
    elif forms[-1] is FP64 or any(map(blas.on_matrix_units, forms)):
        leaves = FAST_PRODUCT_LEAVES
    elif any(map(blas.has_unit, forms)):
        one_leaf = n <= ONE_LEAF_ORDER and name != "tree"
        leaves = ONE_FORMAT_LEAVES if one_leaf else FAST_PRODUCT_LEAVES
    else:
        leaves = EQUAL_SPEED_LEAVES
    return min(leaves[name], max(n, 1))


def at_once(a, forms):
    """Return the largest order of a diagonal block that one call of cuSOLVER factors.

    0 on a CPU, where only leaves are factored by one call. A whole FP64 matrix is, if cuSOLVER can
    index it.
    """
    if not backend_of(a).on_gpu:
        return 0
    largest = gpu.LARGEST_INDEX // leading(a if by_columns(a) else a.T)
    whole = set(forms) == {FP64} and len(a) <= largest
    return largest if whole else min(AT_ONCE_ORDER_ON_GPU, largest)


def halve(n, leaf):
    """Return the size of the first half, a multiple of 128 (or of the leaf) near n/2."""
    step = min(CUT_MULTIPLE, leaf)
    return max(step, round(n / 2 / step) * step) if n > step else n // 2


def not_positive(order):
    """Return the error for a leading minor that is not positive."""
    return NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)


# Panels: columns in a coarse format, cast once when they are final and read by every product.
#
# A panel is cut at the leaves of the recursion. Where a bound of its values is known, its power of
# two follows from the bound: a GPU then need not report the largest magnitude, and the whole panel
# is multiplied at once. Otherwise each piece has its own power, and neighbouring pieces whose
# powers agree are multiplied together. The range of FP8 is too small for one bound: its pieces have
# their own powers (on a GPU, unknown to the CPU) until `Rows.close` casts the whole panel again.
# FP32, and the formats with its range, need a power only for FP64 numbers far from 1.

EXPONENT_STEP, LOWEST_PANEL_EXPONENT, HIGHEST_PANEL_EXPONENT = 64, -448, 960
"""Exponents of panels of FP64 numbers: with FP32's range multiples of 64. The lowest is that of
large numbers, where 2^-(a+b) must be finite for two panels."""


class Panel:
    """An (m, n) matrix in one format, in pieces of columns, each with its exponent.

    On the device and in the layout of `like`. `bound` is an upper bound of the magnitudes. The
    numbers are those of the format, held in `dtype`: by default in FP32 where the format has
    no products of its own.
    """

    def __init__(self, form, shape, like, bound=None, dtype=None):
        self.form, self.bound, self.exponents = form, bound, {}
        dtype = dtype or backend_of(like).panel_dtype(form)
        # whether only the GPU will know the exponents; its units for FP8 read rows
        self._unknown = form.narrow and bound is not None and backend_of(like).on_gpu
        order = "C" if self._unknown or not by_columns(like) else "F"
        if form.columns:
            self.values = backend_of(like).empty((*shape, 2), dtype, like)
        else:
            self.values = padded(shape, dtype, like, order)

    @classmethod
    def of(cls, form, array, bound=None, step=None, dtype=None):
        """Return an FP32 or FP64 view in a format, in pieces of `step` columns, or whole."""
        panel = cls(form, array.shape, array, bound, dtype)
        panel.fill(array, step)
        return panel

    def stored(self):
        """Return the panel with numbers of the format's own type, which takes the least memory."""
        if self.values.dtype == self.form.dtype:
            return self
        packed = Panel(self.form, self.shape, self.values, self.bound, self.form.dtype)
        packed.exponents = self.exponents
        backend_of(self.values).round_into(packed.values, self.values, self.form, 0)
        return packed

    @property
    def shape(self):
        """(m, n)."""
        return self.values.shape[:2]

    @property
    def nbytes(self):
        """Bytes of the values."""
        return self.values.nbytes

    def fill(self, array, step=None):
        """Cast all columns, in pieces of `step` of them, or whole."""
        columns = array.shape[1]
        step = step or max(columns, 1)
        for first in range(0, columns, step):
            piece = slice(first, min(first + step, columns))
            self.put(piece, array[:, piece])

    def put(self, columns, array):
        """Cast some columns, which are final, from an FP32 or FP64 view.

        Raises InvalidInput if a value is not finite and no bound is given.
        """
        backend = backend_of(array)
        if self._unknown:
            exponent = backend.exponent_of(array, self.form)
        else:
            bounded = self.bound is not None and not self.form.narrow
            largest = self.bound if bounded else backend.largest(array)
            exponent, most = self.form.exponent_for(largest), FP64.largest
            if self.bound is None:
                if array.dtype == np.float64:
                    exponent = _exponent_of_fp64(largest, self.form)
                exponent = exponent // self.form.step * self.form.step
                most = self.form.largest * 2.0**-exponent
            # an entry above the bound ends as a pivot that is not positive
            if not largest <= most:
                raise InvalidInput(
                    f"the matrix holds or reaches {largest}, which {self.form.name} cannot "
                    "represent: check its entries, or scale it."
                )
        self.exponents[columns.start, columns.stop] = exponent
        backend.round_into(self.values[:, columns], array, self.form, exponent)

    def runs(self, columns):
        """Yield (columns, exponent) within a range, neighbours of one power joined."""
        joined = []
        for (first, stop), exponent in sorted(self.exponents.items()):
            first, stop = max(first, columns.start), min(stop, columns.stop)
            if first >= stop:
                continue
            if joined and joined[-1][1] == first and _equal(joined[-1][2], exponent):
                joined[-1] = (joined[-1][0], stop, exponent)
            else:
                joined.append((first, stop, exponent))
        for first, stop, exponent in joined:
            yield slice(first, stop), exponent

    def widen(self, rows, columns, out):
        """Write some of the values into an FP32 or FP64 view."""
        backend = backend_of(out)
        for run, exponent in self.runs(columns):
            part = slice(run.start - columns.start, run.stop - columns.start)
            backend.widen_into(out[:, part], self.values[rows, run], self.form, exponent)


def _exponent_of_fp64(largest, form):
    """Return the exponent of a panel of FP64 numbers, at the top of the range or towards 1."""
    if not 0 < largest < np.inf:
        return 0
    order = frexp(largest)[1]
    exponent = (
        -round(order / EXPONENT_STEP) * EXPONENT_STEP if form.top is None else form.top - order
    )
    lowest = LOWEST_PANEL_EXPONENT if form.top is None else -LARGEST_EXPONENT
    return max(lowest, min(HIGHEST_PANEL_EXPONENT, exponent))


def _equal(a, b):
    """Return whether two exponents are known to be equal; on a GPU, whether they are one array."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def add_product(c, left, rows, right, others, alpha, source=None):
    """C <- C + α L[rows, source] R[others]' for panels of one format: exact, summed in FP32.

    C is an FP32 or FP64 view; `source`, all columns of L if not given, are the columns of R.
    """
    backend = backend_of(c)
    source = slice(0, left.shape[1]) if source is None else source
    for run, a in left.runs(source):
        inner = slice(run.start - source.start, run.stop - source.start)
        for part, b in right.runs(inner):
            mine = slice(part.start + source.start, part.stop + source.start)
            x, y = left.values[rows, mine], right.values[others, part]
            backend.product(c, x, y, left.form, backend.scale_of(alpha, a, b))


def _add_product_of_rows(c, left, source, right, alpha):
    """C <- C + α L[:, source] R, where `source` are the rows of R; its pieces are columns of C."""
    backend = backend_of(c)
    for part, b in right.runs(slice(0, right.shape[1])):
        for run, a in left.runs(source):
            inner = slice(run.start - source.start, run.stop - source.start)
            x, y = left.values[:, run], right.values[inner, part].T
            backend.product(c[:, part], x, y, left.form, backend.scale_of(alpha, a, b))


def _add_square(c, panel, rows, alpha):
    """Lower triangle of C <- C + α P P' for some rows P of a panel; see `add_product`."""
    backend = backend_of(c)
    if backend.squares(panel):
        for run, exponent in panel.runs(slice(0, panel.shape[1])):
            scale = backend.scale_of(alpha, exponent, exponent)
            backend.add_square(c, panel.values[rows, run], panel.form, scale)
        return
    total = backend.zeros(c.shape, c.dtype, c, order_of(c))
    add_product(total, panel, rows, panel, rows, alpha)
    backend.add_lower(c, total)


def padded(shape, dtype, like, order):
    """Return an uninitialized array whose long strides are not multiples of 1,024 bytes.

    Columns at such strides compete for the same sets of a cache, which makes products slower.
    """
    dtype = np.dtype(dtype)
    long = shape[0] if order == "F" else shape[1]
    stride = -(-long * dtype.itemsize // 64) * 64
    stride += 64 if stride % 1024 == 0 else 0
    padded_long = stride // dtype.itemsize
    whole = (padded_long, shape[1]) if order == "F" else (shape[0], padded_long)
    return backend_of(like).empty(whole, dtype, like, order)[: shape[0], : shape[1]]


# Triangles, and the rows that they act on


@dataclass
class Triangle:
    """The lower triangle of a square view, by halves.

    `forms` are the formats of the off-diagonal blocks of this level and of those within; the last
    repeats. `unit` says whether the diagonal is taken to be ones, `first` is the number of the
    first row in the whole matrix, `bound` an upper bound of the magnitudes of the factor's entries
    (see `Panel`), and `quarter` whether this is part of a triangle that `quarters` returned.
    Diagonal blocks up to order `whole` are factored without halving, if they are one view. `planes`
    is the format in which a GPU multiplies the transposed inverses of leaves, FP32 if None.
    `panels` has the off-diagonal block, cast, by its formats, once it is final.
    """

    a: object
    forms: tuple
    leaf: int
    unit: bool = False
    first: int = 0
    bound: float | None = None
    quarter: bool = False
    whole: int = 0
    planes: object = None

    def __post_init__(self):
        self.order = n = len(self.a)
        self.half = h = halve(n, self.leaf) if n > self.leaf else 0
        self.panels, self._prepared = {}, {}
        if h:
            inner = self.forms[1:] or self.forms
            self.a11 = replace(self, a=self.a[:h, :h], forms=inner)
            self.a22 = replace(self, a=self.a[h:, h:], forms=inner, first=self.first + h)

    def is_one_view(self, largest):
        """Return whether this is stored as one view, of at most a given order."""
        return self.order <= largest

    def open(self):
        """Return A21 to be overwritten."""
        return self.a[self.half :, : self.half]

    def close(self, block):
        """Store the changed A21; for a view there is nothing to do."""

    def keep(self, rows, read_again):
        """Store the final A21, with its casts if they will be read again."""
        self.panels = rows.panels if read_again else {}

    def release(self):
        """Free all casts, which will not be read again."""
        self.panels = {}
        if self.half:
            self.a11.release()
            self.a22.release()

    def cast(self, form):
        """Return A21 as a panel in a format, cast when it is first needed."""
        if form not in self.panels:
            self.panels[form] = Panel.of(form, self.open(), self.bound)
        return self.panels[form]

    def read_in(self, form):
        """Return this triangle with all blocks read in one format; the casts are shared."""
        same = copy(self)
        same.forms = (form,)
        if self.half:
            same.a11, same.a22 = self.a11.read_in(form), self.a22.read_in(form)
        return same

    def quarters(self):
        """Return a leaf, read in its format, as a triangle whose leaves are a quarter of it."""
        known, form = self._prepared, self.forms[-1]
        if "quarters" not in known:
            leaf, same = -(-self.leaf // 4), (self.unit, self.first, self.bound)
            known["quarters"] = Triangle(
                self.a, self.forms, leaf, *same, quarter=True, planes=self.planes
            )
        if form not in known:
            known[form] = known["quarters"].read_in(form)
        return known[form]

    def invert_as(self, inverse):
        """Store the inverse of a leaf."""
        self._prepared["inverse"] = inverse

    def inverse(self):
        """Return the inverse of a leaf on a GPU, zeros above the diagonal, made once."""
        if "inverse" not in self._prepared:
            self._prepared["inverse"] = _inverse_of(self.a, self.unit)
        return self._prepared["inverse"]

    def inverse_in_planes(self):
        """Return the inverse of a leaf in planes, (n, n, 2), and the α of B X'.

        α is for a B in planes with the exponent of `LARGEST_COVARIANCE`.
        """
        if "planes" not in self._prepared:
            inverse, backend = self.inverse(), backend_of(self.a)
            exponent = backend.exponent_of(inverse, FP16)
            values = backend.empty((*inverse.shape, 2), FP16.dtype, inverse)
            backend.round_into(values, inverse, self.planes, exponent)
            none = backend.zeros(2, np.int32, inverse)
            scale = 2.0 ** -self.planes.exponent_for(LARGEST_COVARIANCE)
            self._prepared["planes"] = values, backend.scale_of(scale, exponent, none)
        return self._prepared["planes"]


class Rows:
    """The rows of a block that a triangle acts on, (m, n): an FP32 or FP64 view and its casts.

    `forms` are the formats in which it will be read; those coarser than its numbers have a cast.
    `bound`: see `Panel`.
    """

    def __init__(self, array, forms, bound=None):
        coarse = [form for form in dict.fromkeys(forms) if form.coarser_than(array.dtype)]
        self.array, self.backend = array, backend_of(array)
        self.panels = {form: Panel(form, array.shape, array, bound) for form in coarse}
        self._copy, self._first = None, 0

    @contextmanager
    def copied(self, columns):
        """Let `target` be a copy of some columns, from which a product makes the final ones."""
        part = self.array[:, columns]
        self._copy = self.backend.empty(part.shape, part.dtype, part, order_of(part))
        self._first = columns.start
        self.backend.assign(self._copy, part)
        yield
        self._copy = None

    def target(self, columns):
        """Return columns that updates change."""
        if self._copy is None:
            return self.array[:, columns]
        return self._copy[:, columns.start - self._first : columns.stop - self._first]

    def finish(self, columns):
        """Cast columns that are final."""
        for panel in self.panels.values():
            panel.put(columns, self.array[:, columns])

    def finish_all(self, step):
        """Cast all columns, which are final, in pieces."""
        for panel in self.panels.values():
            panel.fill(self.array, step)

    def close(self):
        """Give panels of narrow formats one power of two, now that all columns are final."""
        for panel in self.panels.values():
            if panel.form.narrow and len(panel.exponents) > 1:
                panel.exponents.clear()
                panel.fill(self.array)


def _split(columns, half):
    middle = columns.start + half
    return slice(columns.start, middle), slice(middle, columns.stop)


def solve(t, b, columns, transposed):
    """B <- B T'⁻¹ (transposed) or B T⁻¹, for some columns of B.

    [B1 B2] <- [B1 B2] [T11     ]⁻'    or with ⁻¹
                       [T21  T22]
    """
    if not t.half:
        _solve_leaf(t, b, columns, transposed)
        return
    one, two = _split(columns, t.half)
    if transposed:
        # B1 <- B1 T11'⁻¹
        solve(t.a11, b, one, True)
        # B2 <- B2 - B1 T21'
        update(b, two, one, t, True, -1.0)
        # B2 <- B2 T22'⁻¹
        solve(t.a22, b, two, True)
    else:
        # B2 <- B2 T22⁻¹
        solve(t.a22, b, two, False)
        # B1 <- B1 - B2 T21
        update(b, one, two, t, False, -1.0)
        # B1 <- B1 T11⁻¹
        solve(t.a11, b, one, False)


def prepare(t, forms, exact=None):
    """Cast an FP32 triangle on a GPU and invert its leaves: other streams can `solve` with it.

    `forms` are those in which it will be read; see `Triangle.read_in`. `exact` is the same triangle
    in FP64, from which the inverses are then computed.
    """
    invert_leaves(t, exact)
    for part in _inner(t):
        for form in forms:
            if form.coarse:
                part.cast(form)


def _inner(t):
    """Yield the parts of a triangle that are halved, down to quarters of its leaves."""
    if t.half:
        yield t
        yield from _inner(t.a11)
        yield from _inner(t.a22)
    elif not t.quarter:
        yield from _inner(t.quarters())


def _quarters(t):
    """Return the quarters of the leaves of a triangle, from the top."""
    if t.half:
        return _quarters(t.a11) + _quarters(t.a22)
    return [t] if t.quarter else _quarters(t.quarters())


def invert_leaves(t, exact=None):
    """Invert the quarters of a triangle's leaves on a GPU, all at once if they are of one order.

    `exact` is the same triangle in FP64, from which the inverses are then computed.
    """
    if t.order > AT_ONCE_ORDER_ON_GPU and t.half:
        # the inverses are parts of a matrix in FP64
        for part, rows in ((t.a11, slice(0, t.half)), (t.a22, slice(t.half, None))):
            invert_leaves(part, None if exact is None else exact[rows, rows])
        return
    leaves = _quarters(t)
    order = leaves[0].order
    if all(leaf.order == order for leaf in leaves) and gpu.can_invert(order):
        for leaf, inverse in zip(
            leaves, gpu.inverses(t.a if exact is None else exact, order), strict=True
        ):
            leaf.invert_as(inverse)
    for leaf in leaves:
        (leaf.inverse_in_planes if leaf.planes else leaf.inverse)()


def inverts(array, bound):
    """Return whether leaves are solved by inverses: in FP32 on a GPU.

    Factors, which have a bound, are well scaled; the inverses of other triangles may overflow.
    """
    return backend_of(array).on_gpu and array.dtype == np.float32 and bound is not None


def _solve_leaf(t, b, columns, transposed):
    """As `solve`, for a leaf. In FP32 a GPU halves it further, down to products with inverses."""
    part = b.array[:, columns]
    if not inverts(part, t.bound):
        b.backend.trsm(t.a, part, transposed, t.unit)
    elif t.quarter and t.planes:
        # B <- B X', from B's planes
        inverse, alpha = t.inverse_in_planes()
        left = Panel(t.planes, part.shape, part, LARGEST_COVARIANCE)
        left.put(slice(0, part.shape[1]), part)
        b.backend.product(part, left.values, inverse, t.planes, alpha, 0.0)
    elif t.quarter:
        # B <- B X' or B X
        inverse = t.inverse().T if transposed else t.inverse()
        b.backend.gemm(part, b.target(columns), inverse, 1.0, 0.0)
    else:
        with nullcontext() if t.planes else b.copied(columns):
            solve(t.quarters(), b, columns, transposed)
        return
    b.finish(columns)


def multiply(t, b, columns, transposed):
    """B <- B T' (transposed) or B T, for some columns of B, whose casts are those of the old B.

    [B1 B2] <- [B1 B2] [T11     ]'    or without '
                       [T21  T22]
    """
    if not t.half:
        b.backend.trmm(t.a, b.array[:, columns], transposed, t.unit)
        return
    one, two = _split(columns, t.half)
    if transposed:
        # B2 <- B2 T22'
        multiply(t.a22, b, two, True)
        # B2 <- B2 + B1 T21'
        update(b, two, one, t, True, 1.0)
        # B1 <- B1 T11'
        multiply(t.a11, b, one, True)
    else:
        # B1 <- B1 T11
        multiply(t.a11, b, one, False)
        # B1 <- B1 + B2 T21
        update(b, one, two, t, False, 1.0)
        # B2 <- B2 T22
        multiply(t.a22, b, two, False)


def update(b, to, source, t, transposed, alpha):
    """B_to <- B_to + α B_source T21' (transposed) or T21, in the format of that block."""
    form, target = t.forms[0], b.target(to)
    if form not in b.panels:
        block = t.open().T if transposed else t.open()
        b.backend.gemm(target, b.array[:, source], block, alpha, 1.0)
        return
    left, right = b.panels[form], t.cast(form)
    if transposed:
        every = slice(None)
        add_product(target, left, every, right, every, alpha, source)
    else:
        _add_product_of_rows(target, left, source, right, alpha)


def rank_k(t, rows, b, forms, alpha, least=0, done=None):
    """Lower triangle of C, a `Triangle`, <- C + αBB' for some rows of B, by halves of C.

        C11 <- C11 + αB1B1',  C21 <- C21 + αB2B1',  C22 <- C22 + αB2B2'

    `forms` are the formats of C21 and of the off-diagonal blocks within C11 and C22, from the
    outermost inwards; the last one repeats and is the format of the leaves. Triangles up to order
    `least` are not halved. `done` is a part of C that has been updated already.
    """
    if t is done:
        return
    if not t.half or t.is_one_view(least):
        form = forms[-1]
        if form in b.panels:
            _add_square(t.a, b.panels[form], rows, alpha)
        else:
            b.backend.syrk(t.a, b.array[rows], alpha, 1.0)
        return
    (one, two), form, inner = _split(rows, t.half), forms[0], forms[1:] or forms
    # C11 <- C11 + αB1B1'
    rank_k(t.a11, one, b, inner, alpha, least, done)
    # C21 <- C21 + αB2B1'
    block = t.open()
    if form in b.panels:
        add_product(block, b.panels[form], two, b.panels[form], one, alpha)
    else:
        b.backend.gemm(block, b.array[two], b.array[one].T, alpha, 1.0)
    t.close(block)
    # C22 <- C22 + αB2B2'
    rank_k(t.a22, two, b, inner, alpha, least, done)


# Cholesky factorization by halves. On a GPU the CPU waits only at the end, and a second stream
# factors the first block of A22 while the others are updated.


def _is_factored_at_once(t):
    return not t.half or t.is_one_view(t.whole)


def leaves(t):
    """Return the blocks of a triangle that are factored at once, from the top."""
    if _is_factored_at_once(t):
        return [t]
    return leaves(t.a11) + leaves(t.a22)


def factor_by_halves(t, forms):
    """Factor a triangle by halves; `forms` are all formats in which its blocks will be read.

        A11 = L11 L11',  A21 <- A21 L11⁻',  A22 <- A22 - A21 A21',  A22 = L22 L22'

    Raises NotPositiveDefinite with the order of the first leading minor that is not positive. On a
    GPU it is known at the end only, so that the GPU need not wait.
    """
    pivots = _Pivots(leaves(t))
    try:
        with pivots.threads(forms):
            _factor(t, forms, pivots)
    except BaseException:
        # the memory that is freed now may still be used on the GPU
        pivots.synchronize()
        raise
    pivots.check()


def _factor(t, forms, pivots, last=True):
    """As `factor_by_halves`; `last` says that no other block will be solved with this factor."""
    if pivots.join(t):
        return
    if _is_factored_at_once(t):
        pivots.factor(t)
        if not last and inverts(t.a, t.bound):
            invert_leaves(t)
        return
    # A11 = L11 L11'
    _factor(t.a11, forms, pivots, False)
    # A21 <- A21 L11⁻', in the format of A21
    rows = Rows(t.open(), forms, t.bound)
    solve(t.a11.read_in(t.forms[0]), rows, slice(0, t.half), True)
    rows.close()
    t.keep(rows, read_again=not last)
    if last:
        t.a11.release()
    # A22 <- A22 - A21 A21'; A21 has been rounded to its format, in which paper 000 stores it: a
    # finer format would give the same products
    form, done = t.forms[:1], None
    if rows.backend.on_gpu:
        done = _factor_beside(t.a22, rows, form, forms, pivots)
    least = _least(t.a22, rows, *form)
    rank_k(t.a22, slice(0, t.a22.order), rows, form, -1.0, least, done)
    del rows
    # A22 = L22 L22'
    _factor(t.a22, forms, pivots, last)


def _least(t, rows, form):
    """Return the order up to which a triangle is updated by one product or syrk, not by halves."""
    if rows.backend.on_gpu:
        return 2 * t.leaf
    # without a panel, in FP32 or FP64 throughout, halves give the bits of a `SymmetricTree`
    panel = rows.panels.get(form)
    return ONE_FORMAT_LEAVES["syrk"] if panel and rows.backend.squares(panel) else 0


def _factor_beside(t, rows, form, forms, pivots):
    """Update the first block of A22 and factor it on a second stream; return it, or None."""
    # smaller products do not fill a GPU
    least, first = max(2 * t.leaf, t.whole), t
    while first.half and not first.is_one_view(least):
        first = first.a11
    if first is t:
        return None
    rank_k(first, slice(0, first.order), rows, form, -1.0, least)
    with pivots.beside(first):
        _factor(first, forms, pivots, False)
    return first


class _Pivots:
    """Factors the leaves and checks the info words: on a GPU all at once, at the end."""

    def __init__(self, leaves):
        first = leaves[0].a
        self._leaves, self._backend = leaves, backend_of(first)
        self._words = None
        if self._backend.on_gpu:
            self._words = self._backend.zeros(len(leaves), np.int32, first)
        self.threads = self._backend.threads
        self._next = iter(range(len(leaves)))
        self._beside, self._moment = None, None

    def factor(self, t):
        """Factor the next leaf."""
        if not len(t.a):
            return
        if self._words is None:
            info = self._backend.potrf(t.a)
            if not np.isfinite(t.a[-1, -1]):
                # some libraries go on after a NaN
                first = int(np.flatnonzero(~np.isfinite(t.a.diagonal()))[0]) + 1
                info = min(info or first, first)
            _check_leaf(t, info)
        else:
            k = next(self._next)
            self._backend.potrf(t.a, self._words[k : k + 1])

    def _current(self):
        return self._backend.xp.cuda.get_current_stream()

    @contextmanager
    def beside(self, t):
        """Factor a block on a second stream, concurrently with the operations that follow.

        The block must not be read or written again before `join`. Memory allocated here is reused
        by this stream only, so no other stream overwrites it.
        """
        with self._words.device:
            now = self._current().record()
            (stream,) = streams(self._words.device.id, 1)
            stream.wait_event(now)
            with stream:
                yield
                self._moment = stream.record()
        self._beside = t

    def join(self, t):
        """Return whether a block was factored on the second stream, after a wait for it."""
        if t is not self._beside:
            return False
        with self._words.device:
            self._current().wait_event(self._moment)
        return True

    def synchronize(self):
        """Wait until the GPU has executed the operations of both streams."""
        if self._words is not None:
            with self._words.device:
                streams(self._words.device.id, 1)[0].synchronize()
                self._current().synchronize()

    def check(self):
        """Raise `NotPositiveDefinite` if a leaf on a GPU has no factor."""
        if self._words is not None:
            for t, info in zip(self._leaves, self._words.get().tolist(), strict=True):
                _check_leaf(t, info)


def _check_leaf(t, info):
    if info:
        raise not_positive(t.first + info)


# Triangles inverted and multiplied in place, by halves, without a second matrix.
#
#     L = [L11    ]    L⁻¹ = [     L11⁻¹             ]    L'L  = [L11'L11 + L21'L21         ]
#         [L21 L22]          [-L22⁻¹ L21 L11⁻¹  L22⁻¹]           [L22'L21            L22'L22]
#
#                                                         L L' = [L11 L11'                  ]
#                                                                [L21 L11'  L21L21' + L22L22']
#
# No block is read after it is written. The inverse and L'L are LAPACK's trtri and lauum; L'L of L⁻¹
# is the inverse of the matrix whose factor is L.


def invert(t):
    """Overwrite a triangle of FP64 or FP32, with nothing in a coarser format, with its inverse."""
    if not t.half:
        _put(t.a, _inverse_of(t.a))
        return
    block = t.open()
    # L21 <- L21 L11⁻¹
    solve(t.a11, Rows(block, ()), slice(0, t.half), False)
    # L21 <- -L22⁻¹ L21, its transpose from the right
    solve(t.a22, Rows(block.T, ()), slice(0, len(block)), True)
    with device_of(block):
        block *= -1.0
    invert(t.a11)
    invert(t.a22)


def gram(t):
    """Overwrite a triangle L with the lower triangle of L'L; see `invert`."""
    if not t.half:
        _put(t.a, _square(t.a, True))
        return
    block = t.open()
    gram(t.a11)
    # A11 <- L11'L11 + L21'L21
    rank_k(t.a11, slice(0, t.half), Rows(block.T, ()), t.forms, 1.0)
    # A21 <- L22'L21, its transpose from the right
    multiply(t.a22, Rows(block.T, ()), slice(0, len(block)), False)
    gram(t.a22)


def outer(t):
    """Overwrite a triangle L with the lower triangle of L L'; see `invert`."""
    if not t.half:
        _put(t.a, _square(t.a, False))
        return
    block = t.open()
    outer(t.a22)
    # A22 <- L22 L22' + L21 L21'
    rank_k(t.a22, slice(0, len(block)), Rows(block, ()), t.forms, 1.0)
    # A21 <- L21 L11'
    multiply(t.a11, Rows(block, ()), slice(0, t.half), True)
    outer(t.a11)


def congruence_in_place(t, a):
    """Overwrite a whole symmetric matrix with L⁻¹A L⁻ᵀ, whole, for the triangle L."""
    # A <- L⁻¹A, its transpose from the right, then A <- A L⁻ᵀ
    for side in (a.T, a):
        solve(t, Rows(side, ()), slice(0, len(a)), True)


def _inverse_of(lower, unit=False):
    """Return the inverse of a small triangle, zeros above the diagonal, in Fortran order."""
    backend = backend_of(lower)
    with backend.on(lower):
        one = backend.xp.eye(len(lower), dtype=lower.dtype, order="F")
    return backend.trsm(lower, one, False, unit)


def _square(lower, transposed):
    """Return L'L or L L' of a small triangle, whole."""
    backend = backend_of(lower)
    with backend.on(lower):
        a = backend.xp.tril(lower)
    a = a.T if transposed else a
    return backend.gemm(backend.empty(a.shape, a.dtype, a), a, a.T, 1.0, 0.0)


def _put(a, values):
    """Write the lower triangle of some values into a view."""
    xp = backend_of(a).xp
    with device_of(a):
        xp.copyto(a, values, where=xp.tri(len(a), dtype=bool))


# LAPACK's operations on one FP64 array: potrf, trsm, trmm, potri, congruence.
#
# NumPy and CuPy arrays are in Fortran order. Only the lower triangle of a symmetric or triangular
# matrix is read or written. NumPy arrays go to LAPACK; on a GPU, large ones go by halves. The same
# operations on tiles in stated formats: `linalg.mixed`.


LARGEST_DPOTRF_ORDER = 8192
"""NumPy arrays above this order are factored by halves: OpenBLAS 0.3.30's dpotrf on two threads
crashes the process at orders 16,000, 16,300 and 16,384 (not at 15,000)."""

GPU_LEAF_ORDER = 2048
"""Triangles up to this order go to cuBLAS and cuSOLVER whole, larger ones by halves."""

CPU_INVERSE_LEAF_ORDER, COPIED_COLUMNS = 256, 256
"""Order of the leaves of a triangle in RAM that is inverted in place; columns that are copied at a
time."""


def fast_underflow(a):
    """Return `subnormals_as_zero` where many products of entries of a matrix in RAM underflow.

    This happens for ranges below about 1/300 of the extent. Many processors are slow with subnormal
    numbers; the factor is the same.
    """
    if backend_of(a).on_gpu:
        return nullcontext()
    row = np.abs(a[-1])
    scale, digits = float(row[-1]), 1 if a.dtype == FP64.dtype else 1 / 8
    if not 1e-100**digits < scale < 1e100**digits:
        # the results themselves may be near the smallest or the largest numbers
        return nullcontext()
    tiny = (row < scale * 1e-150**digits) & (row > 0)
    return subnormals_as_zero() if tiny.any() else nullcontext()


def potrf(a):
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor; return it.

    Raises NotPositiveDefinite with the order of the first leading minor that is not positive.
    """
    if backend_of(a).on_gpu:
        # cuSOLVER counts the entries of one array; smaller leaves leave less to cuBLAS's syrk
        largest = gpu.LARGEST_INDEX // leading(a)
        leaf = min(GPU_LEAF_ORDER, largest)
    else:
        largest, leaf = LARGEST_DPOTRF_ORDER, LARGEST_DPOTRF_ORDER // 2
    if len(a) > largest:
        with blas.cores(usable_cores()):
            triangle = Triangle(a, (FP64,), leaf, whole=at_once(a, (FP64,)))
            factor_by_halves(triangle, (FP64,))
        return a
    if backend_of(a).on_gpu:
        # cupy.linalg.cholesky ignores failure
        info = gpu.factor("L", a)
    else:
        with fast_underflow(a):
            factor, info = scipy.linalg.lapack.dpotrf(a, lower=1, clean=0, overwrite_a=1)
        if factor is not a and not np.shares_memory(factor, a):
            a[...] = factor
    if info:
        raise not_positive(info)
    return a


def trsm(lower, b, transposed=False):
    """Return the x of L x = b, or L'x = b, for a lower triangular L and b of (n,) or (n, m).

    In L's type, FP64 or FP32.
    """
    if backend_of(lower).on_gpu:
        # op(L) X = B is X' op(L)' = B'
        return _from_the_right(solve, lower, b, not transposed)
    lapack = scipy.linalg.lapack
    trtrs = lapack.dtrtrs if lower.dtype == FP64.dtype else lapack.strtrs
    x, info = trtrs(lower, b, lower=1, trans=transposed)
    _check_diagonal(info)
    return x


def trmm(lower, x):
    """Return L x for a lower triangular L and an (n, m) array."""
    if backend_of(lower).on_gpu:
        return _from_the_right(multiply, lower, x, True)
    return scipy.linalg.blas.dtrmm(1.0, lower, x, lower=1)


def _from_the_right(work, lower, b, transposed):
    """Return a copy of an array on which a triangle has acted, on their GPU, current or not."""
    with lower.device:
        x = b.astype(lower.dtype, order="F")
    rows = Rows(x.reshape(len(x), -1, order="F").T, ())
    work(_triangle(lower), rows, slice(0, len(lower)), transposed)
    return x


def potri(lower):
    """Overwrite a Cholesky factor with the lower triangle of its matrix's inverse, L⁻'L⁻¹.

    On a GPU, too, no second matrix of its size is allocated.
    """
    return inverse_from(inverted(lower))


def inverted(lower):
    """Overwrite a Cholesky factor with its inverse."""
    if backend_of(lower).on_gpu:
        invert(_triangle(lower))
        return lower
    inverse, info = _lapack("trtri", lower)(lower, lower=1, overwrite_c=1)
    _check_diagonal(info)
    return inverse


def inverse_from(inverse):
    """Overwrite L⁻¹ with the lower triangle of L⁻'L⁻¹, the inverse of the matrix."""
    if backend_of(inverse).on_gpu:
        gram(_triangle(inverse))
        return inverse
    product, _ = _lapack("lauum", inverse)(inverse, lower=1, overwrite_c=1)
    return product


def whitened_diagonal(inverse, diagonal):
    """Return the lower triangle of L⁻¹DL⁻ᵀ for a diagonal D >= 0, (n,), given L⁻¹, which stays."""
    weights = None if (diagonal == 1).all() else np.sqrt(diagonal)
    on_gpu, single = backend_of(inverse).on_gpu, inverse.dtype == FP32.dtype
    if on_gpu or single or weights is not None:
        # in one matrix besides L⁻¹
        triangle = _triangle(_lower_copy(inverse, weights))
        outer(triangle)
        return triangle.a
    # LAPACK multiplies U U': with rows and columns reversed a lower triangle is an upper one
    turned = np.asfortranarray(inverse[::-1, ::-1])
    product, _ = scipy.linalg.lapack.dlauum(turned, lower=0, overwrite_c=1)
    return np.asfortranarray(product[::-1, ::-1])


def congruence(lower, a):
    """Overwrite a symmetric matrix A with L⁻¹A L⁻ᵀ; on a GPU its upper triangle as well."""
    if backend_of(lower).on_gpu:
        mirror(a)
        congruence_in_place(_triangle(lower), a)
        return a
    if lower.dtype == FP32.dtype:
        return blas.congruence(lower, a)
    result, info = scipy.linalg.lapack.dsygst(a, lower, itype=1, lower=1, overwrite_a=1)
    if info:
        raise ValueError(f"argument {-info} of dsygst is invalid.")
    return result


def _triangle(lower):
    """Return a matrix of FP64 or FP32 as a `Triangle` in that format."""
    leaf = GPU_LEAF_ORDER if backend_of(lower).on_gpu else CPU_INVERSE_LEAF_ORDER
    return Triangle(lower, (FP32 if lower.dtype == FP32.dtype else FP64,), leaf)


def _lower_copy(lower, weights=None):
    """Return a copy of a lower triangle, its columns times the weights, (n,), if given.

    In RAM its upper triangle takes no memory.
    """
    backend = backend_of(lower)
    if weights is not None:
        weights = backend.put(weights.astype(lower.dtype), lower)
    if backend.on_gpu:
        copied = empty_matrix(len(lower), lower.device.id, lower.dtype)
        with lower.device:
            copied[...] = lower
            if weights is not None:
                copied *= weights
        return copied
    copied = np.empty_like(lower)
    for first in range(0, len(lower), COPIED_COLUMNS):
        columns = slice(first, first + COPIED_COLUMNS)
        part = lower[first:, columns]
        # what stands above the diagonal may be anything, NaN too
        copied[first:, columns] = part if weights is None else np.tril(part) * weights[columns]
    return copied


def _lapack(name, a):
    """Return LAPACK's routine for an array of FP64 or FP32 in RAM."""
    return getattr(scipy.linalg.lapack, ("s" if a.dtype == FP32.dtype else "d") + name)


def _check_diagonal(info):
    if info:
        raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)


def mirror(a):
    """Write the upper triangle of a matrix on a GPU from the lower one."""
    import cupy

    with a.device:
        for first in range(0, len(a), GPU_LEAF_ORDER):
            last = min(first + GPU_LEAF_ORDER, len(a))
            corner = a[first:last, first:last]
            cupy.copyto(corner, corner.T.copy(), where=cupy.tri(len(corner), dtype=bool).T)
            a[first:last, last:] = a[last:, first:last].T
