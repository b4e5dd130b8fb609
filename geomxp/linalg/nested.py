"""Cholesky factorization, triangular solves and products by halves, in layered formats.

A few large products do nearly all the work. `layers` names the formats of the off-diagonal blocks
from the largest inwards; the last one, FP64 or FP32, is that of the rest and of the leaves.
("fp16", "fp32") multiplies the outermost block in FP16 and the rest in FP32; ("fp32", "fp64") in
FP32 and FP64; ("fp64",) is the plain recursion. A layer finer than the last one is computed as the
last one. NumPy and CuPy arrays, in any layout, are overwritten as BLAS and LAPACK overwrite them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..errors import GeomxpError, InvalidInput, NotPositiveDefinite
from ..runtime.devices import blas_threads, gpu_memory
from .backend import backend_of, device_of
from .blas import BLAS_TYPES
from .formats import FP32, FP64, Format, named
from .recursive import (
    Panel,
    Rows,
    Triangle,
    at_once,
    factor_by_halves,
    leaf_size,
    leaves,
    multiply,
    not_positive,
    padded,
    rank_k,
    solve,
)
from .views import contiguous, order_of

if TYPE_CHECKING:
    from .._typing import Any, AnyArray, Callable, Sequence


def _threads_for(a):
    """Limit BLAS's threads for a matrix, unless it is on a GPU."""
    return nullcontext() if backend_of(a).on_gpu else blas_threads(len(a))


@gpu_memory()
def potrf(
    a: AnyArray, layers: Sequence[str | Format] = ("fp64",), *, leaf: int | None = None
) -> AnyArray:
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    Parameters
    ----------
    a : (n, n) NumPy or CuPy array of FP64 or FP32
        Only its lower triangle is read and written.
    layers : sequence of str
        Formats of the off-diagonal blocks from the largest inwards; the last is "fp64" or "fp32"
        and holds for the rest. Numbers are FP32 where it is "fp32". A block in a format coarser
        than the last one is cast to it for products, which are summed in FP32.
    leaf : int, optional
        Blocks up to this order go to LAPACK, in the last format: layers within them have no effect.
        Default on a CPU: 4,096 if all layers are computed in one format; 256 with coarser layers
        above FP64, or with a format that the CPU multiplies faster than FP32; else 1,024. With
        layers above FP32 of which only AVX-512 multiplies one faster, a matrix up to order 1,536 is
        one leaf. On a GPU 1,024, where cuSOLVER factors larger diagonal blocks in one call.

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    InvalidInput
        If the lower triangle holds a NaN or an infinity, or an argument is invalid.

    Examples
    --------
    >>> a = np.array([[4.0, 0.0], [2.0, 5.0]])
    >>> potrf(a).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    check_matrix("a", a, square=True, written=True)
    forms, tuned = check_layers(layers, a.dtype), leaf is None
    leaf, forms = _leaf_and_layers(leaf, "potrf", a, forms)
    with _threads_for(a), one_matrix(a, forms) as (work, bound):
        whole = at_once(work, forms) if tuned else 0
        factor_by_halves(Triangle(work, forms, leaf, bound=bound, whole=whole), forms)
    return a


def trsm(
    a: AnyArray,
    b: AnyArray,
    *,
    side: str = "L",
    uplo: str = "L",
    trans: str = "N",
    diag: str = "N",
    alpha: float = 1.0,
    layers: Sequence[str | Format] = ("fp64",),
    leaf: int | None = None,
) -> AnyArray:
    """Solve op(A) X = αB (side L) or X op(A) = αB (side R) for a triangular A; X overwrites B.

    Parameters
    ----------
    a : (n, n) NumPy or CuPy array of FP64 or FP32
    b : (n, m) or (m, n) array of the same type
    side : {"L", "R"}
    uplo : {"L", "U"}
        The triangle of A that is read.
    trans : {"N", "T"}
        op(A) = A or A'.
    diag : {"N", "U"}
        U: the diagonal of A is not read; its entries are taken to be ones.
    alpha : float
    layers : sequence of str
        See `potrf`.
    leaf : int, optional

    Returns
    -------
    b

    Examples
    --------
    >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([[2.0], [3.0]])
    >>> trsm(a, b).tolist()
    [[1.0], [2.0]]
    """
    return _act("trsm", a, b, (side, uplo, trans, diag), alpha, layers, leaf)


def trmm(
    a: AnyArray,
    b: AnyArray,
    *,
    side: str = "L",
    uplo: str = "L",
    trans: str = "N",
    diag: str = "N",
    alpha: float = 1.0,
    layers: Sequence[str | Format] = ("fp64",),
    leaf: int | None = None,
) -> AnyArray:
    """Multiply B <- α op(A) B (side L) or α B op(A) (side R) for a triangular A; see `trsm`.

    Examples
    --------
    >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([[1.0], [2.0]])
    >>> trmm(a, b).tolist()
    [[2.0], [3.0]]
    """
    return _act("trmm", a, b, (side, uplo, trans, diag), alpha, layers, leaf)


OPTION_LETTERS = ("L", "R"), ("L", "U"), ("N", "T"), ("N", "U")
"""Letters of the options side, uplo, trans and diag."""


def _act(name, a, b, letters, alpha, layers, leaf):
    """Execute a triangular operation, by one call of the library where it `_is_plain`."""
    usual = leaf is None and alpha == 1.0 and type(layers) is tuple
    if usual and _is_plain(name, a, b, letters, layers):
        with _threads_for(a):
            backend_of(b).triangular(name, *letters, a, b)
        return b
    return _by_halves(name, a, b, letters, alpha, layers, leaf)


@gpu_memory()
def _by_halves(name, a, b, letters, alpha, layers, leaf):
    """Transform a triangular operation to B op(T) with a lower T, and execute it."""
    check_matrix("a", a, square=True)
    check_matrix("b", b, written=True)
    layers = layers if isinstance(layers, tuple) else _forms_of(layers)
    try:
        forms = _checked(name, letters, layers, a.dtype)
    except TypeError:
        # a letter or layer that cannot be hashed is invalid: the checks say so
        forms = _checked.__wrapped__(name, letters, layers, a.dtype)
    leaf, forms = _leaf_and_layers(leaf, name, a, forms)
    side, uplo, trans, diag = letters
    if b.dtype != a.dtype or b.shape["LR".index(side)] != len(a):
        raise InvalidInput(
            f"`b` must be of {a.dtype} with {len(a)} {'rows' if side == 'L' else 'columns'}. "
            f"Got {b.dtype} of shape {b.shape}."
        )
    if alpha != 1.0:
        with device_of(b):
            if alpha == 0.0:
                b[...] = 0.0
                return b
            b *= b.dtype.type(alpha)
    form = forms[-1]
    in_order = a.flags.f_contiguous and b.flags.f_contiguous
    if len(a) <= leaf and in_order and a.dtype == form.dtype and b.size:
        # one leaf: the routine of the library, which takes these letters
        with _threads_for(a):
            backend_of(b).triangular(name, *letters, a, b)
        return b
    # an upper triangle is a lower one transposed, and op(A) X = B is X' op(A)' = B'
    lower, transposed = (a, trans == "T") if uplo == "L" else (a.T, trans == "N")
    with one_array(b, form) as target, one_array(lower, form, "nothing") as t:
        target, transposed = (target, transposed) if side == "R" else (target.T, not transposed)
        triangle = Triangle(t, forms, leaf, diag == "U")
        rows = Rows(target, forms)
        if name == "trmm":
            rows.finish_all(triangle.leaf)
        work = solve if name == "trsm" else multiply
        with _threads_for(a), rows.backend.threads(forms):
            work(triangle, rows, slice(0, len(a)), transposed)
    return b


def _is_plain(name, a, b, letters, layers):
    """Return whether one call of a CPU's library, in one format, does the whole operation.

    For small matrices all checks take noticeable time. Where this returns False, `_by_halves` makes
    them and reports what is wrong.
    """
    try:
        (n, columns), flags = a.shape, b.flags
        largest = _in_one_call(name, letters, layers, a.dtype, backend_of(b).name)
        same = b.dtype == a.dtype and len(b.shape) == 2 and b.shape[letters[0] == "R"] == n
        fits = n == columns and n <= largest and b.size > 0 and flags.writeable
        return same and fits and a.flags.f_contiguous and flags.f_contiguous
    except (AttributeError, TypeError, ValueError):
        return False


@lru_cache(maxsize=256)
def _in_one_call(name, letters, layers, dtype, on):
    """Return the largest order that a CPU's library is given whole; 0 with several formats."""
    forms = _checked(name, letters, layers, dtype)
    plain = on == "cpu" and len(forms) == 1 and forms[0].dtype == dtype
    return leaf_size(name, sys.maxsize, forms) if plain else 0


@lru_cache(maxsize=256)
def _checked(name, letters, layers, dtype):
    """Return the formats of a triangular operation, or raise `InvalidInput`.

    Cached: for small matrices the checks take as long as the solve.
    """
    forms = check_layers(layers, dtype)
    for letter, allowed in zip(letters, OPTION_LETTERS, strict=True):
        if letter not in allowed:
            raise InvalidInput(
                f"{name} letters must be one of {', '.join(allowed)}. Got {letter!r}."
            )
    return forms


@gpu_memory()
def syrk(
    a: AnyArray,
    c: AnyArray | None = None,
    *,
    uplo: str = "L",
    trans: str = "N",
    alpha: float = 1.0,
    beta: float = 0.0,
    layers: Sequence[str | Format] = ("fp64",),
    leaf: int | None = None,
) -> AnyArray:
    """Update one triangle of C <- α op(A) op(A)' + βC.

        C11 <- βC11 + αA1A1',  C21 <- βC21 + αA2A1',  C22 <- βC22 + αA2A2'

    C21 is computed in the first layer's format; C11 and C22 are halved again, with the layers that
    follow. The leaves on the diagonal are in the last layer's format (paper 000, algorithm 3).

    Parameters
    ----------
    a : (n, k) array, or (k, n) with trans "T", NumPy or CuPy, FP64 or FP32
    c : (n, n) array of the same type, optional
        Zeros, in the order of a, if not given. The other triangle is neither read nor written.
    uplo : {"L", "U"}
    trans : {"N", "T"}
    alpha, beta : float
    layers : sequence of str
        Formats of the off-diagonal blocks of C from the largest inwards; the last is "fp64" or
        "fp32" and holds for the rest. A is cast once to each format coarser than the last.
    leaf : int, optional
        Blocks up to this order go to BLAS, in the last format. Default on a CPU: 4,096, 512
        and 1,024 in the cases of `potrf`, and one leaf up to order 1,536 as there; on a GPU 2,048.

    Returns
    -------
    c
    """
    check_matrix("a", a)
    forms = check_layers(layers, a.dtype)
    if uplo not in ("L", "U") or trans not in ("N", "T"):
        raise InvalidInput(f"syrk takes uplo L or U, trans N or T. Got {uplo!r} and {trans!r}.")
    a = a if trans == "N" else a.T
    if c is None:
        order = order_of(a) if contiguous(a) else "F"
        c, beta = backend_of(a).zeros((len(a), len(a)), a.dtype, a, order), 0.0
    check_matrix("c", c, square=True, written=True)
    if c.dtype != a.dtype or len(c) != len(a):
        raise InvalidInput(
            f"`c` must be {len(a)} by {len(a)} of {a.dtype}. Got {c.dtype} {c.shape}."
        )
    leaf, forms = _leaf_and_layers(leaf, "syrk", c, forms)
    # as BLAS: nothing of A is read for α = 0
    a = a[:, :0] if alpha == 0.0 else a
    with one_array(c if uplo == "L" else c.T, forms[-1], "lower") as target:
        backend_of(c).scale_lower(target, beta)
        with one_array(a, forms[-1], "nothing") as source:
            triangle = Triangle(target, forms, leaf)
            rows = Rows(source, forms)
            rows.finish_all(max(leaf, 1024))
            with _threads_for(c), rows.backend.threads(forms):
                rank_k(triangle, slice(0, len(c)), rows, forms, alpha)
    return c


def check_layers(layers: Sequence[str | Format], dtype: np.dtype) -> tuple[Format, ...]:
    """Return the formats of layers for arrays of a type, or raise `InvalidInput`."""
    forms = _forms_of(layers)
    if forms[-1] is FP64 and dtype == np.float32:
        raise InvalidInput("`layers` ending with 'fp64' need an FP64 array. Got float32.")
    return forms


def _forms_of(layers):
    """Return the formats of layers whose last is FP32 or FP64, or raise `InvalidInput`."""
    single = isinstance(layers, (str, Format)) or not isinstance(layers, Iterable)
    listed = ((layers,) if layers is not None else ()) if single else tuple(layers)
    forms = tuple(named(name) for name in listed)
    if not forms or forms[-1] not in (FP32, FP64):
        raise InvalidInput(
            "`layers` must end with 'fp32' or 'fp64', the arithmetic of the leaves. "
            f"Got {listed or layers!r}."
        )
    for form in forms:
        if form.products is not form:
            raise InvalidInput(
                f"{form.name!r} is a format of tiles. For dense matrices, which keep FP32 or FP64, "
                f"use {form.products.name!r}."
            )
    return forms


def check_leaf(leaf: int | None, name: str, a: AnyArray, forms: Sequence[Format]) -> int:
    """Return the leaf given, or the tuned one for a square array; raise `InvalidInput`."""
    if leaf is None:
        return leaf_size(name, len(a), forms, backend_of(a).name)
    if not isinstance(leaf, Integral) or isinstance(leaf, bool) or leaf < 1:
        raise InvalidInput(f"`leaf` must be a positive integer. Got {leaf!r}.")
    return int(leaf)


def _leaf_and_layers(leaf, name, a, forms):
    """Return the leaf size and the layers: only the last one if the matrix is one leaf."""
    leaf = check_leaf(leaf, name, a, forms)
    return leaf, forms if len(a) > leaf else forms[-1:]


def check_matrix(name: str, array: Any, square: bool = False, written: bool = False) -> None:
    """Raise `InvalidInput` unless an argument is a matrix of FP64 or FP32, writeable if needed."""
    if getattr(array, "ndim", 0) != 2 or (square and array.shape[0] != array.shape[1]):
        shape = getattr(array, "shape", type(array).__name__)
        raise InvalidInput(f"`{name}` must be a {'square ' if square else ''}matrix. Got {shape}.")
    if array.dtype not in BLAS_TYPES:
        raise InvalidInput(f"`{name}` must be of float64 or float32. Got {array.dtype}.")
    if written and not backend_of(array).on_gpu and not array.flags.writeable:
        raise InvalidInput(f"`{name}` is overwritten, and this array is read-only: copy it first.")


# Working copies: contiguous, in FP64 or FP32, scaled.


@contextmanager
def one_array(array, form, write="whole"):
    """Give an array as a contiguous view in FP64 or FP32, and write the result back.

    `write` says what is written back, "whole", "lower" or "nothing"; the rest of the array keeps
    its bits.
    """
    work, backend = array, backend_of(array)
    if array.dtype != form.dtype or not contiguous(array):
        work = backend.empty(array.shape, form.dtype, array)
        backend.assign(work, array)
    yield work
    if write == "lower" and work is not array:
        backend.copy_lower(array, work)
    elif write == "whole" and work is not array:
        backend.assign(array, work)


@contextmanager
def one_matrix(array, forms):
    """Give the lower triangle of a symmetric matrix to be factored, and write the factor back.

    Yields the matrix, and a bound of all |l_ij|: the root of the largest diagonal entry.

    The array itself, where its type fits and its diagonal is near 1 and varies little, or no format
    is coarse. Otherwise a copy in FP32 or FP64; if the diagonal is not near 1, each row of the copy
    is scaled by a power of two, which keeps coarse formats from over- and underflow and changes no
    digit. Raises InvalidInput if the lower triangle holds a NaN or an infinity.
    """
    n, form, backend = len(array), forms[-1], backend_of(array)
    same = array.dtype == form.dtype and contiguous(array)
    # a copy is checked only if its factorization fails
    logs = _half_logs(_diagonal(array, whole=same))
    near_one = n == 0 or float(abs(logs).max()) < 8
    # one power of two for all panels of FP16 leaves 28 - 4 binades to the smallest row
    even = n == 0 or float(logs.max() - logs.min()) < 4
    scaled = not (near_one and even)
    if same and not (scaled and any(f.coarser_than(form.dtype) for f in forms)):
        yield array, float(np.exp2(logs.max(initial=-np.inf)))
        return
    steps = np.round(logs) if scaled else 0.0 * logs
    # in Fortran order whatever the array is, so that its bits are the same for all of them
    work = padded(array.shape, form.dtype, array, "F")
    backend.copy_lower(work, array, *((np.exp2(-steps), np.exp2(-steps)) if scaled else ()))
    try:
        yield work, float(np.exp2((logs - steps).max(initial=-np.inf)))
    except GeomxpError as error:
        # a NaN ends as a pivot that is not positive: report what it was
        check_finite(array)
        _check_rows(array, error.order if isinstance(error, NotPositiveDefinite) else n)
        raise
    backend.copy_lower(array, work, *((np.exp2(steps), np.ones(n)) if scaled else ()))


def _check_rows(array, last):
    """Raise `NotPositiveDefinite` for the first row with a_ii <= 0 or an |a_ij|² >= a_ii a_jj.

    Rows from `last` on, where the factorization has failed, are not checked.
    """
    array = backend_of(array).get(array)
    diagonal = array.diagonal().astype(np.float64)
    roots = np.sqrt(np.abs(diagonal))
    for i in range(last - 1):
        too_large = np.abs(array[i, :i].astype(np.float64)) >= roots[i] * roots[:i]
        if diagonal[i] <= 0 or too_large.any():
            raise not_positive(i + 1)


def _diagonal(array, whole):
    """Return a matrix's diagonal, after a check that it, or the whole lower triangle, is finite."""
    backend = backend_of(array)
    diagonal, largest = backend.survey(array) if whole else (backend.get(array.diagonal()), 0.0)
    if not (np.isfinite(diagonal).all() and np.isfinite(largest)):
        check_finite(array)
    return diagonal


def _half_logs(diagonal):
    """Return log2 of the roots of a diagonal's magnitudes.

    Zeros are replaced by the median of the other magnitudes.
    """
    size = np.abs(diagonal.astype(np.float64))
    size[size == 0] = np.median(size[size > 0]) if size.any() else 1.0
    return np.log2(size) / 2


def check_finite(array):
    """Raise `InvalidInput` if the lower triangle holds a NaN or an infinity."""
    _, largest = backend_of(array).survey(array)
    if not np.isfinite(largest):
        raise InvalidInput(
            f"the lower triangle of the matrix holds {largest}: a factor needs finite entries."
        )


# A symmetric matrix as a tree of blocks, each stored in its own format.
#
#     [A11    ]    A21 in the first layer's format, A11 and A22 trees of the other layers,
#     [A21 A22]    leaves in the last one, as are blocks in a format finer than it
#
# ("fp16", "fp16", "fp32") takes five eighths of FP32's lower triangle. Factorization and solves
# work in place, by `linalg.recursive`, for which a dense array is a tree of views.


@dataclass(frozen=True)
class Part:
    """Some rows and columns of a matrix that `block(rows, columns, form)` computes when asked."""

    block: Callable[[slice, slice, Format], AnyArray]
    rows: slice
    columns: slice

    def __len__(self) -> int:
        return self.rows.stop - self.rows.start

    def __getitem__(self, part: tuple[slice, slice]) -> Part:
        return Part(self.block, *map(_within, (self.rows, self.columns), part))

    def read(self, form: Format) -> AnyArray:
        """Return the entries in FP32 or FP64, as accurate as a format needs."""
        return self.block(self.rows, self.columns, form)


def _within(whole, part):
    """Return a slice of a slice."""
    first, last, _ = part.indices(whole.stop - whole.start)
    return slice(whole.start + first, whole.start + last)


class StoredTriangle(Triangle):
    """A `Triangle` whose off-diagonal block is stored in its format; `a` is a `Part` at first."""

    def __post_init__(self):
        # the format of the stored block, which may be read in another one
        self.form, self.last, self._whole = self.forms[0], self.forms[-1], None
        self._rounded = self.form.coarser_than(self.last.dtype)
        super().__post_init__()
        h, whole, self.a = self.half, self.a, None
        if not h:
            self.a = whole.read(self.last)
        elif self._rounded:
            self.panels = {self.form: self._generated(whole[h:, :h])}
        else:
            self._whole = whole[h:, :h].read(self.last)

    def _generated(self, part):
        """Return A21 in a format coarser than the leaves', by pieces of a leaf's columns."""
        panel = None
        for first in range(0, self.half, self.leaf):
            columns = slice(first, min(first + self.leaf, self.half))
            piece = part[:, columns].read(self.form)
            if panel is None:
                panel = Panel(self.form, (len(part), self.half), piece, dtype=self.form.dtype)
            panel.put(columns, piece)
        return panel

    def is_one_view(self, largest):
        """Return whether the triangle is stored as one view: no, as separate blocks."""
        return False

    def open(self):
        """Return A21 in the format of the leaves, to be overwritten and passed to `close`."""
        if self._whole is not None:
            return self._whole
        panel = self.panels[self.form]
        values = panel.values
        block = backend_of(values).empty(values.shape, self.last.dtype, values)
        panel.widen(slice(0, panel.shape[0]), slice(0, self.half), block)
        return block

    def close(self, block):
        """Store A21 in its format, a power of two for each leaf's columns."""
        if self._rounded:
            form = self.form
            self.panels = {form: Panel.of(form, block, step=self.leaf, dtype=form.dtype)}
        else:
            self._whole = block

    def keep(self, rows, read_again):
        """Store the final A21; casts for coarser blocks are made again when they are read."""
        if self._rounded:
            self.panels = {self.form: rows.panels[self.form].stored()}

    def release(self):
        """Free all casts: none is kept."""

    def cast(self, form):
        """Return A21 as a panel in a format: as stored, or cast for this reader."""
        return self.panels.get(form) or Panel.of(form, self.open(), self.bound)

    @property
    def nbytes(self):
        """Bytes of all numbers in their formats; of leaves the lower triangle counts."""
        if not self.half:
            return len(self.a) * (len(self.a) + 1) // 2 * self.a.itemsize
        block = self._whole if self._whole is not None else self.panels[self.form]
        return block.nbytes + self.a11.nbytes + self.a22.nbytes


class SymmetricTree:
    """A symmetric positive definite matrix in layered formats.

    Parameters
    ----------
    a : (n, n) NumPy or CuPy array of FP64 or FP32
        Its lower triangle is read; `generated` makes a tree without such an array.
    layers : sequence of str
        See `nested.potrf`.
    leaf : int, optional

    Examples
    --------
    >>> a = np.eye(300) + 1e-3
    >>> tree = SymmetricTree(a, ("fp16", "fp32"), leaf=64).potrf()
    >>> bool(abs(a @ tree.solve(np.ones(300)) - 1).max() < 1e-4)
    True
    """

    def __init__(self, a, layers=("fp16", "fp32"), leaf=None):
        check_matrix("a", a, square=True)
        check_finite(a)
        forms = check_layers(layers, a.dtype)

        def block(rows, columns, form):
            part = a[rows, columns]
            # what is above the diagonal may be anything
            return backend_of(a).xp.tril(part) if rows == columns else part.copy(order="F")

        with device_of(a):
            self._store(block, a.diagonal(), forms, check_leaf(leaf, "tree", a, forms))

    @classmethod
    def generated(cls, block, diagonal, layers, leaf=None):
        """Return the tree of a matrix whose blocks are computed when they are stored.

        Parameters
        ----------
        block : callable
            ``block(rows, columns, form)`` returns the entries in two slices, in FP64 or FP32, as
            accurate as a `Format` needs: an array that the tree may overwrite.
        diagonal : (n,) NumPy or CuPy array of FP64
            The diagonal of the matrix, on the device of its blocks.
        layers, leaf :
            See `SymmetricTree`.
        """
        tree = cls.__new__(cls)
        forms = check_layers(layers, diagonal.dtype)
        with device_of(diagonal):
            tree._store(block, diagonal, forms, check_leaf(leaf, "tree", diagonal, forms))
        return tree

    def _store(self, block, diagonal, forms, leaf):
        """Store the blocks of the matrix; rows and columns are scaled by powers of two."""
        n = len(diagonal)
        self.shape, self.factored, self._forms = (n, n), False, forms
        backend, last = backend_of(diagonal), forms[-1]
        logs = _half_logs(backend.get(diagonal))
        steps = np.round(logs)
        bound = float(np.exp2((logs - steps).max(initial=-np.inf)))
        self._d = d = backend.xp.asarray(np.exp2(-steps))

        def scaled(rows, columns, form):
            part = block(rows, columns, form)
            if steps.any():
                part *= d[rows, None]
                part *= d[columns]
            return backend.xp.asarray(part, dtype=last.dtype, order="F")

        whole = slice(0, n)
        self._root = StoredTriangle(Part(scaled, whole, whole), forms, leaf, bound=bound)

    @property
    def nbytes(self):
        """Bytes of all numbers in their formats."""
        return self._root.nbytes

    def potrf(self):
        """Overwrite the matrix with its Cholesky factor, and return the tree.

        Raises
        ------
        NotPositiveDefinite
            The tree then holds neither the matrix nor its factor.
        ValueError
            If the matrix is factored already.
        """
        if self.factored is not False:
            raise ValueError("the tree is factored already: create a new one from the matrix.")
        # after a failure the tree holds neither matrix nor factor
        self.factored = None
        factor_by_halves(self._root, self._forms)
        self.factored = True
        return self

    def log_determinant(self):
        """Return log|A| of a factored tree."""
        self._check_factored()
        xp = backend_of(self._d).xp
        with device_of(self._d):
            diagonal = xp.concatenate([leaf.a.diagonal() for leaf in leaves(self._root)])
            return 2.0 * float(xp.log(diagonal.astype(np.float64) / self._d).sum())

    def solve(self, b):
        """Return A⁻¹b of a factored tree for (n,) or (n, m), in FP64 with the stored values.

        On a GPU the result is a CuPy array.
        """

        def work(x):
            x *= self._d
            _solve(self._root, x, True)
            _solve(self._root, x, False)
            x *= self._d

        return self._apply(work, b)

    def half_solve(self, b):
        """Return L⁻¹b of a factored tree; see `solve`."""

        def work(x):
            x *= self._d
            _solve(self._root, x, True)

        return self._apply(work, b)

    def multiply(self, b):
        """Return L b of a factored tree; see `solve`."""

        def work(x):
            _multiply(self._root, x)
            x /= self._d

        return self._apply(work, b)

    def _apply(self, work, b):
        """Return a copy of b, (n,) or (n, m), whose transpose `work` has overwritten."""
        self._check_factored()
        xp = backend_of(self._d).xp
        with device_of(self._d):
            b = xp.asarray(b, dtype=np.float64)
            if b.ndim not in (1, 2) or len(b) != len(self._d):
                raise InvalidInput(f"`b` must have {len(self._d)} rows. Got shape {b.shape}.")
            x = xp.array((b if b.ndim == 2 else b[:, None]).T, order="F")
            work(x)
            return x.T.reshape(b.shape)

    def to_dense(self, dtype=np.float64):
        """Return the lower triangle (of A, or of L once factored), zeros above, in FP64 or FP32."""
        if self.factored is None:
            raise ValueError("the factorization of this tree failed: create a new one.")
        with device_of(self._d):
            lower = backend_of(self._d).zeros(self.shape, dtype, self._d)
            _write(self._root, lower)
            if (self._d == 1).all():
                # what stands above the diagonal takes no memory
                return lower
            lower /= self._d[:, None].astype(dtype)
            return lower if self.factored else lower / self._d

    def _check_factored(self):
        if not self.factored:
            raise ValueError("the tree is not factored: call potrf() first.")


def _write(t, out):
    if not t.half:
        out[...] = backend_of(t.a).xp.tril(t.a)
        return
    h = t.half
    out[h:, :h] = t.open()
    _write(t.a11, out[:h, :h])
    _write(t.a22, out[h:, h:])


def _solve(t, x, transposed):
    """X <- X L⁻' or X L⁻¹ in FP64, blocks widened one at a time; see `recursive.solve`."""
    if not t.half:
        lower = t.a.astype(np.float64, order="F", copy=False)
        backend_of(x).trsm(lower, x, transposed)
        return
    one, two = x[:, : t.half], x[:, t.half :]
    block = t.open().astype(np.float64, copy=False)
    if transposed:
        _solve(t.a11, one, True)
        two -= one @ block.T
        _solve(t.a22, two, True)
    else:
        _solve(t.a22, two, False)
        one -= two @ block
        _solve(t.a11, one, False)


def _multiply(t, x):
    """X <- X L' in FP64, blocks widened one at a time."""
    if not t.half:
        lower = t.a.astype(np.float64, order="F", copy=False)
        backend_of(x).trmm(lower, x, True)
        return
    one, two = x[:, : t.half], x[:, t.half :]
    _multiply(t.a22, two)
    two += one @ t.open().astype(np.float64, copy=False).T
    _multiply(t.a11, one)
