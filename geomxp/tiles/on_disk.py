"""Tiles on a disk, with a cache of those that were used last in RAM.

For tiles of low rank: their sizes are not known before the run, so that `out_of_core` cannot plan
its copies. Tiles are computed panel by panel, see `left_looking`: the operands of a panel stay in
RAM.
"""

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

import numpy as np

from ..errors import NotEnoughMemory
from ..linalg.low_rank import LowRankTile
from ..runtime.devices import human_bytes, usable_cores
from ..runtime.trace import Meter
from .cholesky import left_looking
from .memories import aligned
from .out_of_core import Absent
from .stores import Store

WORKING_BLOCK_ROWS = 4
"""Block rows that each thread needs memory for beside the cache: two for the operands of a tile,
one for the factors of its products side by side, and one for work."""

LEAST_CACHED_BLOCK_ROWS = 2
"""Block rows that the cache holds at least: the operands of one tile, which a thread holds too."""


class OnDisk(Store):
    """Tiles on a `memories.Disk`; at most `memory` bytes of RAM are for tiles and work on them.

    There are as many threads as have room. Raises `NotEnoughMemory` if one has none.
    """

    def __init__(self, originals, formats, disk, memory):
        super().__init__(originals, formats)
        self.disk, self.memory = disk, memory
        self._lock, self._meter, self._traffic = Lock(), Meter(), None
        # of each tile the place on the disk and the tile without its numbers
        self._places, self._end = {}, 0
        self._recent, self._held, self.most_held = OrderedDict(), 0, 0
        # bytes of each block row so far, and of the largest one
        self._rows, self._largest = [0] * self.layout.tiles, 0
        # bytes of all tiles so far, and what the formats said of them and of all; the last block
        # row is twice the average
        self._saved = self._expected = 0
        self._last = 2 * formats.bytes(self.layout) / self.layout.tiles
        least = self._room(1) + LEAST_CACHED_BLOCK_ROWS * self._row()
        fitting = int((memory - LEAST_CACHED_BLOCK_ROWS * self._row()) / self._room(1))
        # one also where the quotient was rounded down
        self.threads = max(1, min(usable_cores(), fitting))
        if memory < least:
            disk.close()
            raise NotEnoughMemory(
                f"a thread with low-rank tiles of {self.layout.tile} rows needs about "
                f"{human_bytes(int(least))} of memory. Got {human_bytes(memory)}: allow more with "
                "--memory (memory=), or use smaller tiles (--tile, tile=)."
            )

    def _row(self):
        """Return the bytes of the largest block row, estimated from the tiles so far."""
        known = len(self._places) >= self.layout.tiles
        return max(self._last * (self._saved / self._expected if known else 1.0), self._largest)

    def _room(self, threads):
        """Return the bytes that threads need for their work."""
        # a dense tile, and two operands in FP64
        dense = 3 * 8 * self.layout.tile**2
        return int(threads * (WORKING_BLOCK_ROWS * self._row() + dense))

    def _cache(self):
        """Return the bytes of the cache."""
        return max(self.memory - self._room(self.threads), LEAST_CACHED_BLOCK_ROWS * self._row())

    @property
    def moved(self):
        """The `Traffic` between RAM and disk, of the factorization once it is complete."""
        return self._traffic or self._meter.read()

    def factor(self, order, promotions):
        """Return the factor; see `Store`."""
        self._traffic = self._meter.read()
        return super().factor(order, promotions)

    def workers(self, tiles, threads):
        """Return pairs (worker, tiles); see `Store.workers`."""
        return super().workers(tiles, min(threads, self.threads))

    def order(self):
        """Return the tiles in the order in which they are finished."""
        rows = int(self._cache() / self._row())
        width = min(max(1, rows - self.threads), self.layout.tiles)
        return left_looking(self.layout.tiles, width, self.threads)

    def has(self, i, k):
        """Return whether tile (i, k) is final."""
        return (i, k) in self._places

    def save(self, i, k, tile):
        """Write a tile to the disk, and hold it as one of those used last."""
        arrays = (tile.values, tile.v) if isinstance(tile, LowRankTile) else (tile.values,)
        data, at = aligned(sum(array.nbytes for array in arrays)), 0
        for array in arrays:
            absent = Absent(array.dtype, array.shape)
            absent.over(data[at:])[...] = array
            at += array.nbytes
        with self._lock:
            offset, self._end = self._end, self._end + data.nbytes
        self.disk.write_at(offset, data)
        self._meter.copied("out", data.nbytes)
        with self._lock:
            self._rows[i] += at
            self._largest = max(self._largest, self._rows[i])
            self._saved += at
            self._expected += self.formats.tile_bytes(self.layout, i, k)
            self._keep((i, k), tile)
            absent = [Absent(array.dtype, array.shape) for array in arrays]
            self._places[i, k] = offset, data.nbytes, absent, _without_numbers(tile)

    def load(self, i, k):
        """Return L_ik, from RAM if it was used lately."""
        with self._lock:
            if (i, k) in self._recent:
                self._recent.move_to_end((i, k))
                return self._recent[i, k]
            offset, count, absent, tile = self._places[i, k]
        data, at, arrays = aligned(count), 0, []
        self.disk.read_at(offset, data)
        self._meter.copied("in", count)
        for one in absent:
            arrays.append(one.over(data[at:]))
            at += one.nbytes
        tile = replace(tile, **dict(zip(("values", "v"), arrays, strict=False)))
        with self._lock:
            self._keep((i, k), tile)
        return tile

    def _keep(self, key, tile):
        """Hold a tile in RAM, and let go of those that were used longest ago."""
        if key not in self._recent:
            self._recent[key] = tile
            self._held += tile.nbytes
        most = self._cache()
        while self._held > most:
            self._held -= self._recent.popitem(last=False)[1].nbytes
        self.most_held = max(self.most_held, self._held)

    def forget(self, i, k):
        """Discard tile (i, k): it will be computed again."""
        with self._lock:
            *_, absent, _ = self._places.pop((i, k))
            self._rows[i] -= sum(one.nbytes for one in absent)
            if (i, k) in self._recent:
                self._held -= self._recent.pop((i, k)).nbytes

    def ranks(self):
        """Return {(i, k): rank} of the tiles of low rank."""
        return {key: one[0].shape[1] for key, (*_, one, _) in self._places.items() if len(one) > 1}

    def close(self):
        """Discard all tiles, and the file."""
        self._places.clear()
        self._recent.clear()
        self.disk.close()


def _without_numbers(tile):
    nothing = {"values": np.empty((0, 0)), "casts": {}}
    return replace(tile, **nothing, **({"v": None} if isinstance(tile, LowRankTile) else {}))
