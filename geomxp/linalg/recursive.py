"""The recursions of `linalg.nested` and `linalg.nested`, on blocks that are views or stored.

    A = [A11    ]    cut at a multiple of 128 near the middle,
        [A21 A22]    each half again, down to a leaf

All that is done to a block is done in its format. A block that is final is cast once, in one pass,
and read in that form by every product. Nothing here names a device.

Paper 000, algorithms 1-3; paper 003 for the triangular solve and product.
"""

from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import scipy

from ..errors import NotPositiveDefinite
from ..linalg import blas, gpu, panels, views, working
from ..runtime.devices import usable_cores
from .device import device_of, empty_matrix
from .formats import FP8, FP64
from .panels import LOW, Panel, module

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
            self._prepared["inverse"] = gpu.inverse(self.a, self.unit)
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
        gpu.multiply_by_inverse(part, t.inverse(), transposed)
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


# The Cholesky factorization by halves; see `linalg.recursive`.
#
#     A11 = L11 L11',  A21 <- A21 L11⁻',  A22 <- A22 - A21 A21',  A22 = L22 L22'
#
# On a GPU the CPU does not wait before the end, and the first block of A22 is factored while the
# others are updated.


def leaves(t):
    """Return the leaves of a triangle from the top."""
    if not t.half:
        return [t]
    return leaves(t.a11) + leaves(t.a22)


def factor_by_halves(t, forms):
    """Factor a triangle by halves.

        A11 = L11 L11',  A21 <- A21 L11⁻',  A22 <- A22 - A21 A21',  A22 = L22 L22'

    Parameters
    ----------
    t : Triangle
    forms : tuple of Format
        All formats in which its blocks will be read.

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive. On a GPU it is known at the
        end only, so that the GPU need not wait.
    """
    pivots = _Pivots(leaves(t))
    try:
        _factor(t, forms, pivots)
    except BaseException:
        # memory is freed now, which the second stream may still use
        pivots.synchronize()
        raise
    pivots.check()


def _factor(t, forms, pivots):
    if pivots.join(t):
        return
    if not t.half:
        pivots.factor(t)
        return
    _factor(t.a11, forms, pivots)
    rows = Rows(t.open(), forms, t.bound)
    # all that is done to a block is done in its format
    solve(t.a11.read_in(t.forms[0]), rows, slice(0, t.half), True)
    rows.close()
    t.keep(rows)
    # A21 has been rounded to its format, in which paper 000 stores it: a finer format would give
    # the same products
    whole, form = slice(0, rows.array.shape[0]), t.forms[:1]
    if isinstance(rows.array, np.ndarray):
        rank_k(t.a22, whole, rows, form, -1.0)
    else:
        _update_on_gpu(t.a22, rows, form, forms, pivots)
    _factor(t.a22, forms, pivots)


def _update_on_gpu(t, rows, form, forms, pivots):
    """Update the lower triangle of A22 by -A21 A21'; factor its first block at the same time."""
    # a GPU is not filled by smaller products
    least, first = 2 * t.leaf, t
    while first.half and not first.is_one_view(least):
        first = first.a11
    if first is not t:
        rank_k(first, slice(0, first.order), rows, form, -1.0, least)
        with pivots.beside(first):
            _factor(first, forms, pivots)
    done = first if first is not t else None
    rank_k(t, slice(0, t.order), rows, form, -1.0, least, done)


class _Pivots:
    """Factors the leaves and checks the info words: on a GPU all at once, at the end."""

    def __init__(self, leaves):
        self._leaves, self._words, self._next = leaves, None, iter(range(len(leaves)))
        self._beside, self._moment = None, None
        if not isinstance(leaves[0].a, np.ndarray):
            self._words = gpu.info_words(leaves[0].a, len(leaves))

    def factor(self, t):
        """Factor the next leaf."""
        if not len(t.a):
            return
        if self._words is None:
            info = views.potrf(t.a)
            _check_leaf(t, info or (0 if np.isfinite(t.a[-1, -1]) else len(t.a)))
        else:
            k = next(self._next)
            views.potrf(t.a, self._words[k : k + 1])

    @contextmanager
    def beside(self, t):
        """Factor a block on a second stream, concurrently with the operations that follow.

        The block must not be read or written again before `join`.
        """
        with gpu.second_stream(self._leaves[0].a) as stream:
            yield
            self._moment = stream.record()
        self._beside = t

    def join(self, t):
        """Return whether a block was factored on the second stream; if so, wait for it there."""
        if t is not self._beside:
            return False
        gpu.wait_for(self._moment, self._leaves[0].a)
        return True

    def synchronize(self):
        """Wait until the second stream has done all."""
        if self._words is not None:
            gpu.synchronize(self._words)

    def check(self):
        """Raise `NotPositiveDefinite` if a leaf on a GPU has no factor."""
        if self._words is not None:
            for t, info in zip(self._leaves, self._words.get().tolist(), strict=True):
                _check_leaf(t, info)


def _check_leaf(t, info):
    if info:
        order = t.first + info
        raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)


# Triangles inverted and multiplied in place, by halves; NumPy or CuPy, no second matrix.
#
#     L = [L11    ]    L⁻¹ = [     L11⁻¹             ]    L'L  = [L11'L11 + L21'L21         ]
#         [L21 L22]          [-L22⁻¹ L21 L11⁻¹  L22⁻¹]           [L22'L21            L22'L22]
#
#                                                         L L' = [L11 L11'                  ]
#                                                                [L21 L11'  L21L21' + L22L22']
#
# What is written last is read by nothing before. All but the leaves is `halves`' solves, products
# and rank-k updates, so that the products are cuBLAS's or BLAS's and the sizes 64 bits. The
# inverse and L'L are LAPACK's trtri and lauum; L'L of L⁻¹ is the inverse of the matrix whose
# factor L is.


def invert(t):
    """Overwrite a triangle with its inverse.

    Parameters
    ----------
    t : Triangle
        Of FP64 or FP32, with nothing in a coarser format.
    """
    if not t.half:
        _put(t.a, lambda xp: views.solve(t.a, xp.eye(len(t.a), dtype=t.a.dtype, order="F"), False))
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
        _put(t.a, lambda xp: _square(xp.tril(t.a).T))
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
        _put(t.a, lambda xp: _square(xp.tril(t.a)))
        return
    block = t.open()
    outer(t.a22)
    # A22 <- L22 L22' + L21 L21'
    rank_k(t.a22, slice(0, len(block)), Rows(block, ()), t.forms, 1.0)
    # A21 <- L21 L11'
    multiply(t.a11, Rows(block, ()), slice(0, t.half), True)
    outer(t.a11)


def congruence_in_place(t, a):
    """Overwrite a whole symmetric matrix with L⁻¹A L⁻ᵀ, whole.

    Parameters
    ----------
    t : Triangle
        L.
    a : (n, n) view
    """
    # A <- L⁻¹A, its transpose from the right, then A <- A L⁻ᵀ
    for side in (a.T, a):
        solve(t, Rows(side, ()), slice(0, len(a)), True)


def _square(a):
    """Return AA' of a small matrix, whole."""
    out = module(a).empty((len(a), len(a)), a.dtype, order="F")
    return views.gemm(out, a, a.T, 1.0, 0.0)


def _put(a, values):
    """Write the lower triangle of what a function of the array's module returns."""
    xp = module(a)
    with device_of(a):
        xp.copyto(a, values(xp), where=xp.tri(len(a), dtype=bool))


# Cholesky's few operations on one array, NumPy or CuPy: potrf, trsm, trmm, potri, congruence.
#
# Matrices are FP64 in Fortran order, so that LAPACK works in place. Only the lower triangle of a
# symmetric or triangular matrix is read or written; what stands above it is never looked at. The
# same on tiles, in stated arithmetics: `geomxp.linalg.mixed`.


LARGE = 8192
"""Above this order a factorization is by halves: OpenBLAS 0.3.30's dpotrf on two threads crashes
the process at orders 16,000, 16,300 and 16,384 (not at 15,000)."""

GPU_LEAF = 2048
"""Below this order cuBLAS and cuSOLVER do a triangle on a GPU; above, halves. Not measured yet."""


def potrf(a):
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    A = L L'

    Parameters
    ----------
    a : (n, n) ndarray, Fortran order

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    """
    if isinstance(a, np.ndarray) and len(a) > LARGE:
        with blas.cores(usable_cores()):
            factor_by_halves(Triangle(a, (FP64,), LARGE // 2), (FP64,))
        return a
    if isinstance(a, np.ndarray):
        factor, info = scipy.linalg.lapack.dpotrf(a, lower=1, clean=0, overwrite_a=1)
        if factor is not a and not np.shares_memory(factor, a):
            a[...] = factor
    else:
        from ..linalg import gpu

        most = gpu.LARGEST_INDEX // blas._leading(a)
        if len(a) > most:
            # cuSOLVER cannot count its entries; smaller leaves leave less to cuBLAS's syrk
            factor_by_halves(Triangle(a, (FP64,), min(GPU_LEAF, most)), (FP64,))
            return a
        # cupy.linalg.cholesky ignores failure
        info = gpu.factor("L", a)
    if info > 0:
        raise NotPositiveDefinite(f"the leading minor of order {info} is not positive", order=info)
    return a


def trsm(lower, b, transposed=False):
    """Solve L x = b, or L'x = b, for a lower triangular L.

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order
    b : (n,) or (n, m) ndarray

    Returns
    -------
    ndarray, as b
    """
    if isinstance(lower, np.ndarray):
        x, info = scipy.linalg.lapack.dtrtrs(lower, b, lower=1, trans=transposed)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return x
    # op(L) X = B is X' op(L)' = B'
    return _from_the_right(solve, lower, b, not transposed)


def trmm(lower, x):
    """Multiply L x for a lower triangular L and an (n, m) array."""
    if isinstance(lower, np.ndarray):
        return scipy.linalg.blas.dtrmm(1.0, lower, x, lower=1)
    return _from_the_right(multiply, lower, x, True)


def _from_the_right(work, lower, b, transposed):
    """Return a copy of an array on which a triangle has acted, on their GPU, current or not."""
    with lower.device:
        x = b.astype(lower.dtype, order="F")
    rows = Rows(x.reshape(len(x), -1, order="F").T, ())
    work(_by_halves(lower), rows, slice(0, len(lower)), transposed)
    return x


def _by_halves(lower):
    """Return a triangle on a GPU as the recursions want it."""
    return Triangle(lower, (FP64,), GPU_LEAF)


def potri(lower):
    """Overwrite a Cholesky factor with the lower triangle of the inverse of its matrix.

    A⁻¹ = L⁻'L⁻¹

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order

    Returns
    -------
    lower
        On a GPU, too, nothing of its size stands beside it.
    """
    if isinstance(lower, np.ndarray):
        inverted, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
        if info:
            raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
        return inverted
    triangle = _by_halves(lower)
    invert(triangle)
    gram(triangle)
    return lower


def inverse_gram(lower):
    """Return the lower triangle of L⁻¹L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) ndarray, Fortran order
        Not changed.

    Returns
    -------
    (n, n) ndarray, Fortran order
    """
    if not isinstance(lower, np.ndarray):
        inverted = empty_matrix(len(lower), lower.device.id)
        with lower.device:
            inverted[...] = lower
        triangle = _by_halves(inverted)
        invert(triangle)
        outer(triangle)
        return triangle.a
    inverted, info = scipy.linalg.lapack.dtrtri(lower, lower=1)
    if info:
        raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)
    # LAPACK multiplies U U': with rows and columns reversed a lower triangle is an upper one
    turned = np.asfortranarray(inverted[::-1, ::-1])
    product, _ = scipy.linalg.lapack.dlauum(turned, lower=0, overwrite_c=1)
    return np.asfortranarray(product[::-1, ::-1])


def congruence(lower, a):
    """Overwrite a symmetric matrix with L⁻¹A L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
    a : (n, n) array of its kind, Fortran order
        On a GPU its upper triangle is written over as well.

    Returns
    -------
    a
    """
    if not isinstance(lower, np.ndarray):
        _mirror(a)
        congruence_in_place(_by_halves(lower), a)
        return a
    result, info = scipy.linalg.lapack.dsygst(a, lower, itype=1, lower=1, overwrite_a=1)
    if info:
        raise ValueError(f"argument {-info} of dsygst")
    return result


def _mirror(a):
    """Write the upper triangle of a matrix on a GPU from the lower one."""
    import cupy

    with a.device:
        for first in range(0, len(a), GPU_LEAF):
            last = min(first + GPU_LEAF, len(a))
            corner = a[first:last, first:last]
            cupy.copyto(corner, corner.T.copy(), where=cupy.tri(len(corner), dtype=bool).T)
            a[first:last, last:] = a[last:, first:last].T
