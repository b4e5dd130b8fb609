"""Recursive potrf, trsm, trmm and syrk by halves, on blocks that are views or stored.

    A = [A11    ]    cut at a multiple of 128 near the middle,
        [A21 A22]    each half again, down to a leaf

Each block is computed in its own format. A block that is final is cast once, in one pass, and every
product reads the cast.

Sources: paper 000, algorithms 1-3; paper 003 for the triangular solve and product.
"""

from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import scipy

from ..errors import NotPositiveDefinite
from ..runtime.devices import usable_cores
from . import blas, gpu, panels
from .backend import backend_of, device_of
from .device import empty_matrix
from .formats import FP64
from .panels import Panel
from .views import leading, order_of

MULTIPLE = 128
"""A matrix is cut at a multiple of this."""


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
        Whether the diagonal is taken to be ones.
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
        """Return A21 to be overwritten."""
        return self.a[self.half :, : self.half]

    def close(self, block):
        """Store the changed A21; for a view there is nothing to do."""

    def keep(self, rows):
        """Store the final A21 with its casts."""
        self.panels = rows.panels

    def cast(self, form):
        """Return A21 as a panel in a format, cast when it is first needed."""
        if form not in self.panels:
            block = self.open()
            self.panels[form] = Panel(form, block.shape, block, self.bound)
            self.panels[form].put(slice(0, self.half), block)
        return self.panels[form]

    def read_in(self, form):
        """Return this triangle with all blocks read in one format; the casts are shared."""
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
        coarse = [form for form in dict.fromkeys(forms) if form.coarse]
        self.array, self.backend = array, backend_of(array)
        self.panels = {form: Panel(form, array.shape, array, bound) for form in coarse}

    def finish(self, columns):
        """Cast columns that are final."""
        for panel in self.panels.values():
            panel.put(columns, self.array[:, columns])

    def close(self):
        """Give panels of narrow formats one power of two, now that all columns are final."""
        for panel in self.panels.values():
            if panel.form.narrow and len(panel.exponents) > 1:
                panel.exponents.clear()
                panel.put(slice(0, self.array.shape[1]), self.array)


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
            if form.coarse:
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
    # factors are well scaled; the inverses of other triangles may overflow
    inverted = b.backend.on_gpu and part.dtype == np.float32 and t.bound is not None
    if not inverted:
        b.backend.trsm(t.a, part, transposed, t.unit)
    elif len(t.a) > 1 and not t.quarter:
        solve(t.quarters(), b, columns, transposed)
        return
    else:
        gpu.multiply_by_inverse(part, t.inverse(), transposed)
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
    form, target = t.forms[0], b.array[:, to]
    if not form.coarse:
        block = t.open().T if transposed else t.open()
        b.backend.gemm(target, b.array[:, source], block, alpha, 1.0)
        return
    left, right = b.panels[form], t.cast(form)
    if transposed:
        every = slice(0, len(target)), slice(0, right.shape[0])
        panels.aligned(target, left, source, right, alpha, *every)
    else:
        panels.aligned_rows(target, left, source, right, alpha)


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
        if form.coarse:
            total = b.backend.zeros(t.a.shape, t.a.dtype, t.a, order_of(t.a))
            panels.multiply(total, b.panels[form], rows, b.panels[form], rows, alpha)
            b.backend.add_lower(t.a, total)
        else:
            b.backend.syrk(t.a, b.array[rows], alpha, 1.0)
        return
    (one, two), form, inner = _split(rows, t.half), forms[0], forms[1:] or forms
    # C11 <- C11 + αB1B1'
    rank_k(t.a11, one, b, inner, alpha, least, done)
    # C21 <- C21 + αB2B1'
    block = t.open()
    if form.coarse:
        panels.multiply(block, b.panels[form], two, b.panels[form], one, alpha)
    else:
        b.backend.gemm(block, b.array[two], b.array[one].T, alpha, 1.0)
    t.close(block)
    # C22 <- C22 + αB2B2'
    rank_k(t.a22, two, b, inner, alpha, least, done)


# Cholesky factorization by halves. On a GPU the CPU waits only at the end, and a second stream
# factors the first block of A22 while the others are updated.


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
        # the memory that is freed now may still be used on the GPU
        pivots.synchronize()
        raise
    pivots.check()


def _factor(t, forms, pivots):
    if pivots.join(t):
        return
    if not t.half:
        pivots.factor(t)
        return
    # A11 = L11 L11'
    _factor(t.a11, forms, pivots)
    # A21 <- A21 L11⁻', in the format of A21
    rows = Rows(t.open(), forms, t.bound)
    solve(t.a11.read_in(t.forms[0]), rows, slice(0, t.half), True)
    rows.close()
    t.keep(rows)
    # A22 <- A22 - A21 A21'; A21 has been rounded to its format, in which paper 000 stores it: a
    # finer format would give the same products
    form, done = t.forms[:1], None
    if rows.backend.on_gpu:
        done = _factor_beside(t.a22, rows, form, forms, pivots)
    least = 2 * t.a22.leaf if rows.backend.on_gpu else 0
    rank_k(t.a22, slice(0, t.a22.order), rows, form, -1.0, least, done)
    # A22 = L22 L22'
    _factor(t.a22, forms, pivots)


def _factor_beside(t, rows, form, forms, pivots):
    """Update the first block of A22 and factor it on a second stream; return it, or None."""
    # smaller products do not fill a GPU
    least, first = 2 * t.leaf, t
    while first.half and not first.is_one_view(least):
        first = first.a11
    if first is t:
        return None
    rank_k(first, slice(0, first.order), rows, form, -1.0, least)
    with pivots.beside(first):
        _factor(first, forms, pivots)
    return first


class _Pivots:
    """Factors the leaves and checks the info words: on a GPU all at once, at the end."""

    def __init__(self, leaves):
        first = leaves[0].a
        self._leaves, self._backend = leaves, backend_of(first)
        self._words = gpu.info_words(first, len(leaves)) if self._backend.on_gpu else None
        self._next = iter(range(len(leaves)))
        self._beside, self._moment = None, None

    def factor(self, t):
        """Factor the next leaf."""
        if not len(t.a):
            return
        if self._words is None:
            info = self._backend.potrf(t.a)
            _check_leaf(t, info or (0 if np.isfinite(t.a[-1, -1]) else len(t.a)))
        else:
            k = next(self._next)
            self._backend.potrf(t.a, self._words[k : k + 1])

    @contextmanager
    def beside(self, t):
        """Factor a block on a second stream, concurrently with the operations that follow.

        The block must not be read or written again before `join`.
        """
        with gpu.second_stream(self._words) as stream:
            yield
            self._moment = stream.record()
        self._beside = t

    def join(self, t):
        """Return whether a block was factored on the second stream; if so, wait for it there."""
        if t is not self._beside:
            return False
        gpu.wait_for(self._moment, self._words)
        return True

    def synchronize(self):
        """Wait until the GPU has executed the operations of both streams."""
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
    """Overwrite a triangle with its inverse.

    Parameters
    ----------
    t : Triangle
        Of FP64 or FP32, with nothing in a coarser format.
    """
    if not t.half:
        backend = backend_of(t.a)
        with backend.on(t.a):
            one = backend.xp.eye(len(t.a), dtype=t.a.dtype, order="F")
        _put(t.a, backend.trsm(t.a, one, False))
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
# Arrays are in Fortran order. Only the lower triangle of a symmetric or triangular matrix is read
# or written. NumPy arrays go to LAPACK; on a GPU, large ones go by halves. The same operations on
# tiles in stated formats: `linalg.mixed`.


LARGE = 8192
"""NumPy arrays above this order are factored by halves: OpenBLAS 0.3.30's dpotrf on two threads
crashes the process at orders 16,000, 16,300 and 16,384 (not at 15,000)."""

GPU_LEAF = 2048
"""Triangles up to this order go to cuBLAS and cuSOLVER whole, larger ones by halves. Not measured
yet."""


def potrf(a):
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    A = L L'

    Parameters
    ----------
    a : (n, n) NumPy or CuPy array, Fortran order

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    """
    if backend_of(a).on_gpu:
        # cuSOLVER counts the entries of one array; smaller leaves leave less to cuBLAS's syrk
        largest = gpu.LARGEST_INDEX // leading(a)
        leaf = min(GPU_LEAF, largest)
    else:
        largest, leaf = LARGE, LARGE // 2
    if len(a) > largest:
        with blas.cores(usable_cores()):
            factor_by_halves(Triangle(a, (FP64,), leaf), (FP64,))
        return a
    if backend_of(a).on_gpu:
        # cupy.linalg.cholesky ignores failure
        info = gpu.factor("L", a)
    else:
        factor, info = scipy.linalg.lapack.dpotrf(a, lower=1, clean=0, overwrite_a=1)
        if factor is not a and not np.shares_memory(factor, a):
            a[...] = factor
    if info:
        raise NotPositiveDefinite(f"the leading minor of order {info} is not positive", order=info)
    return a


def trsm(lower, b, transposed=False):
    """Solve L x = b, or L'x = b, for a lower triangular L.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
    b : (n,) or (n, m) array of its kind

    Returns
    -------
    array, as b
    """
    if backend_of(lower).on_gpu:
        # op(L) X = B is X' op(L)' = B'
        return _from_the_right(solve, lower, b, not transposed)
    x, info = scipy.linalg.lapack.dtrtrs(lower, b, lower=1, trans=transposed)
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
    work(_by_halves(lower), rows, slice(0, len(lower)), transposed)
    return x


def _by_halves(lower):
    """Return a triangle on a GPU as the recursions take it."""
    return Triangle(lower, (FP64,), GPU_LEAF)


def potri(lower):
    """Overwrite a Cholesky factor with the lower triangle of the inverse of its matrix.

    A⁻¹ = L⁻'L⁻¹

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order

    Returns
    -------
    lower
        On a GPU, too, no second matrix of its size is allocated.
    """
    if backend_of(lower).on_gpu:
        triangle = _by_halves(lower)
        invert(triangle)
        gram(triangle)
        return lower
    inverted, info = scipy.linalg.lapack.dpotri(lower, lower=1, overwrite_c=1)
    _check_diagonal(info)
    return inverted


def inverse_gram(lower):
    """Return the lower triangle of L⁻¹L⁻ᵀ.

    Parameters
    ----------
    lower : (n, n) NumPy or CuPy array, Fortran order
        Not changed.

    Returns
    -------
    (n, n) array, Fortran order
    """
    if backend_of(lower).on_gpu:
        inverted = empty_matrix(len(lower), lower.device.id)
        with lower.device:
            inverted[...] = lower
        triangle = _by_halves(inverted)
        invert(triangle)
        outer(triangle)
        return triangle.a
    inverted, info = scipy.linalg.lapack.dtrtri(lower, lower=1)
    _check_diagonal(info)
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
        On a GPU its upper triangle is overwritten as well.

    Returns
    -------
    a
    """
    if backend_of(lower).on_gpu:
        _mirror(a)
        congruence_in_place(_by_halves(lower), a)
        return a
    result, info = scipy.linalg.lapack.dsygst(a, lower, itype=1, lower=1, overwrite_a=1)
    if info:
        raise ValueError(f"argument {-info} of dsygst is invalid.")
    return result


def _check_diagonal(info):
    if info:
        raise NotPositiveDefinite(f"diagonal entry {info} of the factor is zero", order=info)


def _mirror(a):
    """Write the upper triangle of a matrix on a GPU from the lower one."""
    import cupy

    with a.device:
        for first in range(0, len(a), GPU_LEAF):
            last = min(first + GPU_LEAF, len(a))
            corner = a[first:last, first:last]
            cupy.copyto(corner, corner.T.copy(), where=cupy.tri(len(corner), dtype=bool).T)
            a[first:last, last:] = a[last:, first:last].T
