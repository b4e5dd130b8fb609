"""Eight small Cholesky factors at once, and substitutions with them, compiled by numba.

Entry (i, j) of the eight lower triangles is the `Lanes` at 8 (i (i + 1)/2 + j) of one flat array;
entry i of eight vectors is the `Lanes` at 8 i. Orders are multiples of 4, the side of a tile that
LLVM keeps in registers.
"""

from ..execution.jit import njit
from .lanes import load, root, spread, store

TILE = 4
"""Rows and columns of a tile: 16 sums and 5 factors fit into AVX-512's 32 registers."""


@njit(nogil=True, cache=True)
def _row(i):
    return 4 * i * (i + 1)


@njit(nogil=True, cache=True)
def _four(a, at):
    return load(a, at), load(a, at + 8), load(a, at + 16), load(a, at + 24)


@njit(nogil=True, cache=True)
def _keep(a, at, c):
    store(a, at, c[0])
    store(a, at + 8, c[1])
    store(a, at + 16, c[2])
    store(a, at + 24, c[3])


@njit(nogil=True, cache=True)
def _less(c, x, y):
    """C - x y', one row of a tile."""
    return c[0] - x * y[0], c[1] - x * y[1], c[2] - x * y[2], c[3] - x * y[3]


@njit(nogil=True, cache=True)
def _below(a, i):
    """Return what stands below the diagonal of diagonal tile i: l10, l20, l21, l30, l31, l32."""
    at = 8 * i
    r1, r2, r3 = _row(i + 1) + at, _row(i + 2) + at, _row(i + 3) + at
    return (
        *(load(a, r1), load(a, r2), load(a, r2 + 8)),
        *(load(a, r3), load(a, r3 + 8), load(a, r3 + 16)),
    )


@njit(nogil=True, cache=True)
def _solved(c, lower, inverse):
    """C <- c L^-T for one row c of a tile; the same as L^-1 c of a column."""
    c0 = c[0] * inverse[0]
    c1 = (c[1] - c0 * lower[0]) * inverse[1]
    c2 = (c[2] - c0 * lower[1] - c1 * lower[2]) * inverse[2]
    c3 = (c[3] - c0 * lower[3] - c1 * lower[4] - c2 * lower[5]) * inverse[3]
    return c0, c1, c2, c3


@njit(nogil=True, cache=True)
def factor(a, inverse, order):
    """Overwrite a with its Cholesky factor, row of tiles by row of tiles; 1/l_ii into `inverse`.

    Where a matrix is not positive definite its last pivot, too, is NaN, infinite or 0.
    """
    for i in range(0, order, 4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        for j in range(0, i, 4):
            # A_ij <- (A_ij - Σ_k A_ik A_jk') L_jj^-T
            s0, s1, s2, s3 = _row(j), _row(j + 1), _row(j + 2), _row(j + 3)
            at = 8 * j
            c0, c1 = _four(a, r0 + at), _four(a, r1 + at)
            c2, c3 = _four(a, r2 + at), _four(a, r3 + at)
            for k in range(0, at, 8):
                y = load(a, s0 + k), load(a, s1 + k), load(a, s2 + k), load(a, s3 + k)
                c0 = _less(c0, load(a, r0 + k), y)
                c1 = _less(c1, load(a, r1 + k), y)
                c2 = _less(c2, load(a, r2 + k), y)
                c3 = _less(c3, load(a, r3 + k), y)
            lower, diagonal = _below(a, j), _four(inverse, at)
            _keep(a, r0 + at, _solved(c0, lower, diagonal))
            _keep(a, r1 + at, _solved(c1, lower, diagonal))
            _keep(a, r2 + at, _solved(c2, lower, diagonal))
            _keep(a, r3 + at, _solved(c3, lower, diagonal))
        _factor_diagonal(a, inverse, i)


@njit(nogil=True, cache=True)
def _factor_diagonal(a, inverse, i):
    """A_ii <- chol(A_ii - Σ_k A_ik A_ik')."""
    r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
    at = 8 * i
    one = spread(1.0)
    d0 = load(a, r0 + at)
    l10, d1 = load(a, r1 + at), load(a, r1 + at + 8)
    l20, l21, d2 = load(a, r2 + at), load(a, r2 + at + 8), load(a, r2 + at + 16)
    l30, l31, l32 = load(a, r3 + at), load(a, r3 + at + 8), load(a, r3 + at + 16)
    d3 = load(a, r3 + at + 24)
    for k in range(0, at, 8):
        x0, x1, x2, x3 = load(a, r0 + k), load(a, r1 + k), load(a, r2 + k), load(a, r3 + k)
        d0, d1, d2, d3 = d0 - x0 * x0, d1 - x1 * x1, d2 - x2 * x2, d3 - x3 * x3
        l10, l20, l30 = l10 - x1 * x0, l20 - x2 * x0, l30 - x3 * x0
        l21, l31, l32 = l21 - x2 * x1, l31 - x3 * x1, l32 - x3 * x2
    d0 = root(d0)
    i0 = one / d0
    l10, l20, l30 = l10 * i0, l20 * i0, l30 * i0
    d1 = root(d1 - l10 * l10)
    i1 = one / d1
    l21, l31 = (l21 - l20 * l10) * i1, (l31 - l30 * l10) * i1
    d2 = root(d2 - l20 * l20 - l21 * l21)
    i2 = one / d2
    l32 = (l32 - l30 * l20 - l31 * l21) * i2
    d3 = root(d3 - l30 * l30 - l31 * l31 - l32 * l32)
    i3 = one / d3
    _keep(inverse, at, (i0, i1, i2, i3))
    store(a, r0 + at, d0)
    store(a, r1 + at, l10)
    store(a, r1 + at + 8, d1)
    store(a, r2 + at, l20)
    store(a, r2 + at + 8, l21)
    store(a, r2 + at + 16, d2)
    _keep(a, r3 + at, (l30, l31, l32, d3))


@njit(nogil=True, cache=True)
def forward(a, inverse, y, start, order):
    """Y <- L^-1 y, for the vectors that begin at an entry of an array."""
    for i in range(0, order, 4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        c = _four(y, start + 8 * i)
        for k in range(0, 8 * i, 8):
            x = load(y, start + k)
            c = _less(c, x, (load(a, r0 + k), load(a, r1 + k), load(a, r2 + k), load(a, r3 + k)))
        _keep(y, start + 8 * i, _solved(c, _below(a, i), _four(inverse, 8 * i)))


@njit(nogil=True, cache=True)
def backward(a, inverse, y, start, order):
    """Y <- L^-T y, for the vectors that begin at an entry of an array."""
    for i in range(order - 4, -1, -4):
        r0, r1, r2, r3 = _row(i), _row(i + 1), _row(i + 2), _row(i + 3)
        lower, diagonal, c = _below(a, i), _four(inverse, 8 * i), _four(y, start + 8 * i)
        c3 = c[3] * diagonal[3]
        c2 = (c[2] - lower[5] * c3) * diagonal[2]
        c1 = (c[1] - lower[4] * c3 - lower[2] * c2) * diagonal[1]
        c0 = (c[0] - lower[3] * c3 - lower[1] * c2 - lower[0] * c1) * diagonal[0]
        _keep(y, start + 8 * i, (c0, c1, c2, c3))
        for k in range(0, 8 * i, 8):
            x = load(y, start + k) - c0 * load(a, r0 + k) - c1 * load(a, r1 + k)
            x = x - c2 * load(a, r2 + k) - c3 * load(a, r3 + k)
            store(y, start + k, x)
