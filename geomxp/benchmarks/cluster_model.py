"""Simulate the tile Cholesky factorization of a Dask cluster: time and bytes moved.

The schedule is that of `tiles.dask_store`: block row i on node i mod p; the tiles of row k that a
piece reads travel when they are final, once to each node that has a row below, so the bytes are
those of a run. The threads of a node take its tasks in order, each waiting until the operands of
its task are there (a Dask worker would take another task that is ready). Each task takes time of
the scheduler's one thread. A worker sends to ten others at once; a worker that has received a row
sends it on.

Every moment is the maximum of earlier ones, or such a maximum plus a duration: slower parts make
nothing earlier.
"""

from dataclasses import dataclass, field
from heapq import heapreplace
from numbers import Integral

import numpy as np

from ..errors import InvalidInput
from ..linalg.formats import FP64, Tile
from ..linalg.mixed import arithmetic
from ..runtime.trace import Event, Meter
from ..tiles.dask_store import MOST_UNFINISHED_TILE_TASKS, depths_for, pieces
from ..tiles.plan import Sizes
from ..tiles.simulate import Simulation

SIMULTANEOUS_TRANSFERS = 10
"""Of one worker: Dask's distributed.worker.connections.incoming."""


@dataclass(frozen=True)
class Cluster:
    """A scheduler and equal nodes with one link each."""

    nodes: int
    threads: int  # tasks that a node runs at the same time
    # operations per second of one thread: products by arithmetic format, FP64 triangular solves
    # and Cholesky factors of a tile
    rates: dict = field(hash=False)
    solve: float
    factor: float
    generation: float  # entries of Σ per second, of one thread
    link: float  # bytes per second out of a node, and into it
    latency: float  # seconds before a copy, and until a worker learns that a task can begin
    # seconds for each task: of the scheduler's thread, and of a worker's beside its operations
    scheduler: float
    overhead: float
    # further seconds for each tile that a task reads
    scheduler_read: float = 0.0
    overhead_read: float = 0.0

    def __post_init__(self):
        values = vars(self) | {f"rates[{name!r}]": rate for name, rate in self.rates.items()}
        for name, given in values.items():
            if name in ("nodes", "threads"):
                fits, needed = (
                    isinstance(given, Integral) and given >= 1,
                    "a whole number of at least 1",
                )
            elif name in ("solve", "factor", "generation", "link") or name.startswith("rates["):
                fits, needed = given > 0, "a rate per second, greater than 0"
            else:
                fits, needed = (
                    name == "rates" or 0 <= given < np.inf,
                    "a number of seconds, 0 or more",
                )
            if not fits:
                raise InvalidInput(f"`{name}` must be {needed}. Got {given!r}.")


def simulate_cluster(cluster, layout, formats, depths=None):
    """Simulate a factorization, and the norms before it, on a running cluster.

    The transfer of the locations and the work of the client are left out. `depths` are those of
    `tiles.dask_store.pieces`; by default of a run with enough memory. The events of the returned
    `Simulation` are copies and tasks on a node (`device`) and thread (`stream`): "original" for the
    norms of a row, "update" for a piece of a tile, "solve" or "factor" for its last piece, "write"
    for a part of a row that is sent. `InvalidInput` is raised if `rates` lacks a format.
    """
    depths = _depths(cluster, layout, depths)
    play = _Play(cluster, layout, formats, 1 + len(depths))
    play.norms()
    for number, piece in enumerate(pieces(layout.tiles, depths)):
        play.piece(number, piece)
    events = sorted(play.events, key=lambda event: event.begin)
    last = max(event.end for event in events)
    return Simulation(last, layout.n**3 / 3, play.meter.read(), events)


def scheduling(cluster, layout, depths=None):
    """Return the busy seconds of the scheduler's thread: a lower bound for any number of nodes.

    Arguments are those of `simulate_cluster`.
    """
    tasks, reads, handed = layout.tiles, 0, set()
    for i, k, begin, end, last in pieces(layout.tiles, _depths(cluster, layout, depths)):
        tasks += 1
        reads += end - begin + (begin > 0) + (i > k)
        if i > k and (k, begin) not in handed:
            handed.add((k, begin))
            tasks, reads = tasks + 1, reads + end - begin + last
    return tasks * cluster.scheduler + reads * cluster.scheduler_read


def _depths(cluster, layout, depths):
    given = depths is not None
    return depths if given else depths_for(cluster.nodes * cluster.threads, layout.tiles)


class _Play:
    """State of the simulation."""

    def __init__(self, cluster, layout, formats, tasks):
        self.cluster, self.layout, self.formats = cluster, layout, formats
        # tasks of a tile
        self._tasks = tasks
        self.times, self._sizes = _Times(cluster, layout, formats), Sizes(layout, formats)
        self.events, self.meter = [], Meter()
        self._threads = [[(0.0, t) for t in range(cluster.threads)] for _ in range(cluster.nodes)]
        self._out, self._in = [0.0] * cluster.nodes, [0.0] * cluster.nodes
        # when the newest tile of each row, the unfinished tiles, and the parts of rows are known to
        # other nodes
        self._row, self._begun, self._parts = [], {}, {}
        self._seconds, self._told, self._ends = {}, 0.0, []

    def norms(self):
        """Simulate the norms of all rows."""
        rows = enumerate(self.times.norms())
        heard = [self._task("original", (i, i), 0.0, seconds, 0) for i, seconds in rows]
        self._told = max(self._told, *heard)
        self._row = [self._told] * self.layout.tiles

    def piece(self, number, piece):
        """Simulate a piece; the first one of its column with the transfer of row k."""
        i, k, begin, end, last = piece
        if number and not number % MOST_UNFINISHED_TILE_TASKS:
            self._told = max(self._told, self._asked())
        # an earlier piece counts as one operand
        ready, reads = max(self._row[i], self._begun.pop((i, k), 0.0)), end - begin + (begin > 0)
        if i > k:
            ready, reads = max(ready, self._part(piece)[i % self.cluster.nodes]), reads + 1
        kind = "update" if not last else "factor" if i == k else "solve"
        heard = self._task(kind, (i, k), ready, self._time(piece), reads)
        if last:
            self._row[i] = heard
            self._ends.append(heard)
        else:
            self._begun[i, k] = heard

    def _time(self, piece):
        """Return the seconds of a piece; all pieces of a column are computed together."""
        _, k, begin, _, last = piece
        if (k, begin) not in self._seconds:
            self._seconds[k, begin] = self.times.column(k, begin, piece.end, last)
        return self._seconds[k, begin][piece.i - k]

    def _part(self, piece):
        """Return when the tiles of row k that a piece reads arrive, by node."""
        _, k, begin, end, last = piece
        if (k, begin) not in self._parts:
            tiles = range(begin, end + last)
            final = self._task("write", (k, k), self._row[k], 0.0, len(tiles))
            self._parts[k, begin] = self._travel(k, tiles, final)
        return self._parts[k, begin]

    def _task(self, kind, tile, ready, seconds, reads):
        """Simulate a task of a node; return when other nodes know that it is done."""
        cluster, node = self.cluster, tile[0] % self.cluster.nodes
        self._told += cluster.scheduler + reads * cluster.scheduler_read
        free, thread = self._threads[node][0]
        begin = max(free, ready, self._told)
        end = begin + seconds + cluster.overhead + reads * cluster.overhead_read
        heapreplace(self._threads[node], (end, thread))
        self._note(kind, tile, node, thread, begin, end)
        return end + cluster.latency

    def _asked(self):
        """Return when the client submits more tasks: when most earlier tiles are done."""
        done = len(self._ends) - MOST_UNFINISHED_TILE_TASKS // 2 // self._tasks
        return sorted(self._ends)[done - 1] if done > 0 else 0.0

    def _travel(self, k, tiles, final):
        """Simulate the copies of some tiles of row k; return their arrivals by node."""
        nodes, link = self.cluster.nodes, self.cluster.link
        arrival, count = {k % nodes: final}, sum(self._sizes.tile(k, j) for j in tiles)
        below = range(k + 1, min(self.layout.tiles, k + 1 + nodes))
        waiting = [i % nodes for i in below if i % nodes != k % nodes]
        while waiting:
            holders = list(arrival)
            share = min(SIMULTANEOUS_TRANSFERS, -(-len(waiting) // len(holders)))
            for holder in holders:
                mine, waiting = waiting[:share], waiting[share:]
                if not mine:
                    break
                begin = max(arrival[holder], self._out[holder]) + self.cluster.latency
                end = self._out[holder] = begin + len(mine) * count / link
                for reader in mine:
                    # the link into a node takes one row after the other
                    arrival[reader] = self._in[reader] = max(end, self._in[reader] + count / link)
                    self._note("out", (k, k), holder, 0, begin, end, count)
                    self._note("in", (k, k), reader, 0, begin, arrival[reader], count)
        return arrival

    def _note(self, kind, tile, node, stream, begin, end, count=0):
        form = self.formats[tile].name
        self.events.append(Event(kind, tile, form, node, stream, begin, end, count))
        if count:
            self.meter.copied(kind, count)


class _Times:
    """Seconds of the operations of tasks."""

    def __init__(self, cluster, layout, formats):
        self.cluster, self.heights = cluster, np.array([*map(layout.height, range(layout.tiles))])
        used = list({form: None for row in formats.rows for form in row})
        self._codes = np.zeros((layout.tiles, layout.tiles), dtype=np.intp)
        for i, row in enumerate(formats.rows):
            self._codes[i, : i + 1] = [used.index(form) for form in row]
        self._fine = np.array([form is FP64 for form in used])
        # by accumulator and operand formats, for products and squares
        works, self._missing = (np.empty(0, np.float32), np.empty(0)), set()
        lefts, rights = ([Tile(form, None) for form in used] for _ in range(2))
        one = self._seconds
        self._product = np.array([[[one(c, a, b) for b in rights] for a in lefts] for c in works])
        self._square = np.array([[one(c, a, a) for a in lefts] for c in works])

    def _seconds(self, c, left, right):
        """Return the seconds of each m·n·k of C - AB'."""
        form, rates = arithmetic(c, left, right), self.cluster.rates
        self._missing |= {form.name} - set(rates)
        # of a square in FP64 one triangle is computed
        count = 1 if left is right and form is FP64 else 2
        return count / rates.get(form.name, np.nan)

    def norms(self):
        """Return the seconds of each row's norms."""
        return (self.heights * np.cumsum(self.heights) / self.cluster.generation).tolist()

    def column(self, k, begin, end, last):
        """Return the seconds of a piece of each tile of column k, the diagonal one first."""
        h, own = self.heights, self._codes[k:]
        above, inner = self._codes[k, begin:end], self.heights[begin:end]
        fine = self._fine[own[:, k]].astype(np.intp)
        products = self._product[fine[:, None], own[:, begin:end], above] @ inner
        products[0] = self._square[fine[0], above] @ inner
        if np.isnan(products).any():
            raise InvalidInput(
                f"`rates` has no {', '.join(sorted(self._missing))}, in which tiles are "
                "multiplied: measure it with geomxp.tiles.simulate.measured(tile, forms=...)."
            )
        seconds = h[k:] * h[k] * products
        if not begin:
            seconds += h[k:] * h[k] / self.cluster.generation
        if last:
            # FP32 takes half as long as FP64
            final = np.where(fine, 1.0, 0.5) * h[k:] * h[k] ** 2 / self.cluster.solve
            final[0] *= self.cluster.solve / 3 / self.cluster.factor
            seconds += final
        return seconds.tolist()
