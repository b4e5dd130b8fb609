"""Passes over Vecchia's blocks on one GPU: locations, neighbours and columns are kept there."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..covariance.base import ANGLE, RATIO
from ..covariance.generate import box_of, mapping_of, octaves_of, scale_of
from ..covariance.table import LOWEST_OCTAVE, SPLIT, table_of
from ..cuda import module
from ..errors import InvalidInput, NotEnoughMemory
from ..runtime.devices import gpu_memory, human_bytes
from .blocks import TermNumbers, turning_form
from .blocks import check_tabulated as check_any
from .factor import Graph

MOST_NEIGHBOURS = 128
"""Largest number of neighbours: a block then takes 71 kB of a multiprocessor's shared memory."""

TEAM_THREADS = {16: 8, 32: 16, 64: 32, MOST_NEIGHBOURS + 4: 64}
"""{largest order of a block: threads that share it}, two rows each."""

ROWS_PER_THREAD, MOST_BLOCK_THREADS, FOLDED_ROWS = 3, 512, 64
"""SHARE of cuda/vecchia.cuh, THREADS and FOLD of cuda/vecchia.cu: most rows of a thread, most
threads of a block, and rows of sums that are added to one."""

WARP = 32

WINDOW_BYTES = 48 * 1024
"""Shared memory of a multiprocessor for the rows of tables that most pairs need."""

MOST_PARTS, MOST_PART_NUMBERS = 2**15, 2**24
"""Most parts whose sums are kept apart, and most numbers in them."""


def check_tabulated(model):
    """Raise `InvalidInput` if there is no kernel for the model."""
    check_any(model)
    if "variable" in model.uses:
        raise InvalidInput(
            'Vecchia\'s approximation of several variables runs on a CPU: use on="cpu".'
        )
    term, *more = model.terms(2)
    plane = term.map is None or (
        len(term.map) == 2 and {ANGLE.name, RATIO.name} <= set(term.changes)
    )
    if term.map is not None and (not plane or "time" in model.uses):
        raise InvalidInput(
            "on a GPU Vecchia's approximation has anisotropy only as an ellipse in the plane "
            f'(gx.Anisotropy), without times. Got {model.anisotropy!r}: use on="cpu".'
        )
    if more or not (model.of_distance or "time" in model.uses):
        raise InvalidInput(
            f"on a GPU Vecchia's approximation needs a covariance of one term, and family "
            f'{model.family!r} is a sum of several or of another kind: use on="cpu".'
        )


def tables_for(model, wanted):
    """Return the names of the tables that a pass reads: the correlation, then derivatives.

    Examples
    --------
    >>> from geomxp import Inputs, Matern
    >>> from geomxp.vecchia.blocks import wanted_for
    >>> model = Matern(1.0, 0.1, 0.5)
    >>> noise = model.noise(Inputs(np.zeros((2, 1))))
    >>> tables_for(model, wanted_for(model, ["smoothness"], noise))
    ['correlation', 'smoothness']
    """
    names = [*(shape.name for shape in model.shapes), "slope"]
    first = len(wanted) - 2 - len(names)
    return ["correlation", *(name for k, name in enumerate(names, start=first) if wanted[k])]


def with_table(model, pairs, names, work):
    """Call work(tables, base) until the tables reach all pairs; return its results.

    It gets the rows of the named tables, each (K, 8), and their first interval, and returns tuples
    whose last member tells whether a pair was missed. The octaves of `pairs` grow as needed.
    """
    while True:
        table = table_of(model, *pairs.octaves)
        results = work([table.rows(name) for name in names], table.base)
        if table.low <= LOWEST_OCTAVE or not any(missed for *_, missed in results):
            return results
        pairs.octaves = table.low - 20, table.high


def turning_forms(term):
    """Return the quadratic forms u'(∂M/∂φ M⁻¹)u of angle and ratio, (2, 3): u₀², u₀u₁, u₁²."""
    forms = np.zeros((2, 3))
    if term.map is not None:
        forms[:] = [turning_form(term.changes[name].map) for name in (ANGLE.name, RATIO.name)]
    return forms


@dataclass(frozen=True)
class SharedLayout:
    """Layout of blocks of one size in shared memory.

    Parameters
    ----------
    rows : int
        Of a block and the rows below it; 2 more than a multiple of four, so that columns begin in
        different banks.
    team : int
        Threads that share a block.
    stride : int
        Numbers that a block takes.
    """

    rows: int
    team: int
    stride: int

    @classmethod
    def of(cls, m, d, count, bases, diagonals=1):
        """Return the layout of blocks of m neighbours in d dimensions, with `count` columns.

        `bases` is the number of derivatives of S, see `blocks`, of which `diagonals` are those of
        the noise; 0 if none are wanted. Raise `InvalidInput` if a block has more rows than its
        threads.
        """
        # the location and its neighbours, padded to a multiple of four
        order = (m + 4) // 4 * 4
        fitting = [
            team
            for largest, team in TEAM_THREADS.items()
            if order <= largest and order + count <= ROWS_PER_THREAD * team
        ]
        if not fitting:
            most = ROWS_PER_THREAD * max(TEAM_THREADS.values()) - order - 1
            raise InvalidInput(
                f"on a GPU a trend may have at most {most} columns with {m} neighbours. Got "
                f'{count - 1}: use on="cpu".'
            )
        rows = order + count + bases
        rows += (2 - rows) % 4
        entries = order * rows - order * (order - 4) // 2
        # 1/l_ii, which rows are locations, points, b, and D b for all but S and the diagonals
        vectors = (2 + d + (bases - diagonals if bases else 1)) * order
        stride = -(-(entries + vectors) // 16) * 16
        # two teams of eight threads read from different banks at a time
        return cls(rows, fitting[0], stride + 8 * (fitting[0] == 8))

    @property
    def bytes(self):
        """Bytes that a block takes."""
        return 8 * self.stride


class Pairs:
    """Inputs of the kernels for one model, for n locations in a box (2, d) with m neighbours each.

    `coefficients` are those of the noise; `numbers` are in the order of `Model` in
    cuda/vecchia.cuh; for `octaves` see `TablePairs`.
    """

    def __init__(self, model, metric, box, n, m, coefficients):
        d = box.shape[1]
        (term,) = model.terms(d)
        middle, unit, inverse = scale_of(term, metric, box)
        self.mapping = mapping_of(term, metric)
        turn, extents = np.eye(2), box[1] / unit - box[0] / unit
        self.turned = term.map is not None
        if self.turned:
            turn = term.map
            # of the box's corners: no points are that far apart
            extents = np.abs(turn) @ extents
        self.octaves = octaves_of(float(extents.max()), d, n, metric, inverse)
        # a typical log₂ s: most blocks are (m/n)^(1/d) of the extent wide, and most of their pairs
        # half of that apart
        self.common = self.octaves[1] - 2 - 2 / d * np.log2((n + 1) / (m + 1))
        start = np.zeros(3)
        start[:d] = middle
        others = 1 / unit, *turn.ravel(), inverse, term.amplitude
        forms = turning_forms(term).ravel()
        self.numbers = np.concatenate((start, others, forms, coefficients))

    def window(self, intervals, base, most):
        """Return the rows of a table that are kept in shared memory: the first, and how many.

        The table has `intervals` rows from number `base` on, of which `most` fit.
        """
        staged = max(0, min(most, intervals))
        first = int((self.common + 1023) * 2**SPLIT) - base + 1 - staged // 2
        return min(max(first, 0), intervals - staged), staged


def parts_of(n, length):
    """Return the number of parts whose sums are kept apart, and the locations in each.

    They do not depend on the GPU: all GPUs add in the same order. The sums of a part are `length`
    numbers.

    Examples
    --------
    >>> parts_of(1_000_000, 6), parts_of(100, 6)
    ((32259, 31), (100, 1))
    """
    size = max(-(-n // MOST_PARTS), -(-n * length // MOST_PART_NUMBERS))
    return -(-n // size), size


def mask_of(wanted):
    """Return the bits of a sequence of bool, the first one the lowest: a kernel's `wanted`."""
    return sum(1 << k for k, bit in enumerate(wanted) if bit)


class GpuPasses:
    """Passes over the blocks of one data set on a GPU, a `Device`; see `blocks.LocalPasses`.

    Raises `InvalidInput` if a block is too large for a GPU, and `NotEnoughMemory` if the data are.
    """

    @gpu_memory()
    def __init__(self, inputs, ordering, count, points=None, *, device):
        metric, n = inputs.metric, len(inputs)
        count = min(count, n - 1)
        if count > MOST_NEIGHBOURS:
            raise InvalidInput(
                f"`neighbours` must be at most {MOST_NEIGHBOURS} on a GPU. Got {count}: use fewer, "
                'or on="cpu".'
            )
        self._device, self._metric = device, metric
        places = inputs.points
        points = places if points is None else points
        self._check_memory(
            points.nbytes + 4 * n * count, f"{n:,} locations with {count} neighbours each"
        )
        self.graph = Graph.of(points, ordering, count)
        self.tree, self._box = self.graph.tree, box_of(places)
        self._inputs, self._dimensions = inputs[self.tree.order], places.shape[1]
        if inputs.time is not None:
            places = np.column_stack((places, inputs.time))
        self._points = self._on_gpu(places[self.tree.order])
        # the diagonals of the noise there, and the names of its parameters
        self._diagonals, self._named = None, None
        self._neighbours = self._on_gpu(self.graph.neighbours)
        self._columns = None

    @gpu_memory()
    def know(self, columns):
        """See `LocalPasses.know`."""
        # raises now instead of during a search
        self._layout(len(columns))
        self._check_memory(columns.nbytes, f"{len(columns)} columns")
        self._columns = self._on_gpu(columns)

    @gpu_memory()
    def reduce(self, model, wanted):
        """See `LocalPasses.reduce`."""
        import cupy

        n, count, bases = len(self._points), len(self._columns), len(wanted)
        length, below = 1 + count * count, bases * (1 + bases + count * count)
        summed = length + (below if wanted[0] else 0)
        # one more number: the first place without a factor
        parts, size = parts_of(n, summed + 1)
        name = "likelihood_and_derivatives" if wanted[0] else "likelihood"
        noise = self._noise(model)
        layout = self._layout(count, bases if wanted[0] else 0, len(noise))

        def work(pairs, tables, base, *clock):
            kernel = _kernel(name, layout.team, _changes_of(model), len(noise), bool(clock))
            sums, missed = cupy.zeros((parts, summed + 1)), cupy.zeros(1, dtype=np.int32)
            entries = mask_of(wanted), parts, size, sums, summed + 1, missed
            self._launch(
                kernel,
                layout,
                count,
                pairs,
                tables,
                base,
                units=parts,
                clock=clock,
                entries=entries,
            )
            return [(_folded(sums, layout.team).get(), int(missed[0]))]

        if "time" in model.uses:
            names = model.field_names if wanted[0] else ()
            ((total, _),) = self._with_clock(model, names, work)
        else:
            ((total, _),) = self._with_table(model, tables_for(model, wanted), work)
        out = np.zeros(length + below)
        out[:summed] = total[:-1]
        return out, n - int(total[-1]) if total[-1] else None

    @gpu_memory()
    def weights(self, model):
        """See `LocalPasses.weights`."""
        import cupy

        n, m = self._neighbours.shape
        self._check_memory(8 * n * (m + 1), f"the weights of {n:,} locations")
        layout, noise = self._layout(0), self._noise(model)

        def work(pairs, tables, base, *clock):
            weights, variances = cupy.empty((n, m)), cupy.empty(n)
            missed = cupy.zeros(1, dtype=np.int32)
            entries = weights, variances, missed
            kernel = _kernel("weights", layout.team, 1, len(noise), bool(clock))
            self._launch(
                kernel, layout, 0, pairs, tables, base, units=n, clock=clock, entries=entries
            )
            return [(weights.get(), variances.get(), int(missed[0]))]

        if "time" in model.uses:
            ((weights, variances, _),) = self._with_clock(model, (), work)
        else:
            ((weights, variances, _),) = self._with_table(model, ["correlation"], work)
        return weights, variances

    def neighbours_of(self, i):
        """See `LocalPasses.neighbours_of`."""
        return self.graph.neighbours[i]

    def _layout(self, count, bases=0, diagonals=1):
        shape = self._neighbours.shape[1], self._points.shape[1]
        return SharedLayout.of(*shape, count, bases, diagonals)

    def _noise(self, model):
        """Return the noise under a model, whose diagonals are on the GPU then."""
        noise = model.noise(self._inputs)
        if self._diagonals is None or noise.names != self._named:
            self._diagonals, self._named = self._on_gpu(noise.diagonals), noise.names
        return noise

    def _check_memory(self, needed, what):
        """Raise `NotEnoughMemory` if less memory of the GPU is free."""
        free = self._device.free_memory()
        if needed > free:
            raise NotEnoughMemory(
                f"{what} need {human_bytes(needed)} on {self._device.name}, where "
                f'{human_bytes(free)} are free: use fewer, or the CPU (--on cpu, on="cpu").'
            )

    def _on_gpu(self, array):
        import cupy

        with cupy.cuda.Device(self._device.index):
            return cupy.asarray(np.ascontiguousarray(array))

    def _with_table(self, model, names, work):
        """Call work(pairs, tables, base) with tables that reach all pairs; return its results."""
        import cupy

        check_tabulated(model)
        n, m = self._neighbours.shape
        pairs = Pairs(model, self._metric, self._box, n, m, self._noise(model).coefficients)
        with cupy.cuda.Device(self._device.index):
            return with_table(model, pairs, names, partial(work, pairs))

    def _with_clock(self, model, names, work):
        """As `_with_table`, for a space-time model: work(pairs, tables, base, *clock)."""
        import cupy

        check_tabulated(model)
        n, m = self._neighbours.shape
        pairs = Pairs(model, self._metric, self._box, n, m, self._noise(model).coefficients)
        in_time = model.pairs(self._inputs)
        numbers = TermNumbers(in_time, names, names)
        with cupy.cuda.Device(self._device.index):
            fields = numbers.fields[:, :4] if len(names) else [[0] * 4]
            fields = cupy.asarray(np.ascontiguousarray(fields))

            def work_further(further):
                field, _, clock, end = numbers.read(further)
                inverse, functions, size, _, late, *which = clock
                *_, table, length, _, base = field
                space = list(table.reshape(-1, length // 8, 8))
                count = 0 if functions is None else size // 8
                functions = cupy.asarray(space[0] if functions is None else functions)
                clock = functions, fields, inverse, count, late, *which
                results = work(pairs, space, base, *clock)
                return results, not end and any(missed for *_, missed in results)

            return in_time.until_reached(work_further)

    def _launch(self, function, layout, count, pairs, tables, base, units, clock, entries):
        """Launch a kernel on `units` parts or locations, of which a team takes one at a time."""
        import cupy

        n, m = self._neighbours.shape
        # a row of a table has 64 bytes
        kinds, row_bytes, intervals = len(tables), 64 * len(tables), len(tables[0])
        shared = _attribute("MaxSharedMemoryPerBlockOptin")
        processors = _attribute("MultiProcessorCount")
        # teams that fill a warp
        whole = max(1, WARP // layout.team)
        if shared < whole * layout.bytes:
            raise InvalidInput(
                f"{m} neighbours and {count} columns need {whole * layout.bytes} bytes of a GPU's "
                f'shared memory; this one has {shared}: use fewer neighbours, or on="cpu".'
            )
        most = min(WINDOW_BYTES, shared - whole * layout.bytes) // row_bytes
        first, staged = pairs.window(intervals, base, most)
        teams = (shared - staged * row_bytes) // layout.bytes
        teams = min(MOST_BLOCK_THREADS // layout.team, teams, -(-units // processors))
        teams = max(teams // whole, 1) * whole
        columns = self._columns if count else self._points
        shared = function.max_dynamic_shared_size_bytes = staged * row_bytes + teams * layout.bytes
        arguments = (
            *(self._points, self._neighbours, columns, self._diagonals),
            *(n, self._dimensions, m, count),
            *(pairs.mapping, int(pairs.turned)),
            *(cupy.asarray(pairs.numbers), cupy.asarray(np.concatenate(tables)), kinds),
            *(intervals, base, first, staged, layout.rows, layout.stride, *clock, *entries),
        )
        blocks, threads = max(1, min(processors, -(-units // teams))), teams * layout.team
        function((blocks,), (threads,), arguments, shared_mem=shared)


def _attribute(name):
    """Return an attribute of the current GPU."""
    from cupy.cuda import runtime

    return runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), runtime.getDevice())


def _changes_of(model):
    """Return SHAPES of cuda/vecchia.cuh."""
    return len(model.field_names if "time" in model.uses else model.shapes)


def _kernel(name, team, shapes=1, diagonals=1, timed=False):
    """Return a kernel for numbers of threads in a team, shape parameters and noise diagonals."""
    counts = {"SHAPES": shapes, "DIAGONALS": diagonals}
    options = [f"-DTEAM={team}", *(f"-D{key}={k}" for key, k in counts.items() if k != 1)]
    options += ["-DTIMED=1"] if timed else []
    return module("vecchia.cu", *options).get_function(name)


def _folded(sums, team):
    """Return the sum of rows, added in a fixed order; of their last numbers, the largest."""
    import cupy

    fold = _kernel("fold", team)
    while len(sums) > 1:
        count, length = sums.shape
        added = cupy.empty((-(-count // FOLDED_ROWS), length))
        threads = min(MOST_BLOCK_THREADS, -(-length // WARP) * WARP)
        fold((len(added),), (threads,), (sums, count, length, added))
        sums = added
    return sums[0]
