"""The Cholesky factor whose tiles are on a cluster: what statistics asks of it, done there."""

import numpy as np

from ..errors import NotEnoughMemory
from ..linalg import recursive
from ..linalg.backend import backend_of, device_of
from ..linalg.formats import aligned
from ..runtime.devices import free_memory, human_bytes
from .dask_store import pinned
from .factor import TileFactor, on_host

PANEL = 64
"""Right-hand sides of one backward substitution: its sums travel, a vector for each tile."""


def _beside(matrix, y):
    """Return vectors where a matrix is: they travel between machines as NumPy arrays."""
    return backend_of(matrix).put(aligned(y), matrix)


def _solved(diagonal, y, **about):
    """Return L_kk⁻¹y, or L_kk⁻'y."""
    lower = diagonal.widen()
    return on_host(recursive.trsm(lower, _beside(lower, y), **about))


def _product(matrix, y):
    with device_of(matrix):
        return on_host(matrix @ _beside(matrix, y))


def _log_diagonal(tile):
    """Return Σ log L_ii of a diagonal tile."""
    with pinned():
        return float(np.log(on_host(tile.widen().diagonal())).sum())


def _keep(value):
    return value


def _forward(diagonal, rest, j):
    """Return y_j = L_jj⁻¹ (b_j - Σ_{k<j} L_jk y_k), of which the bracket is known."""
    with pinned():
        return _solved(diagonal, rest[j])


def _subtract(rest, y, below):
    """Return b_i - … - L_ij y_j of the rows of one worker.

    Parameters
    ----------
    rest : dict of int to ndarray
    y : ndarray
    below : dict of int to Tile
        L_ij for the rows i that are left.
    """
    with pinned():
        return {i: rest[i] - _product(tile.widen(), y) for i, tile in below.items()}


def _backward(diagonal, y, unit, i, sums):
    """Return x_i = L_ii⁻' (y_i - Σ_{k>i} L_ki' x_k), the sum's terms in `sums`."""
    with pinned():
        y = y / unit
        for terms in sums:
            y = y - terms[i]
        return _solved(diagonal, y, transposed=True)


def _terms(x, row):
    """Return {j: L_ij' x_i} of some tiles of block row i."""
    with pinned():
        return {j: _product(tile.widen().T, x) for j, tile in row.items()}


def _times(row, x):
    """Return Σ_j L_ij x_j."""
    with pinned():
        y = np.zeros((row[0].shape[0], x[0].shape[1]), order="F")
        for j, tile in enumerate(row):
            y += _product(tile.widen(), x[j])
        return y


class ClusterFactor(TileFactor):
    """Σ = 4^e L L' with the tiles of L on the workers of a cluster; see `TileFactor`.

    The order of the operations on each number is that of `TileFactor`, whoever makes them.

    Parameters
    ----------
    store : geomxp.tiles.dask_store.OnCluster
        With all tiles final.
    order : (n,) ndarray of int
        Row r of L belongs to place order[r].
    promotions : int
    """

    def log_determinant(self):
        """Return log|Σ| = 2 Σ_i log L_ii."""
        layout, submit = self.store.layout, self.store.crew.submit
        blocks = range(layout.tiles)

        def logs():
            return [submit(i, _log_diagonal, self._tile(i, i)) for i in blocks]

        total = sum(self.store.collect(logs))
        return 2.0 * (total + layout.n * float(np.log(self._unit)))

    def whiten(self, b):
        """Return L⁻¹b, its rows in the factor's order, for (n,) or (n, m)."""
        blocks = self._blocks(self._sorted(b))
        found = self.store.collect(lambda: self._whitened(blocks))
        return np.asfortranarray(np.vstack(found)).reshape(b.shape, order="A")

    def solve(self, b):
        """Return Σ⁻¹b for (n,) or (n, m)."""
        y = self._sorted(b)
        panels = []
        for first in range(0, y.shape[1], PANEL):
            blocks = self._blocks(y[:, first : first + PANEL])
            panels.append(np.vstack(self.store.collect(lambda b=blocks: self._solved(b))))
        x = np.hstack(panels) if panels else y
        return self._unsorted(x).reshape(b.shape, order="A")

    def multiply(self, x):
        """Return L x for (n, m), its rows in the order of the places."""
        crew, parts = self.store.crew, self._blocks(np.asfortranarray(x))

        def products():
            there = [crew.submit(slot, _keep, parts) for slot in range(len(crew))]
            return [
                crew.submit(
                    i, _times, [self._tile(i, j) for j in range(i + 1)], there[i % len(crew)]
                )
                for i in range(len(parts))
            ]

        return self._unsorted(self._unit * np.vstack(self.store.collect(products)))

    def dense(self):
        """Return L in FP64, rows and columns in the factor's order, zeros above the diagonal.

        Returns
        -------
        (n, n) ndarray, Fortran order

        Raises
        ------
        NotEnoughMemory
            If this process cannot hold it.
        """
        layout = self.store.layout
        needed, free = 8 * layout.n**2, free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"the factor of {layout.n:,} places as one array needs {human_bytes(needed)} of "
                f"memory here, {human_bytes(free)} free: it stays on the cluster."
            )
        lower = np.zeros((layout.n, layout.n), order="F")
        for i in range(layout.tiles):
            row = self.store.collect(lambda i=i: [self._tile(i, j) for j in range(i + 1)])
            for j, tile in enumerate(row):
                lower[layout.rows(i), layout.rows(j)] = on_host(tile.widen())
        lower *= self._unit
        return lower

    def _tile(self, i, k):
        return self.store.future(i, k)

    def _blocks(self, y):
        layout = self.store.layout
        return [np.asfortranarray(y[layout.rows(i)]) for i in range(layout.tiles)]

    def _beside(self, b):
        return b

    def _whitened(self, blocks):
        """Return the futures of the blocks of y = L⁻¹b.

        As soon as y_j is known each worker subtracts L_ij y_j in all its rows below.
        """
        crew, tiles = self.store.crew, len(blocks)
        p = len(crew)
        # zeros at the top stay zeros
        start = next((i for i in range(tiles) if blocks[i].any()), tiles)
        y = [crew.submit(i, _keep, blocks[i]) for i in range(start)]
        rest = [
            crew.submit(slot, _keep, {i: blocks[i] for i in range(start, tiles) if i % p == slot})
            for slot in range(p)
        ]
        for j in range(start, tiles):
            y.append(crew.submit(j, _forward, self._tile(j, j), rest[j % p], j))
            # who has the next row first
            for slot in range(j + 1, min(j + 1 + p, tiles)):
                below = {i: self._tile(i, j) for i in range(slot, tiles, p)}
                rest[slot % p] = crew.submit(slot, _subtract, rest[slot % p], y[j], below)
        return y

    def _solved(self, blocks):
        """Return the futures of the blocks of x = L⁻'L⁻¹b."""
        crew, tiles = self.store.crew, len(blocks)
        p = len(crew)
        y, x = self._whitened(blocks), [None] * tiles
        sums = [[] for _ in range(tiles)]
        for i in reversed(range(tiles)):
            about = self._tile(i, i), y[i], self._unit, i, sums[i]
            x[i] = crew.submit(i, _backward, *about)
            # for who has the next row first
            for slot in range(i - 1, max(i - 1 - p, -1), -1):
                mine = range(slot, -1, -p)
                terms = crew.submit(i, _terms, x[i], {j: self._tile(i, j) for j in mine})
                for j in mine:
                    sums[j].append(terms)
        return x
