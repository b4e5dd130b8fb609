"""Compiled operations on low-rank tiles: products, samples, truncation, interpolation.

Import this module inside the function that calls one of them: numba takes long to load.

BLAS and LAPACK are called by address, and the interpreter's lock is released once for a tile.
Threads would wait for one another if it were released and taken again for each small product.
An (m, n) matrix is held as an array (n, m) in C order, whose rows are its columns: slices of
columns are contiguous, and all arrays have one numba type. Shapes in docstrings are those of the
matrices.
"""

from collections import namedtuple

import numpy as np

from ..runtime.devices import cgutils, intrinsic, ir, njit, types

Routines = namedtuple("Routines", "gemm syrk trmm lacpy geqrf orgqr ormqr geqp3 gesdd gesv lag2")
"""Addresses of routines, see `blas.addresses`, for the type of all arrays of a call; lag2 converts
to it from the other type."""

_A, _L, _N, _R, _S, _T, _U = (np.uint8(ord(letter)) for letter in "ALNRSTU")


@intrinsic
def _call(context, address, operands):
    """Call a routine of BLAS or LAPACK at an address with a tuple of operands.

    Arrays are passed by the address of their first entry. Unsigned integers of 64 bits are
    addresses themselves. Other operands are passed by reference: signed integers as 32 bits,
    letters as one byte.
    """
    if any(isinstance(kind, types.Array) and kind.layout != "C" for kind in operands):
        raise TypeError("Arrays for BLAS and LAPACK must be contiguous, in C order.")

    def code(context, builder, signature, values):
        pointers, byte = [], ir.IntType(8).as_pointer()
        for kind, value in zip(operands, cgutils.unpack_tuple(builder, values[1]), strict=True):
            if isinstance(kind, types.Array):
                value = context.make_array(kind)(context, builder, value).data
            elif kind == types.uint64:
                value = builder.inttoptr(value, byte)
            else:
                if isinstance(kind, types.Integer) and kind.signed:
                    value = builder.trunc(value, ir.IntType(32))
                value = cgutils.alloca_once_value(builder, value)
            pointers.append(builder.bitcast(value, byte))
        function = ir.FunctionType(ir.VoidType(), [byte] * len(pointers))
        builder.call(builder.inttoptr(values[0], function.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(types.uint64, operands), code


@njit(nogil=True, cache=True)
def _gemm(routines, c, alpha, a, trans_a, b, trans_b, beta):
    """C <- α op(A) op(B) + βC; op(B) may have more columns than C, and the first ones are used."""
    number, (n, m) = c.dtype.type, c.shape
    k = a.shape[0] if trans_a == _N else a.shape[1]
    operands = (trans_a, trans_b, m, n, k, number(alpha), a, a.shape[1])
    _call(routines.gemm, (*operands, b, b.shape[1], number(beta), c, m))


@njit(nogil=True, cache=True)
def _work(columns, like):
    """Return workspace for LAPACK's algorithms on blocks of up to 64 columns."""
    return np.empty(64 * (columns + 1), like.dtype)


@njit(nogil=True, cache=True)
def _orthonormal(routines, a):
    """Return Q, (m, p), and R, (p, n), of A, (m, n), which is overwritten, with p = min(m, n)."""
    n, m = a.shape
    p = min(m, n)
    tau, work, info = np.empty(p, a.dtype), _work(n, a), np.zeros(1, np.int32)
    _call(routines.geqrf, (m, n, a, m, tau, work, len(work), info))
    r = np.tril(a[:, :p])
    _call(routines.orgqr, (m, p, p, a, m, tau, work, len(work), info))
    return a[:p], r


# Compression.


@njit(nogil=True, cache=True)
def compressed(routines, original, terms, mn, random, columns, bounds, rank):
    """Return U and V of S = A - Σ U V'X W' ≈ U V', or S and an empty array if its rank is high.

    A is `original`, or 0 if that is empty. `terms`, (terms, 10), has the addresses of U, (m, r),
    and V, (c, r), then r, c and the bytes of their numbers, and the same of W, (n, s), and X,
    (c, s). A term with c = 0 is U W'.

    S is sampled with columns[0] of the random vectors at first, then with columns[1] more at a
    time, until the last columns[2] of the sample add at most bounds[0], as a root mean square, to
    those before them. The error of truncation is at most bounds[1]. For `rank` see `_truncated`;
    if it is 0, or numbers are not finite, S is returned.
    """
    (m, n), total = mn, 0
    for j in range(len(terms)):
        total += min(terms[j, 2], terms[j, 7])
    left, right = np.empty((total, m), random.dtype), np.empty((total, n), random.dtype)
    _side_by_side(routines, terms, left, right)
    most, known, step = min(len(random), m) if rank else 0, 0, columns[0]
    # columns of S times random vectors, then the reflectors and R of their QR factorization
    y, tau = np.empty((most, m), random.dtype), np.empty(most, random.dtype)
    while known < most:
        end = min(known + step, most)
        y[known:end] = _times(routines, original, left, right, random[known:end], False)
        added = _continue_qr(routines, y, tau, known, end, columns[2])
        known, step = end, columns[1]
        if added <= bounds[0] or known == m:
            work, info = _work(known, y), np.zeros(1, np.int32)
            _call(routines.orgqr, (m, known, known, y, m, tau, work, len(work), info))
            basis = y[:known]
            other = _times(routines, original, left, right, basis, True)
            u, v, failed = _truncated(routines, basis, other, bounds[1], rank)
            if failed:
                break
            return u, v
    whole = np.zeros((n, m), random.dtype)
    if original.size:
        whole[:, :] = original
    if total:
        _gemm(routines, whole, -1.0, left, _N, right, _T, 1.0)
    return whole, right[:0]


@njit(nogil=True, cache=True)
def _side_by_side(routines, terms, left, right):
    """Write the factors of all terms of `compressed` into left, (m, Σ p), and right, (n, Σ p).

    The factors of a term have the smaller rank p of the two.
    """
    m, n, number, at = left.shape[1], right.shape[1], left.dtype.type, 0
    one, zero, gemm, copy = number(1), number(0), routines.gemm, routines.lacpy
    space = _space(terms, (m, n), left)
    for j in range(len(terms)):
        u, v, r, c, own, w, x, s, _, other = terms[j]
        u, v = _converted(routines, (u, v), (m, c, r), own, space[:2])
        w, x = _converted(routines, (w, x), (n, c, s), other, space[2:])
        ours, theirs = left[at], right[at]
        inner = np.empty(r * s if c else 0, left.dtype)
        if c:
            _call(gemm, (_T, _N, r, s, c, one, v, c, x, c, zero, inner, r))
        if r <= s:
            _call(copy, (_A, m, r, u, m, ours, m))
        else:
            _call(gemm, (_N, _N, m, s, r, one, u, m, inner, r, zero, ours, m))
        if r > s or not c:
            _call(copy, (_A, n, s, w, n, theirs, n))
        else:
            _call(gemm, (_N, _T, n, r, s, one, w, n, inner, r, zero, theirs, n))
        at += min(r, s)
    # this use keeps the memory of `space` alive: only its addresses were passed on
    space[0, 0] = 0


@njit(nogil=True, cache=True)
def _space(terms, sizes, like):
    """Return room for the operands of one term in another type, (4, entries)."""
    size, rank = max(sizes), 0
    for j in range(len(terms)):
        for side in (0, 5):
            if terms[j, side + 4] != like.itemsize:
                size = max(size, terms[j, side + 3])
                rank = max(rank, terms[j, side + 2])
    return np.empty((4, max(1, size * rank)), like.dtype)


@njit(nogil=True, cache=True)
def _converted(routines, addresses, shape, itemsize, space):
    """Return the addresses of U, (m, r), and V, (c, r), converted into `space` if necessary."""
    (m, c, r), found = shape, (np.uint64(addresses[0]), np.uint64(addresses[1]))
    if itemsize == space.itemsize:
        return found
    info = np.zeros(1, np.int32)
    for k, size in ((0, m), (1, c)):
        _call(routines.lag2, (size, r, found[k], size, space[k], size, info))
        if info[0]:
            # beyond the range of FP32
            space[k] = np.nan
    return np.uint64(space[0].ctypes.data), np.uint64(space[1].ctypes.data)


@njit(nogil=True, cache=True)
def _times(routines, original, left, right, x, transposed):
    """Return (A - U V')X or its transpose times X; A of size 0 is zero, and U V' may be empty."""
    ours, theirs = (right, left) if transposed else (left, right)
    count, width = len(x), len(ours)
    y = np.zeros((count, ours.shape[1]), x.dtype)
    if original.size:
        _gemm(routines, y, 1.0, original, _T if transposed else _N, x, _N, 0.0)
    if width:
        inner = np.empty((count, width), x.dtype)
        _gemm(routines, inner, 1.0, theirs, _T, x, _N, 0.0)
        _gemm(routines, y, -1.0, ours, _N, inner, _N, 1.0)
    return y


@njit(nogil=True, cache=True)
def _continue_qr(routines, y, tau, known, end, checks):
    """Continue the QR factorization of the first `known` columns of Y, (m, ...), up to `end`.

    Return the root mean square of what the last `checks` columns add to those before them.
    """
    m, step, info = y.shape[1], end - known, np.zeros(1, np.int32)
    # ormqr needs 64 · 65 numbers more
    work = _work(step + 64, y)
    if known:
        operands = (_L, _T, m, step, known, y, m, tau, y[known], m, work, len(work), info)
        _call(routines.ormqr, operands)
    operands = (m - known, step, y[known, known:], m, tau[known:], work, len(work), info)
    _call(routines.geqrf, operands)
    first, total = max(0, end - checks), 0.0
    for j in range(first, end):
        for i in range(first, j + 1):
            total += y[j, i] * y[j, i]
    return np.sqrt(total / (end - first))


@njit(nogil=True, cache=True)
def _truncated(routines, basis, other, tolerance, rank):
    """Return U and V of Q B' with the least rank whose truncation error is below the tolerance.

    With a `rank` that is not negative that one, if its error is below three times the tolerance.
    Return also LAPACK's info of the singular value decomposition. B is overwritten.
    """
    q, r = _orthonormal(routines, other)
    k, p = r.shape
    u, vt = np.empty((p, p), r.dtype), np.empty((k, p), r.dtype)
    values, info = np.empty(p, r.dtype), np.zeros(1, np.int32)
    work, words = np.empty(4 * p * p + 64 * (p + k), r.dtype), np.empty(8 * p, np.int32)
    operands = (_S, p, k, r, p, values, u, p, vt, p, work, len(work), words, info)
    _call(routines.gesdd, operands)
    tail, total = np.empty(p), 0.0
    for j in range(p - 1, -1, -1):
        total += values[j] * values[j]
        tail[j] = np.sqrt(total)
    if rank < 0 or (rank < p and tail[rank] > 3 * tolerance):
        rank = max(1, np.sum(tail > tolerance))
    rank = min(rank, p)
    left = np.empty((rank, basis.shape[1]), r.dtype)
    right = np.empty((rank, q.shape[1]), r.dtype)
    # B = Q_B R and R = U S V', so that Q B' = (Q V S) (Q_B U)'
    _gemm(routines, left, 1.0, basis, _N, vt * values, _T, 0.0)
    _gemm(routines, right, 1.0, q, _N, u, _N, 0.0)
    return left, right, info[0]


# Squares.


@njit(nogil=True, cache=True)
def subtract_squares(routines, terms, c):
    """Lower triangle of C <- C - Σ (U V')(U V')' = C - Σ (U R')(U R')' with V = Q R.

    `terms` begin with the address of U, (m, r), that of V, (n, r), r, n and the bytes of a number.
    """
    m, number, at = c.shape[1], c.dtype.type, 0
    factors, info = np.empty((np.sum(terms[:, 2]), m), c.dtype), np.zeros(1, np.int32)
    space = _space(terms, (m, m), c)
    for j in range(len(terms)):
        u, v, r, n, own = terms[j, :5]
        u, v = _converted(routines, (u, v), (m, n, r), own, space[:2])
        rows = max(n, r)
        q, tau, work = np.zeros((r, rows), c.dtype), np.empty(r, c.dtype), _work(r, c)
        _call(routines.lacpy, (_A, n, r, v, n, q, rows))
        _call(routines.geqrf, (rows, r, q, rows, tau, work, len(work), info))
        _call(routines.lacpy, (_A, m, r, u, m, factors[at], m))
        _call(routines.trmm, (_R, _U, _T, _N, m, r, number(1), q, rows, factors[at], m))
        at += r
    # this use keeps the memory of `space` alive: only its addresses were passed on
    space[0, 0] = 0
    _call(routines.syrk, (_L, _N, m, at, number(-1), factors, m, number(1), c, m))


# Interpolation.


@njit(nogil=True, cache=True)
def _pivots(routines, a):
    """Return the order of the columns of A by QR with pivoting; A is overwritten by R."""
    n, m = a.shape
    order, tau, info = np.zeros(n, np.int32), np.empty(min(m, n), a.dtype), np.zeros(1, np.int32)
    work = _work(n, a)
    _call(routines.geqp3, (m, n, a, m, order, tau, work, len(work), info))
    return order - 1


@njit(nogil=True, cache=True)
def through(routines, across, down, tolerance):
    """Return U, (m, r), and V, (n, r), of A[:, J] A[I, J]⁻¹ A[I, :] from columns and rows of A.

    `across`, (m, c), has the first columns and `down`, (c, n), the first rows. r = 0 if their
    intersection has no lower rank at the tolerance: more of them are needed.
    """
    (count, m), n = across.shape, len(down)
    square = across[:, :count].copy()
    first, rank = _pivots(routines, square), 0
    for j in range(count):
        rank += abs(square[j, j]) > 0.1 * tolerance / np.sqrt(count)
    rank = max(rank, 1) if rank <= 0.8 * count else 0
    u, v = np.empty((rank, m), across.dtype), np.empty((rank, n), across.dtype)
    if rank == 0:
        return u, v
    # the chosen columns, transposed
    turned = np.empty((m, rank), across.dtype)
    for j in range(rank):
        turned[:, j] = across[first[j]]
    # of the rows the best conditioned ones
    rows = _pivots(routines, turned[:count].copy())[:rank]
    core, order, info = turned[rows], np.empty(rank, np.int32), np.zeros(1, np.int32)
    _call(routines.gesv, (rank, m, core, rank, order, turned, rank, info))
    if info[0]:
        return u[:0], v[:0]
    u[:, :] = turned.T
    for j in range(rank):
        v[j] = down[:, rows[j]]
    return u, v
