"""Triangles inverted and multiplied in place, by halves; NumPy or CuPy, no second matrix.

    L = [L11    ]    L⁻¹ = [     L11⁻¹             ]    L'L  = [L11'L11 + L21'L21         ]
        [L21 L22]          [-L22⁻¹ L21 L11⁻¹  L22⁻¹]           [L22'L21            L22'L22]

                                                        L L' = [L11 L11'                  ]
                                                               [L21 L11'  L21L21' + L22L22']

What is written last is read by nothing before. All but the leaves is `halves`' solves, products
and rank-k updates, so that the products are cuBLAS's or BLAS's and the sizes 64 bits. The inverse
and L'L are LAPACK's trtri and lauum; L'L of L⁻¹ is the inverse of the matrix whose factor L is.
"""

from ..cuda import device_of
from . import views
from .halves import Rows, multiply, rank_k, solve
from .panels import module


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


def congruence(t, a):
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
