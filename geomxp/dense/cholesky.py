"""The Cholesky factorization by halves; see `dense.halves`.

    A11 = L11 L11',  A21 <- A21 L11⁻',  A22 <- A22 - A21 A21',  A22 = L22 L22'

On a GPU the CPU does not wait before the end, and the first block of A22 is factored while the
others are updated.
"""

from contextlib import contextmanager

import numpy as np

from ..errors import NotPositiveDefinite
from . import passes_gpu, views
from .halves import Rows, rank_k, solve


def leaves(t):
    """Return the leaves of a triangle from the top."""
    if not t.half:
        return [t]
    return leaves(t.a11) + leaves(t.a22)


def factor(t, forms):
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
            self._words = passes_gpu.info_words(leaves[0].a, len(leaves))

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
        with passes_gpu.second_stream(self._leaves[0].a) as stream:
            yield
            self._moment = stream.record()
        self._beside = t

    def join(self, t):
        """Return whether a block was factored on the second stream; if so, wait for it there."""
        if t is not self._beside:
            return False
        passes_gpu.wait_for(self._moment, self._leaves[0].a)
        return True

    def synchronize(self):
        """Wait until the second stream has done all."""
        if self._words is not None:
            passes_gpu.synchronize(self._words)

    def check(self):
        """Raise `NotPositiveDefinite` if a leaf on a GPU has no factor."""
        if self._words is not None:
            for t, info in zip(self._leaves, self._words.get().tolist(), strict=True):
                _check_leaf(t, info)


def _check_leaf(t, info):
    if info:
        order = t.first + info
        raise NotPositiveDefinite(f"the leading minor of order {order} is not positive", order)
