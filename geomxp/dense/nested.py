"""Cholesky, triangular solves and products by halves: a few huge products do nearly all the work.

`layers` names the formats of the off-diagonal blocks from the largest inwards; the last one, FP64
or FP32, holds for the rest and is the arithmetic of the leaves. ("fp16", "fp32") multiplies the
outermost block in FP16 and all else in FP32; ("fp64",) is the plain recursion. NumPy and CuPy
arrays, in any layout, are overwritten as BLAS and LAPACK overwrite them.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..cuda import device_of
from ..errors import InvalidInput
from ..execution.devices import gpu_memory
from ..precision.formats import FP32, FP64, Format, named
from . import working
from .cholesky import factor
from .halves import Rows, Triangle, multiply, rank_k, solve
from .tuning import leaf_size

if TYPE_CHECKING:
    from ..annotations import Any, AnyArray, Sequence


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
        and holds for the rest. Numbers are FP32 where it is "fp32".
    leaf : int, optional
        Below this size LAPACK takes over; tuned if not given.

    Returns
    -------
    a

    Raises
    ------
    NotPositiveDefinite
        With the order of the first leading minor that is not positive.
    InvalidInput
        If the lower triangle holds a NaN or an infinity, or an argument is not what it must be.

    Examples
    --------
    >>> a = np.array([[4.0, 0.0], [2.0, 5.0]])
    >>> potrf(a).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    check_matrix("a", a, square=True, written=True)
    forms = check_layers(layers, a)
    with working.one_matrix(a, forms) as (work, bound):
        leaf = check_leaf(leaf, "potrf", work, forms)
        factor(Triangle(work, forms, leaf, bound=bound), forms)
    return a


@gpu_memory()
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
        U: the diagonal of A is not read and stands for ones.
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
    return _act(solve, "trsm", a, b, side, uplo, trans, diag, alpha, layers, leaf)


@gpu_memory()
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
    return _act(multiply, "trmm", a, b, side, uplo, trans, diag, alpha, layers, leaf)


def _act(work, name, a, b, side, uplo, trans, diag, alpha, layers, leaf):
    """Bring a triangular operation to B op(T) with a lower T, and do it."""
    check_matrix("a", a, square=True)
    check_matrix("b", b, written=True)
    forms = check_layers(layers, a)
    leaf = check_leaf(leaf, name, a, forms)
    for letter, allowed in ((side, "LR"), (uplo, "LU"), (trans, "NT"), (diag, "NU")):
        if letter not in tuple(allowed):
            raise InvalidInput(
                f"{name} letters must be one of {', '.join(allowed)}. Got {letter!r}."
            )
    if b.dtype != a.dtype or b.shape["LR".index(side)] != len(a):
        raise InvalidInput(
            f"`b` must be of {a.dtype} with {len(a)} {'rows' if side == 'L' else 'columns'}. "
            f"Got {b.dtype} of shape {b.shape}."
        )
    with device_of(b):
        if alpha == 0.0:
            b[...] = 0.0
            return b
        if alpha != 1.0:
            b *= b.dtype.type(alpha)
    # an upper triangle is a lower one transposed, and op(A) X = B is X' op(A)' = B'
    lower, transposed = (a, trans == "T") if uplo == "L" else (a.T, trans == "N")
    form = forms[-1]
    with working.one_array(b, form) as target, working.one_array(lower, form, "nothing") as t:
        target, transposed = (target, transposed) if side == "R" else (target.T, not transposed)
        triangle = Triangle(t, forms, leaf, diag == "U")
        rows = Rows(target, forms)
        if work is multiply:
            for first in range(0, len(a), triangle.leaf):
                rows.finish(slice(first, min(first + triangle.leaf, len(a))))
        work(triangle, rows, slice(0, len(a)), transposed)
    return b


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
        "fp32" and holds for the rest. A is cast once to each coarse format. Where the last is
        "fp64", blocks in "fp32" are computed in FP64.
    leaf : int, optional

    Returns
    -------
    c
    """
    check_matrix("a", a)
    forms = check_layers(layers, a)
    if uplo not in ("L", "U") or trans not in ("N", "T"):
        raise InvalidInput(f"syrk takes uplo L or U, trans N or T. Got {uplo!r} and {trans!r}.")
    a = a if trans == "N" else a.T
    if c is None:
        c, beta = working.zeros((len(a), len(a)), a), 0.0
    check_matrix("c", c, square=True, written=True)
    if c.dtype != a.dtype or len(c) != len(a):
        raise InvalidInput(
            f"`c` must be {len(a)} by {len(a)} of {a.dtype}. Got {c.dtype} {c.shape}."
        )
    leaf = check_leaf(leaf, "syrk", c, forms)
    # as BLAS: nothing of A is read for α = 0
    a = a[:, :0] if alpha == 0.0 else a
    with working.one_array(c if uplo == "L" else c.T, forms[-1], "lower") as target:
        working.scale_lower(target, beta)
        with working.one_array(a, forms[-1], "nothing") as source:
            rows = Rows(source, forms)
            step = max(leaf, 1024)
            for first in range(0, source.shape[1], step):
                rows.finish(slice(first, min(first + step, source.shape[1])))
            rank_k(Triangle(target, forms, leaf), slice(0, len(c)), rows, forms, alpha)
    return c


def check_layers(layers: Sequence[str | Format], array: Any) -> tuple[Format, ...]:
    """Return the formats of layers for an array; `InvalidInput` if they are none."""
    single = isinstance(layers, (str, Format)) or not isinstance(layers, Iterable)
    listed = ((layers,) if layers is not None else ()) if single else tuple(layers)
    forms = tuple(named(name) for name in listed)
    if not forms or forms[-1] not in (FP32, FP64):
        raise InvalidInput(
            "`layers` must end with 'fp32' or 'fp64', the leaves' arithmetic. "
            f"Got {listed or layers!r}."
        )
    if forms[-1] is FP64 and array.dtype == np.float32:
        raise InvalidInput("`layers` ending with 'fp64' need an FP64 array. Got float32.")
    return forms


def check_leaf(leaf: int | None, name: str, a: AnyArray, forms: Sequence[Format]) -> int:
    """Return the leaf given, or the tuned one for a square array; `InvalidInput` if it is wrong."""
    if leaf is None:
        return leaf_size(name, len(a), forms, "cpu" if isinstance(a, np.ndarray) else "gpu")
    if not isinstance(leaf, Integral) or isinstance(leaf, bool) or leaf < 1:
        raise InvalidInput(f"`leaf` must be a positive integer. Got {leaf!r}.")
    return int(leaf)


def check_matrix(name: str, array: Any, square: bool = False, written: bool = False) -> None:
    """Raise `InvalidInput` if an argument is no matrix of FP64 or FP32, or must not be written."""
    if getattr(array, "ndim", 0) != 2 or (square and array.shape[0] != array.shape[1]):
        shape = getattr(array, "shape", type(array).__name__)
        raise InvalidInput(f"`{name}` must be a {'square ' if square else ''}matrix. Got {shape}.")
    if array.dtype not in (np.float32, np.float64):
        raise InvalidInput(f"`{name}` must be of float64 or float32. Got {array.dtype}.")
    if written and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise InvalidInput(f"`{name}` is overwritten, and this array is read-only: copy it first.")
