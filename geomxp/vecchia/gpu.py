"""Passes over Vecchia's blocks on one GPU: places, neighbours and columns stay there.

Tested on a CUDA emulator; not yet run on a real GPU.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..covariance.distance import embed
from ..covariance.generate import box_of, mapping_of, octaves_of, scale_of
from ..covariance.table import SPLIT
from ..cuda import module
from ..errors import InvalidInput, NotEnoughMemory
from ..runtime.devices import gpu_memory, human_bytes
from .blocks import BASES
from .graph import Graph, check_tabulated, turning_forms, with_table

MOST = 128
"""Neighbours of a place, at most: a block has 71 kB then, in a multiprocessor's shared memory."""

TEAMS = {16: 8, 32: 16, 64: 32, MOST + 4: 64}
"""Threads that share a block, by its largest order: two rows each."""

SHARE, THREADS, FOLD = 3, 512, 64
"""How cuda/vecchia.cu shares work: a thread's rows and a block's threads at most, sums added."""

WARP = 32

WINDOW_BYTES = 48 * 1024
"""Of a multiprocessor's shared memory, for the rows of tables that most pairs need."""

PARTS, NUMBERS = 2**15, 2**24
"""Parts whose sums are kept apart, and how many numbers these may be, at most."""


@dataclass(frozen=True)
class Rooms:
    """How blocks of one size lie in shared memory, and how many threads share one.

    Parameters
    ----------
    order : int
        Of a block: the place and its neighbours, padded to a multiple of four.
    rows : int
        With those below it; 2 more than a multiple of four, which parts the columns' banks.
    team : int
    stride : int
        Numbers of a block's room.
    """

    order: int
    rows: int
    team: int
    stride: int

    @classmethod
    def of(cls, m, d, count, derivatives):
        """Return the rooms of blocks of m neighbours in d dimensions.

        Parameters
        ----------
        m, d : int
        count : int
            Columns that are whitened.
        derivatives : bool

        Raises
        ------
        InvalidInput
            If a block has more rows than its threads.
        """
        order = (m + 4) // 4 * 4
        fitting = [
            team
            for largest, team in TEAMS.items()
            if order <= largest and order + count <= SHARE * team
        ]
        if not fitting:
            most = SHARE * max(TEAMS.values()) - order - 1
            raise InvalidInput(
                f"on a GPU a trend may have at most {most} columns with {m} neighbours. Got "
                f'{count - 1}: use on="cpu".'
            )
        rows = order + count + (BASES if derivatives else 0)
        rows += (2 - rows) % 4
        entries = order * rows - order * (order - 4) // 2
        vectors = (2 + d + (5 if derivatives else 1)) * order
        stride = -(-(entries + vectors) // 16) * 16
        # two teams of eight threads read from different banks at a time
        return cls(order, rows, fitting[0], stride + 8 * (fitting[0] == 8))

    @property
    def bytes(self):
        """Bytes of a block's room."""
        return 8 * self.stride


class Pairs:
    """What one model says of the pairs of places, in numbers; see `Model` of cuda/vecchia.cuh.

    Parameters
    ----------
    model : Matern
    metric : str
    box : (2, d) ndarray
        Lowest and highest coordinates of the places, as `embed` gives them.
    n, m : int
        Places, and neighbours of each.

    Attributes
    ----------
    numbers : (17,) ndarray
    turned : bool
        Whether points are mapped by A.
    octaves : (int, int)
        Of s; see `Generator`.
    common : float
        log₂ s of pairs within a block, in the middle of what most have.
    """

    def __init__(self, model, metric, box, n, m):
        d = box.shape[1]
        self.model = model
        middle, unit, inverse = scale_of(model, metric, box)
        turn, extents = np.eye(2), box[1] / unit - box[0] / unit
        self.turned = model.anisotropy is not None
        if self.turned:
            turn = model.anisotropy.matrix()
            # of the box's corners: no points are that far apart
            extents = np.abs(turn) @ extents
        self.octaves = octaves_of(float(extents.max()), d, n, metric, inverse)
        # most blocks are (m/n)^(1/d) of the extent wide, and most of their pairs half of that apart
        self.common = self.octaves[1] - 2 - 2 / d * np.log2((n + 1) / (m + 1))
        start = np.zeros(3)
        start[:d] = middle
        about = 1 / unit, *turn.ravel(), inverse, model.variance, model.nugget
        self.numbers = np.concatenate((start, about, turning_forms(model).ravel()))

    def window(self, intervals, base, most):
        """Return which rows of a table stand in shared memory: the first, and how many.

        Parameters
        ----------
        intervals : int
            Rows of the table.
        base : int
        most : int
            Rows that have room.
        """
        staged = max(0, min(most, intervals))
        first = int((self.common + 1023) * 2**SPLIT) - base + 1 - staged // 2
        return min(max(first, 0), intervals - staged), staged


def parts_of(n, length):
    """Return how n places are parted whose sums, `length` numbers, are kept apart: parts, size.

    Depends on nothing of the GPU: all have the same sums.

    Examples
    --------
    >>> parts_of(1_000_000, 6), parts_of(100, 6)
    ((32259, 31), (100, 1))
    """
    size = max(-(-n // PARTS), -(-n * length // NUMBERS))
    return -(-n // size), size


def asked_for(wanted):
    """Return a kernel's `wanted` for (BASES,) of bool, and the names of the tables it takes.

    Examples
    --------
    >>> asked_for([True, False, False, True, False, False])
    (9, ['correlation', 'slope'])
    """
    names = ["correlation"]
    names += ["shape"] if wanted[2] else []
    names += ["slope"] if wanted[3] else []
    return sum(1 << k for k in range(BASES) if wanted[k]), names


class OnGpu:
    """The blocks of one data set on a GPU; the interface of `geomxp.vecchia.passes.Here`.

    Parameters
    ----------
    locations, metric, ordering, count
        As of `Here`.
    device : Device
        A GPU.

    Raises
    ------
    InvalidInput
        If a block is too large for a GPU.
    NotEnoughMemory
        If the data are.
    """

    @gpu_memory()
    def __init__(self, locations, metric, ordering, count, device):
        n = len(locations)
        count = min(count, n - 1)
        if count > MOST:
            raise InvalidInput(
                f"`neighbours` must be at most {MOST} on a GPU. Got {count}: use fewer, or "
                'on="cpu".'
            )
        self._device, self._metric = device, metric
        points = embed(locations, metric)
        self._need(points.nbytes + 4 * n * count, f"{n:,} places with {count} neighbours each")
        self.graph = Graph.of(locations, metric, ordering, count)
        self.tree, self._box = self.graph.tree, box_of(points)
        self._points = self._on_gpu(points[self.tree.order])
        self._neighbours = self._on_gpu(self.graph.neighbours)
        self._columns = None

    @gpu_memory()
    def know(self, columns):
        """Keep what is whitened, (c, n), in the order of the tree."""
        # now rather than in the midst of a search
        self._rooms(len(columns), True)
        self._need(columns.nbytes, f"{len(columns)} columns")
        self._columns = self._on_gpu(columns)

    @gpu_memory()
    def reduce(self, model, wanted):
        """Return the sums over all blocks, and the first place without a factor, or None."""
        import cupy

        n, count, derivatives = len(self._points), len(self._columns), bool(wanted[0])
        length, below = 1 + count * count, BASES * (1 + BASES + count * count)
        summed = length + (below if derivatives else 0)
        # and where there is no factor
        parts, size = parts_of(n, summed + 1)
        kernel = "likelihood_and_derivatives" if derivatives else "likelihood"
        mask, names = asked_for(wanted)

        def work(pairs, tables, base):
            sums, missed = cupy.zeros((parts, summed + 1)), cupy.zeros(1, dtype=np.int32)
            entries = mask, parts, size, sums, summed + 1, missed
            rooms = self._rooms(count, derivatives)
            self._launch(kernel, rooms, count, pairs, tables, base, parts, entries)
            return [(_folded(sums, rooms.team).get(), int(missed[0]))]

        ((found, _),) = self._with_table(model, names, work)
        out = np.zeros(length + below)
        out[:summed] = found[:-1]
        return out, n - int(found[-1]) if found[-1] else None

    @gpu_memory()
    def weights(self, model):
        """Return the weights (n, m) and the variances (n,) of the conditional means."""
        import cupy

        n, m = self._neighbours.shape
        self._need(8 * n * (m + 1), f"the weights of {n:,} places")

        def work(pairs, tables, base):
            weights, variances = cupy.empty((n, m)), cupy.empty(n)
            missed = cupy.zeros(1, dtype=np.int32)
            entries, rooms = (weights, variances, missed), self._rooms(0, False)
            self._launch("weights", rooms, 0, pairs, tables, base, n, entries)
            return [(weights.get(), variances.get(), int(missed[0]))]

        ((weights, variances, _),) = self._with_table(model, ["correlation"], work)
        return weights, variances

    def neighbours_of(self, i):
        """Return the neighbours of a place, (m,), by number in the tree; -1 for none."""
        return self.graph.neighbours[i]

    def _rooms(self, count, derivatives):
        return Rooms.of(self._neighbours.shape[1], self._points.shape[1], count, derivatives)

    def _need(self, needed, what):
        """Raise `NotEnoughMemory` if the GPU has less memory than that left."""
        free = self._device.free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"{what} need {human_bytes(needed)} of the memory of {self._device.name}, "
                f'{human_bytes(free)} free: use fewer, or on="cpu".'
            )

    def _on_gpu(self, array):
        import cupy

        with cupy.cuda.Device(self._device.index):
            return cupy.asarray(np.ascontiguousarray(array))

    def _with_table(self, model, names, work):
        """Return what work(pairs, tables, base) returns of tables that reach all pairs."""
        import cupy

        check_tabulated(model)
        pairs = Pairs(model, self._metric, self._box, *self._neighbours.shape)
        with cupy.cuda.Device(self._device.index):
            return with_table(model, pairs, names, partial(work, pairs))

    def _launch(self, kernel, rooms, count, pairs, tables, base, units, entries):
        """Start a kernel on `units` parts or places, one for a team at a time."""
        import cupy

        n, m = self._neighbours.shape
        # a row of a table has 64 bytes
        kinds, row_bytes = len(tables), 64 * len(tables)
        intervals = tables[0].size // 8
        shared, processors = (
            _attribute("MaxSharedMemoryPerBlockOptin"),
            _attribute("MultiProcessorCount"),
        )
        whole = max(1, WARP // rooms.team)
        if shared < whole * rooms.bytes:
            raise InvalidInput(
                f"{m} neighbours and {count} columns need {whole * rooms.bytes} bytes of a GPU's "
                f'shared memory; this one has {shared}: use fewer neighbours, or on="cpu".'
            )
        most = min(WINDOW_BYTES, shared - whole * rooms.bytes) // row_bytes
        first, staged = pairs.window(intervals, base, most)
        teams = (shared - staged * row_bytes) // rooms.bytes
        teams = min(THREADS // rooms.team, teams, -(-units // processors))
        # whole warps
        teams = max(teams // whole, 1) * whole
        columns = self._columns if count else self._points
        function = _kernel(kernel, rooms.team)
        function.max_dynamic_shared_size_bytes = staged * row_bytes + teams * rooms.bytes
        function(
            (max(1, min(processors, -(-units // teams))),),
            (teams * rooms.team,),
            (
                *(self._points, self._neighbours, columns, n, self._points.shape[1], m, count),
                *(mapping_of(pairs.model, self._metric), int(pairs.turned)),
                *(cupy.asarray(pairs.numbers), cupy.asarray(np.concatenate(tables)), kinds),
                *(intervals, base, first, staged, rooms.rows, rooms.stride, *entries),
            ),
            shared_mem=staged * row_bytes + teams * rooms.bytes,
        )


def _attribute(name):
    """Return what the current GPU says of itself."""
    from cupy.cuda import runtime

    return runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), runtime.getDevice())


def _kernel(name, team):
    """Return a kernel for teams of so many threads."""
    return module("vecchia.cu", f"-DTEAM={team}").get_function(name)


def _folded(sums, team):
    """Return the sum of rows, added in one order, and of their last numbers the largest."""
    import cupy

    fold = _kernel("fold", team)
    while len(sums) > 1:
        count, length = sums.shape
        added = cupy.empty((-(-count // FOLD), length))
        fold(
            (len(added),), (min(THREADS, -(-length // WARP) * WARP),), (sums, count, length, added)
        )
        sums = added
    return sums[0]
