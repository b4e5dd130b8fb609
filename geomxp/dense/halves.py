"""The recursions of `dense.nested` and `dense.tree`, on blocks that are views or stored.

    A = [A11    ]    cut at a multiple of 128 near the middle,
        [A21 A22]    each half again, down to a leaf

All that is done to a block is done in its format. A block that is final is cast once, in one pass,
and read in that form by every product. Nothing here names a device.

Paper 000, algorithms 1-3; paper 003 for the triangular solve and product.
"""

from copy import copy
from dataclasses import dataclass, field

import numpy as np

from ..precision.formats import FP8
from . import panels, views, views_gpu, working
from .panels import LOW, Panel

MULTIPLE = 128
"""Where a matrix is cut: never at an odd size."""


def halve(n, leaf):
    """Return the size of the first half, a multiple of 128 (or of the leaf) near n/2."""
    step = min(MULTIPLE, leaf)
    return max(step, round(n / 2 / step) * step) if n > step else n // 2


@dataclass
class Triangle:
    """The lower triangle of a square view, by halves.

    Parameters
    ----------
    a : (n, n) view
    forms : tuple of Format
        Of the off-diagonal blocks of this level and of those within; the last repeats.
    leaf : int
    unit : bool
        Whether the diagonal stands for ones.
    first : int
        Number of its first row in the whole matrix.
    bound : float, optional
        Upper bound of the magnitudes of the factor's entries; see `Panel`.
    quarter : bool
        Whether this is part of a triangle that `quarters` returned.
    panels : dict of Format to Panel
        The off-diagonal block, cast, once it is final.
    """

    a: object
    forms: tuple
    leaf: int
    unit: bool = False
    first: int = 0
    bound: float | None = None
    quarter: bool = False
    panels: dict = field(default_factory=dict)

    def __post_init__(self):
        n = len(self.a)
        self.half = halve(n, self.leaf) if n > self.leaf else 0
        self._prepared = {}
        if self.half:
            h, inner = self.half, self.forms[1:] or self.forms
            about, more = (inner, self.leaf, self.unit), (self.bound, self.quarter)
            self.a11 = Triangle(self.a[:h, :h], *about, self.first, *more)
            self.a22 = Triangle(self.a[h:, h:], *about, self.first + h, *more)

    @property
    def order(self):
        """Rows and columns."""
        return len(self.a)

    def is_one_view(self, largest):
        """Return whether this is stored as one view, of at most a given order."""
        return len(self.a) <= largest

    def open(self):
        """Return A21 to be written over."""
        return self.a[self.half :, : self.half]

    def close(self, block):
        """Take A21 back; a view needs nothing done."""

    def keep(self, rows):
        """Take A21, final now, with its casts."""
        self.panels = rows.panels

    def cast(self, form):
        """Return A21 as a panel in a format, cast when it is first asked for."""
        if form not in self.panels:
            block = self.open()
            self.panels[form] = Panel(form, block.shape, block, self.bound)
            self.panels[form].put(slice(0, self.half), block)
        return self.panels[form]

    def read_in(self, form):
        """Return this triangle with all its blocks read in one format; the casts are shared."""
        same = copy(self)
        same.forms = (form,)
        if self.half:
            same.a11, same.a22 = self.a11.read_in(form), self.a22.read_in(form)
        return same

    def quarters(self):
        """Return a leaf as a triangle whose leaves are a quarter of it, made once.

        All of it is read in the format of the leaf.
        """
        if "quarters" not in self._prepared:
            about = self.unit, self.first, self.bound, True
            self._prepared["quarters"] = Triangle(self.a, self.forms, -(-self.leaf // 4), *about)
        return self._prepared["quarters"].read_in(self.forms[-1])

    def inverse(self):
        """Return the inverse of a leaf on a GPU, zeros above the diagonal, made once."""
        if "inverse" not in self._prepared:
            self._prepared["inverse"] = views_gpu.inverse(self.a, self.unit)
        return self._prepared["inverse"]


class Rows:
    """The rows of a block that a triangle acts on, (m, n): an FP32 or FP64 view and its casts.

    Parameters
    ----------
    array : (m, n) view
    forms : tuple of Format
        In which it will be read.
    bound : float, optional
        See `Panel`.
    """

    def __init__(self, array, forms, bound=None):
        low = [form for form in dict.fromkeys(forms) if form in LOW]
        self.array = array
        self.panels = {form: Panel(form, array.shape, array, bound) for form in low}

    def finish(self, columns):
        """Cast columns that are final."""
        for panel in self.panels.values():
            panel.put(columns, self.array[:, columns])

    def close(self):
        """Give panels of FP8 one power of two, now that all is final."""
        panel = self.panels.get(FP8)
        if panel is not None and len(panel.exponents) > 1:
            panel.exponents.clear()
            panel.put(slice(0, self.array.shape[1]), self.array)


def _split(columns, half):
    middle = columns.start + half
    return slice(columns.start, middle), slice(middle, columns.stop)


def solve(t, b, columns, transposed):
    """B <- B T'⁻¹ (transposed) or B T⁻¹, for some columns of B.

    B1 T11' = B1,  B2 <- B2 - B1 T21',  B2 T22' = B2
    B2 T22 = B2,   B1 <- B1 - B2 T21,   B1 T11 = B1
    """
    if not t.half:
        _solve_leaf(t, b, columns, transposed)
        return
    one, two = _split(columns, t.half)
    first, second = ((one, t.a11), (two, t.a22)) if transposed else ((two, t.a22), (one, t.a11))
    solve(first[1], b, first[0], transposed)
    update(b, second[0], first[0], t, transposed, -1.0)
    solve(second[1], b, second[0], transposed)


def prepare(t, forms):
    """Cast a triangle and invert its leaves on a GPU, so that other streams can `solve` with it.

    Parameters
    ----------
    t : Triangle
        Of FP32, on a GPU.
    forms : iterable of Format
        In which it will be read; see `Triangle.read_in`.
    """
    if t.half:
        for form in forms:
            if form in LOW:
                t.cast(form)
        prepare(t.a11, forms)
        prepare(t.a22, forms)
    elif t.quarter or len(t.a) == 1:
        t.inverse()
    else:
        prepare(t.quarters(), forms)


def _solve_leaf(t, b, columns, transposed):
    """As `solve`, for a leaf. In FP32 a GPU halves it further, down to products with inverses."""
    part = b.array[:, columns]
    # inverses are for factors, which are well scaled: of other triangles they may overflow
    if isinstance(part, np.ndarray) or part.dtype != np.float32 or t.bound is None:
        views.solve(t.a, part, transposed, t.unit)
    elif len(t.a) > 1 and not t.quarter:
        solve(t.quarters(), b, columns, transposed)
        return
    else:
        views_gpu.multiply_by_inverse(part, t.inverse(), transposed)
    b.finish(columns)


def multiply(t, b, columns, transposed):
    """B <- B T' (transposed) or B T, for some columns of B, whose casts are what B was.

    B2 <- B2 T22',  B2 <- B2 + B1 T21',  B1 <- B1 T11'
    B1 <- B1 T11,   B1 <- B1 + B2 T21,   B2 <- B2 T22
    """
    if not t.half:
        views.multiply(t.a, b.array[:, columns], transposed, t.unit)
        return
    one, two = _split(columns, t.half)
    first, second = ((two, t.a22), (one, t.a11)) if transposed else ((one, t.a11), (two, t.a22))
    multiply(first[1], b, first[0], transposed)
    update(b, first[0], second[0], t, transposed, 1.0)
    multiply(second[1], b, second[0], transposed)


def update(b, to, source, t, transposed, alpha):
    """B_to <- B_to + α B_source T21' (transposed) or T21, in the format of that block."""
    form, whole = t.forms[0], slice(0, b.array.shape[0])
    target = b.array[:, to]
    if form not in LOW:
        block = t.open().T if transposed else t.open()
        views.gemm(target, b.array[:, source], block, alpha, 1.0)
    elif transposed:
        _aligned(target, b.panels[form], source, t.cast(form), alpha, whole)
    else:
        _aligned_rows(target, b.panels[form], source, t.cast(form), alpha)


def _aligned(target, left, source, right, alpha, rows):
    """C <- C + α L[:, source] R' for panels that count their columns from different places."""
    others = slice(0, right.shape[0])
    for run, a in left.runs(source):
        inner = slice(run.start - source.start, run.stop - source.start)
        for part, b in right.runs(inner):
            mine = slice(part.start + source.start, part.stop + source.start)
            panels.product(
                *(target, left.values[rows, mine], right.values[others, part]),
                *(left.form, panels.scale_of(alpha, a, b)),
            )


def _aligned_rows(target, left, source, right, alpha):
    """C <- C + α L[:, source] R: the pieces of R are columns of C."""
    for part, b in right.runs(slice(0, right.shape[1])):
        for run, a in left.runs(source):
            inner = slice(run.start - source.start, run.stop - source.start)
            panels.product(
                *(target[:, part], left.values[:, run], right.values[inner, part].T),
                *(left.form, panels.scale_of(alpha, a, b)),
            )


def rank_k(t, rows, b, forms, alpha, least=0, done=None):
    """Lower triangle of C <- C + αBB' for some rows of B, by halves of C.

        C11 <- C11 + αB1B1',  C21 <- C21 + αB2B1',  C22 <- C22 + αB2B2'

    Parameters
    ----------
    t : Triangle
        C.
    rows : slice
    b : Rows
    forms : tuple of Format
        Formats of C21 and of the off-diagonal blocks within C11 and C22, from the outermost
        inwards. The last one repeats and is the format of the leaves.
    alpha : float
    least : int
        Triangles up to this order are not halved.
    done : Triangle, optional
        A part of C that has been updated already.
    """
    if t is done:
        return
    if not t.half or t.is_one_view(least):
        form = forms[-1]
        if form in LOW:
            total = working.zeros(t.a.shape, t.a)
            panels.multiply(total, b.panels[form], rows, b.panels[form], rows, alpha)
            working.add_lower(t.a, total)
        else:
            views.syrk(t.a, b.array[rows], alpha, 1.0)
        return
    (one, two), form, inner = _split(rows, t.half), forms[0], forms[1:] or forms
    rank_k(t.a11, one, b, inner, alpha, least, done)
    block = t.open()
    # C21 <- C21 + αB2B1'
    if form in LOW:
        panels.multiply(block, b.panels[form], two, b.panels[form], one, alpha)
    else:
        views.gemm(block, b.array[two], b.array[one].T, alpha, 1.0)
    t.close(block)
    rank_k(t.a22, two, b, inner, alpha, least, done)
