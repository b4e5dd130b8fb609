"""Matrices of a batch one after the other, and interleaved in a chunk: from one to the other.

Canonical: (batch, n, n), each matrix contiguous. Interleaved: (n, n, lanes), entry (i, j) of all
matrices of a chunk side by side. As many matrices as a SIMD register holds numbers move together,
by blocks of as many entries, transposed in registers. Arrays are flat and contiguous here.
"""

import numpy as np

from ..runtime.devices import njit
from .simd import clear, load, proper, store, touch, transpose, width_of

WHOLE = 16
"""The largest order for which more is lost than won by leaving the upper triangle out."""


@njit(nogil=True, cache=True)
def pack(a, size, member, members, chunk, lanes):
    """Chunk <- all entries of members, `size` each; lanes without one are left alone."""
    width, ahead = width_of(a), lanes * size
    for first in range(0, members, width):
        at = (member + first) * size
        if first + width <= members and size >= width:
            for t in range(0, size, width):
                t = min(t, size - width)
                if t // width % 2 == 0:
                    call(a, at + ahead + t, size)
                transpose(a, at + t, size, chunk, t * lanes + first, lanes, 0)
        else:
            for m in range(first, min(first + width, members)):
                for t in range(size):
                    chunk[t * lanes + m] = a[(member + m) * size + t]


@njit(nogil=True, cache=True)
def unpack(chunk, lanes, a, size, member, members, source):
    """All entries of members, `size` each <- chunk; what is packed next is in `source`, like a."""
    width, ahead = width_of(a), lanes * size
    for first in range(0, members, width):
        at = (member + first) * size
        if first + width <= members and size >= width:
            for t in range(0, size, width):
                t = min(t, size - width)
                if t // width % 2:
                    call(source, at + ahead + t, size)
                transpose(chunk, t * lanes + first, lanes, a, at + t, size, 0)
        else:
            for m in range(first, min(first + width, members)):
                for t in range(size):
                    a[(member + m) * size + t] = chunk[t * lanes + m]


@njit(nogil=True, cache=True)
def call(a, at, apart):
    """Have the CPU read what `transpose` will read, in the next chunk.

    It follows one stream of addresses by itself, not as many as a register has numbers; and it
    can wait for few cache lines at one time, so that they are called for between other work:
    every other one by `pack`, the rest by `unpack`.
    """
    for m in range(width_of(a)):
        touch(a, at + m * apart)


@njit(nogil=True, cache=True)
def pack_lower(a, n, member, members, chunk, lanes):
    """Lower triangles of a chunk <- those of members; lanes without one become the identity.

    Above the diagonal stand zeros up to order WHOLE, or where lanes are left; else nothing is
    written there.
    """
    width = width_of(a)
    if members < lanes:
        chunk[:] = 0
        for i in range(n):
            chunk[(i * n + i) * lanes : (i * n + i + 1) * lanes] = 1
    if n <= WHOLE or members < lanes:
        pack(a, n * n, member, members, chunk, lanes)
        clear_upper(chunk, n, lanes)
        return
    block, ahead = np.empty(width * width, a.dtype), lanes * n * n
    for first in range(0, lanes, width):
        for i in range(n):
            at = (member + first) * n * n + i * n
            for j in range(0, i + 1, width):
                j = min(j, n - width)
                to = (i * n + j) * lanes + first
                call(a, at + ahead + j, n * n)
                if j + width <= i + 1:
                    transpose(a, at + j, n * n, chunk, to, lanes, 0)
                    continue
                transpose(a, at + j, n * n, block, 0, width, 0)
                for p in range(i + 1 - j):
                    store(chunk, to + p * lanes, load(block, p * width))


@njit(nogil=True, cache=True)
def unpack_lower(chunk, n, lanes, a, member, members, source, past_cache):
    """Members <- lower triangular matrices of a chunk that holds zeros above the diagonal.

    What is packed next is in `source`, like a. Where `past_cache`, rows of `a` must be aligned and
    of whole registers.
    """
    width = width_of(a)
    if past_cache and members == lanes:
        _unpack_past_cache(chunk, n, lanes, a, member)
        return
    if n <= WHOLE or members < lanes:
        unpack(chunk, lanes, a, n * n, member, members, source)
        return
    for first in range(0, lanes, width):
        for i in range(n):
            at = (member + first) * n * n + i * n
            for j in range(0, i + 1, width):
                j = min(j, n - width)
                transpose(chunk, (i * n + j) * lanes + first, lanes, a, at + j, n * n, 0)
            # a register's width of zeros may reach into the next row, which is written next
            for m in range(width):
                for j in range((i // width + 1) * width, n, width):
                    clear(a, at + m * n * n + j, 0)


@njit(nogil=True, cache=True)
def _unpack_past_cache(chunk, n, lanes, a, member):
    width = width_of(a)
    for first in range(0, lanes, width):
        for i in range(n):
            at = (member + first) * n * n + i * n
            for j in range(0, i + 1, width):
                transpose(chunk, (i * n + j) * lanes + first, lanes, a, at + j, n * n, 1)
            for m in range(width):
                for j in range((i // width + 1) * width, n, width):
                    clear(a, at + m * n * n + j, 1)


@njit(nogil=True, cache=True)
def clear_upper(chunk, n, lanes):
    """Chunk <- 0 above the diagonal."""
    width = width_of(chunk)
    for i in range(n):
        for t in range((i * n + i + 1) * lanes, (i + 1) * n * lanes, width):
            clear(chunk, t, 0)


@njit(nogil=True, cache=True)
def check(chunks, start, n, lanes, members, info, member):
    """Write LAPACK's info of the factors in a chunk; return whether one of them is not a factor.

    A pivot that is not positive, or a NaN before it, makes its diagonal entry NaN, or 0.
    """
    good = True
    for first in range(start, start + lanes, width_of(chunks)):
        for i in range(n):
            good &= proper(chunks, (i * n + i) * lanes + first)
    if good:
        return False
    for m in range(members):
        for i in range(n):
            entry = chunks[start + (i * n + i) * lanes + m]
            if not (entry > 0 and entry < np.inf):
                info[member + m] = i + 1
                break
    return True


@njit(nogil=True, cache=True)
def spoil(chunk, n, lanes, a, member, info):
    """Lower triangles without a factor <- NaN; info <- -row of what was not finite before."""
    for m in range(len(info)):
        if not info[m]:
            continue
        for i in range(n):
            for j in range(i + 1):
                chunk[(i * n + j) * lanes + m] = np.nan
                if info[m] > 0 and not np.isfinite(a[((member + m) * n + i) * n + j]):
                    info[m] = -i - 1
