"""Blocks of a symmetric matrix that is halved recursively, each in a format of its own.

    [A11    ]    A11 and A22 are halved again, down to cells; A21 is one block if its cells have one
    [A21 A22]    format, else it is cut in four, and so on

A `PrecisionMap` on the cells, whose number is T per dimension, is the whole description: `blocks`
lists the largest blocks that it allows. `joined` chooses the formats, from shares of an error that
add up over cells. Ranges of cells are pairs (first, last).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .._typing import Floats, Iterator, Sequence
    from .formats import Format

LEAST_SAVING = 0.07
"""Fraction of its bytes that cutting a block must save; a smaller saving does not make up for
smaller products."""


class Block(NamedTuple):
    """A block in one format: its cells by rows and by columns."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    form: Format

    @property
    def on_diagonal(self) -> bool:
        """Whether this is a cell of the diagonal."""
        return self.rows == self.columns


def halves(cells: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the two halves of some cells, or the cells themselves if there is one only.

    The first half has a power of two of them, so that all blocks are parts of one quadtree.

    Examples
    --------
    >>> halves((0, 6)), halves((4, 6)), halves((5, 6))
    (((0, 4), (4, 6)), ((4, 5), (5, 6)), ((5, 6),))
    """
    first, last = cells
    if last - first < 2:
        return (cells,)
    middle = first + _half(cells)
    return (first, middle), (middle, last)


def _half(cells):
    """Return the largest power of two below the number of cells, 0 for one cell."""
    return 1 << (cells[1] - cells[0] - 1).bit_length() >> 1


def _quarters(above, left):
    """Return the parts of a block, in the order of their columns.

    A square is cut in four; another block in two, across its longer side.
    """
    high, wide = _half(above), _half(left)
    columns = halves(left) if wide >= high else (left,)
    rows = halves(above) if high >= wide else (above,)
    return [(a, b) for b in columns for a in rows]


def blocks(rows: Sequence[Sequence[Format]], most: int) -> Iterator[Block]:
    """Yield the blocks of a lower triangle, each after those that its factorization needs.

    Parameters
    ----------
    rows : sequence of sequences of Format
        ``rows[i][k]``, those of a `PrecisionMap`.
    most : int
        The largest number of cells in a dimension of a block.

    Examples
    --------
    >>> from geomxp.linalg.formats import FP16, FP32, FP64
    >>> rows = (FP64,), (FP32, FP64), (FP16, FP16, FP64), (FP16, FP16, FP32, FP64)
    >>> [(block.rows, block.columns, block.form) for block in blocks(rows, 4)][2:5]
    [((1, 2), (1, 2), fp64), ((2, 4), (0, 2), fp16), ((2, 3), (2, 3), fp64)]
    """

    def below(above, left):
        forms = {form for i in range(*above) for form in rows[i][slice(*left)]}
        if len(forms) == 1 and max(above[1] - above[0], left[1] - left[0]) <= most:
            yield Block(above, left, *forms)
            return
        # columns in their order, because they are solved from the left
        for part in _quarters(above, left):
            yield from below(*part)

    def triangle(cells):
        if len(halves(cells)) == 1:
            yield Block(cells, cells, rows[cells[0]][cells[0]])
            return
        one, two = halves(cells)
        yield from triangle(one)
        yield from below(two, one)
        yield from triangle(two)

    if rows:
        yield from triangle((0, len(rows)))


def joined(
    forms: Sequence[Format], shares: Floats, allowed: Floats, sizes: Floats, least: int
) -> dict[tuple[int, int], Format]:
    """Choose the formats of the cells below the diagonal, the same for all cells of a block.

    A block has the first format whose shares sum to no more than is allowed in its cells, and is
    cut in four where that saves `LEAST_SAVING` of its bytes.

    Parameters
    ----------
    forms : sequence of Format
        Coarsest first.
    shares : (F, T, T) ndarray
        Share of each cell in the error, by format.
    allowed : (T, T) ndarray
        What they may sum to.
    sizes : (T,) ndarray
        Rows of each block row.
    least : int
        Fewest cells in a dimension of a part.

    Returns
    -------
    dict
        By (i, k).
    """
    chosen = {}

    def choose(above, left):
        """Return the bytes of a block, and its parts with their formats."""
        here = np.s_[slice(*above), slice(*left)]
        enough = shares[:, *here].sum(axis=(1, 2)) <= allowed[here].sum()
        form = forms[int(np.argmax(enough))] if enough.any() else forms[-1]
        whole = form.bytes * sizes[slice(*above)].sum() * sizes[slice(*left)].sum()
        alone = [(above, left, form)]
        can_be_cut = max(above[1] - above[0], left[1] - left[0]) >= 2 * least
        if form is forms[0] or not can_be_cut:
            return whole, alone
        parts = [choose(*part) for part in _quarters(above, left)]
        total = sum(part for part, _ in parts)
        if total > (1 - LEAST_SAVING) * whole:
            return whole, alone
        return total, [each for _, part in parts for each in part]

    def triangle(cells):
        if len(halves(cells)) == 1:
            return
        one, two = halves(cells)
        for above, left, form in choose(two, one)[1]:
            chosen.update(((i, k), form) for i in range(*above) for k in range(*left))
        triangle(one)
        triangle(two)

    triangle((0, len(sizes)))
    return chosen
