"""The tile Cholesky of a Dask cluster, played on a described one: how long, and how many bytes.

The plan is that of `cluster_tiles`: one task a tile, columns from left to right, block row i on
node i mod p; row k travels when L_kk is final, once to each node that has a row below it, so that
the bytes are those of a run. A node takes its tasks in order, each on one thread. Each task costs
the scheduler's one thread time. A worker sends to ten others at once; who has a row sends it on.

Every moment is a maximum of earlier ones, or such a moment and a duration: whatever is made slower
makes nothing earlier.
"""

from dataclasses import dataclass, field
from heapq import heapreplace
from numbers import Integral

import numpy as np

from ..dense.mixed import arithmetic
from ..errors import InvalidInput
from ..precision.formats import FP64
from ..precision.quantize import Tile
from ..tiles.plan import Sizes
from ..tiles.schedule import left_looking
from .cluster_tiles import AHEAD
from .simulate import Simulation
from .trace import Event, Meter

ABREAST = 10
"""Others that a worker sends to at one time: Dask's distributed.worker.connections.incoming."""


@dataclass(frozen=True)
class Cluster:
    """Equal nodes, a link each, and a scheduler.

    Parameters
    ----------
    nodes, threads : int
        Workers, and the tasks that each works on at one time.
    rates : dict of str to float
        Operations a second of products, by the format of the arithmetic: of one thread.
    solve, factor : float
        Operations a second of FP64 triangular solves and Cholesky factors of a tile.
    generation : float
        Entries of Σ a second, of one thread.
    link : float
        Bytes a second out of a node, and as many into it.
    latency : float
        Seconds before a copy, and until a worker hears that a task can begin.
    scheduler : float
        Seconds of the scheduler's thread for a task.
    overhead : float
        Seconds of a worker's thread for a task, beside its operations.
    scheduler_read, overhead_read : float
        The same for each tile that a task reads.

    Raises
    ------
    InvalidInput
    """

    nodes: int
    threads: int
    rates: dict = field(hash=False)
    solve: float
    factor: float
    generation: float
    link: float
    latency: float
    scheduler: float
    overhead: float
    scheduler_read: float = 0.0
    overhead_read: float = 0.0

    def __post_init__(self):
        about = vars(self) | {f"rates[{name!r}]": rate for name, rate in self.rates.items()}
        for name, given in about.items():
            if name in ("nodes", "threads"):
                fits, needed = isinstance(given, Integral) and given >= 1, "a whole number from 1"
            elif name in ("solve", "factor", "generation", "link") or name.startswith("rates["):
                fits, needed = given > 0, "above 0 a second"
            else:
                fits, needed = name == "rates" or 0 <= given < np.inf, "seconds, 0 or more"
            if not fits:
                raise InvalidInput(f"`{name}` must be {needed}. Got {given!r}.")


def simulate_cluster(cluster, layout, formats):
    """Play a factorization, and the norms before it, on a cluster that is there.

    Left out are the places that workers are sent, and what the client does beside giving tasks.

    Parameters
    ----------
    cluster : Cluster
    layout : Layout
    formats : PrecisionMap

    Returns
    -------
    Simulation
        Events are tasks on a node (`device`) and its thread (`stream`), and copies of block rows:
        "original" a row's norms, "update" and "factor" a tile, "write" a row that is handed out.

    Raises
    ------
    InvalidInput
        If `rates` lacks the arithmetic of a product.
    """
    play = _Play(cluster, layout, formats)
    # when others hear of each row's newest tile, and where row k is from when on
    row, there = [play.norms()] * layout.tiles, {}
    for i, k in left_looking(layout.tiles):
        if i == k:
            seconds = play.times.column(k)
            row[k] = play.task("factor", (k, k), row[k], seconds[0], k)
        else:
            if i == k + 1:
                there = play.travel(k, play.task("write", (k, k), row[k], 0.0, k + 1))
            ready = max(row[i], there[i % cluster.nodes])
            row[i] = play.task("update", (i, k), ready, seconds[i - k], k + 1)
    events = sorted(play.events, key=lambda event: event.begin)
    last = max(event.end for event in events)
    return Simulation(last, layout.n**3 / 3, play.meter.read(), events)


def scheduling(cluster, layout):
    """Return the seconds for which the scheduler's thread is at work in a factorization.

    No run takes less, on however many nodes; arguments as of `simulate_cluster`.
    """
    tiles = layout.tiles
    # norms, tiles, and rows that are handed out if anybody is below
    tasks = tiles + tiles * (tiles + 1) // 2 + tiles - 1
    reads = sum(k + (tiles - 1 - k + (k < tiles - 1)) * (k + 1) for k in range(tiles))
    return tasks * cluster.scheduler + reads * cluster.scheduler_read


class _Play:
    """What has happened so far."""

    def __init__(self, cluster, layout, formats):
        self.cluster, self.layout, self.formats = cluster, layout, formats
        self.times, self._sizes = _Times(cluster, layout, formats), Sizes(layout, formats)
        self.events, self.meter = [], Meter()
        self._threads = [[(0.0, t) for t in range(cluster.threads)] for _ in range(cluster.nodes)]
        self._begun = [0.0] * cluster.nodes
        self._out, self._in = list(self._begun), list(self._begun)
        self._told, self._ends = 0.0, []

    def norms(self):
        """Play the norms of all rows; return when the first tile can be asked for."""
        rows = enumerate(self.times.norms())
        heard = [self.task("original", (i, i), 0.0, seconds, 0) for i, seconds in rows]
        self._told, self._ends = max(self._told, *heard), []
        return self._told

    def task(self, kind, tile, ready, seconds, reads):
        """Play a task of a node; return when others hear that it is done."""
        cluster, node = self.cluster, tile[0] % self.cluster.nodes
        self._told = max(self._told, self._asked()) + cluster.scheduler
        self._told += reads * cluster.scheduler_read
        free, thread = self._threads[node][0]
        begin = self._begun[node] = max(free, ready, self._told, self._begun[node])
        end = begin + seconds + cluster.overhead + reads * cluster.overhead_read
        heapreplace(self._threads[node], (end, thread))
        self._ends.append(end)
        self._note(kind, tile, node, thread, begin, end)
        return end + cluster.latency

    def _asked(self):
        """Return when the client gives the scheduler the next task: it waits for earlier ones."""
        done = len(self._ends) - AHEAD // 2
        return 0.0 if done < 1 or len(self._ends) % AHEAD else sorted(self._ends)[done - 1]

    def travel(self, k, final):
        """Play the copies of row k; return when it is on each node that reads it, by node."""
        nodes, link = self.cluster.nodes, self.cluster.link
        there, count = {k % nodes: final}, sum(self._sizes.tile(k, j) for j in range(k + 1))
        below = range(k + 1, min(self.layout.tiles, k + 1 + nodes))
        waiting = [i % nodes for i in below if i % nodes != k % nodes]
        while waiting:
            holders = list(there)
            share = min(ABREAST, -(-len(waiting) // len(holders)))
            for holder in holders:
                mine, waiting = waiting[:share], waiting[share:]
                if not mine:
                    break
                begin = max(there[holder], self._out[holder]) + self.cluster.latency
                end = self._out[holder] = begin + len(mine) * count / link
                for reader in mine:
                    # a link into a node takes the rows one after the other
                    there[reader] = self._in[reader] = max(end, self._in[reader] + count / link)
                    self._note("out", (k, k), holder, 0, begin, end, count)
                    self._note("in", (k, k), reader, 0, begin, there[reader], count)
        return there

    def _note(self, kind, tile, node, stream, begin, end, count=0):
        form = self.formats[tile].name
        self.events.append(Event(kind, tile, form, node, stream, begin, end, count))
        if count:
            self.meter.copied(kind, count)


class _Times:
    """Seconds of the tasks' operations."""

    def __init__(self, cluster, layout, formats):
        self.cluster, self.heights = cluster, np.array([*map(layout.height, range(layout.tiles))])
        used = list({form: None for row in formats.rows for form in row})
        self._codes = np.zeros((layout.tiles, layout.tiles), dtype=np.intp)
        for i, row in enumerate(formats.rows):
            self._codes[i, : i + 1] = [used.index(form) for form in row]
        self._fine = np.array([form is FP64 for form in used])
        # by the accumulator and the formats of what is multiplied, of a product and of a square
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

    def column(self, k):
        """Return the seconds of the tiles of column k, the diagonal one first."""
        h, own, above = self.heights, self._codes[k:], self._codes[k, :k]
        fine = self._fine[own[:, k]].astype(np.intp)
        products = self._product[fine[:, None], own[:, :k], above] @ h[:k]
        products[0] = self._square[fine[0], above] @ h[:k]
        if np.isnan(products).any():
            raise InvalidInput(
                f"`rates` has no {', '.join(sorted(self._missing))}, in which tiles are "
                "multiplied: measure it with machines.measured(tile, forms=...)."
            )
        # FP32 takes half as long as FP64
        last = np.where(fine, 1.0, 0.5) * h[k:] * h[k] ** 2 / self.cluster.solve
        last[0] *= self.cluster.solve / 3 / self.cluster.factor
        return (h[k:] * h[k] * (1 / self.cluster.generation + products) + last).tolist()
