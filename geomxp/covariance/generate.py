"""Generate covariances and their derivatives between locations, in RAM or on a GPU.

`TablePairs` adds up terms (`covariance.term`): it evaluates the polynomials of `covariance.table`
at the speed of memory, and extends tables that do not reach the closest pairs. `DensePairs` calls a
family's own `matrix`.
"""

import warnings
from functools import cache, cached_property
from math import frexp
from threading import Lock

import numpy as np

from ..cuda import module
from ..errors import GeomxpWarning, InvalidInput, MissingPackage, with_article
from ..linalg.device import copy_on_gpu
from ..runtime.devices import in_threads
from .distance import EARTH_RADIUS, metric_of, power_of_two_near
from .table import LOWEST_OCTAVE, table_of
from .term import SPACE_SHARE, TIME_SHARE

CPU_PANEL_COLUMNS = 512
"""Columns that one thread takes at a time."""

PANEL_THREADS, PANEL_ROWS, PANEL_COLUMNS = 256, 512, 32
"""How cuda/matern.cu shares a tile among its blocks of threads."""

SHARED_BYTES = 46 * 1024
"""For a table in a GPU's shared memory, of the 48 KiB that every GPU offers by default."""

FURTHER_OCTAVES = 20
"""Octaves by which tables are extended to closer pairs."""

MOST_TIMES = 1024
"""Different times up to which functions of time are evaluated once for each pair of times."""

MOST_RANGES, NEGLIGIBLE_CORRELATION = 1e150, 2.0**-60
"""Limit on extents in units of the range; correlations below the second there are neglected."""

FIRST_ROW = np.zeros((1, 1), dtype=np.uint64)
"""Where the table of a term begins that has only one."""

GPU_FORMATS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}


_LOADING = Lock()


def loops():
    """Return the module with the loops for CPUs: compiled by numba, or in NumPy without it."""
    # two threads that import a module at once, which fails, get errors of different types
    with _LOADING:
        return _chosen_loops()


@cache
def _chosen_loops():
    try:
        from . import pairs_numba as chosen
    except MissingPackage:
        from . import pairs_numpy as chosen

        warnings.warn(
            "numba cannot be imported: covariances on the CPU are computed by NumPy, about ten "
            "times slower. To install numba: pip install numba.",
            GeomxpWarning,
            stacklevel=4,
        )
    return chosen


def box_of(*points):
    """Return the lowest and the highest coordinates of some points, (2, d)."""
    lows, highs = zip(*((part.min(axis=0), part.max(axis=0)) for part in points), strict=True)
    return np.array((np.min(lows, axis=0), np.max(highs, axis=0)))


def scale_of(term, metric, box):
    """Return what maps locations to points, M(x - middle)/unit, and 1/a² for their differences.

    `box`, (2, d), holds the lowest and the highest coordinates of the embedded locations. 1/a² is
    one number, or (p, p).
    """
    low, high = box
    # differences of coordinates near 1 have squares, and powers of two change no digit
    unit = 1.0
    if not metric_of(metric).fixed_scale:
        unit = 4 * power_of_two_near(float((high / 4 - low / 4).max()))
    # a linear map rounds coordinates, and less so near the origin
    middle = 0.0 if term.map is None else low / 2 + high / 2
    with np.errstate(over="ignore", under="ignore"):
        ratio = unit / term.range
        inverse = ratio * ratio
    if (ratio.max() if term.by_variable else ratio) > MOST_RANGES:
        lengths, inverse = np.atleast_2d(term.range), np.minimum(inverse, MOST_RANGES**2)
        for i, j in np.argwhere(np.atleast_2d(ratio) > MOST_RANGES):
            correlation = term.correlations[i][j]
            if correlation.evaluate("correlation", MOST_RANGES) > NEGLIGIBLE_CORRELATION:
                raise InvalidInput(
                    f"the range {lengths[i, j]:g} is too short for the distances of these "
                    f"locations: {with_article(correlation.family)} model with these shapes is "
                    "still correlated at 1e150 times the range. Choose a larger range."
                )
    if metric_of(metric).arc:
        # arcs are computed from chords² inverse, and must not lose the chord
        inverse = np.maximum(inverse, 1e-300)
    return middle, unit, inverse if term.by_variable else float(inverse)


def octaves_of(extent, dimensions, few, metric, inverse):
    """Return the octaves of s that pairs of `few` locations probably have; a miss extends them.

    `extent` is the largest difference of two points in a coordinate, `inverse` is 1/a².
    """
    extent = max(extent, 1e-300)
    longest = extent**2 * dimensions * inverse
    if metric_of(metric).arc:
        # an arc is at most π/2 chords
        longest = min(longest * 2.5, (np.pi * EARTH_RADIUS) ** 2 * inverse)
    # a little more, for rounding
    high = frexp(max(longest * (1 + 2.0**-40), 1e-300))[1]
    # n locations of d dimensions: their shortest distance is seldom below extent/(8 n^(2/d))
    return high - 6 - int(np.ceil(4 / dimensions * np.log2(few + 1))), high


def mapping_of(term, metric):
    """Return how kernels map squared straight distances to the variable of the table.

    1: to those of great-circle arcs; 2: as `table.fold` does.
    """
    return int(metric_of(metric).arc) + 2 * (term.support == "rough")


class DensePairs:
    """Covariances and derivatives between inputs a and b, by a family's own `matrix`.

    A block has the values of some rows and columns; `what` is "correlation" for the covariance, or
    a parameter's name for the derivative by it.
    """

    def __init__(self, model, a, b=None):
        self.model, self.a, self.b = model, a, a if b is None else b
        self.symmetric = b is None

    def write(self, what, rows, columns, out, *, triangle=False):
        """Write a block into `out`, FP64 or FP32 in Fortran order or a part of such a matrix.

        With `triangle` entries above the diagonal of the whole matrix are not written.
        """
        below = np.arange(rows.start, rows.stop)[:, None] >= np.arange(columns.start, columns.stop)
        np.copyto(out, self._values(what, rows, columns), where=below if triangle else True)

    def write_on_gpu(
        self, what, rows, columns, out, *, triangle=False, scale=1.0, noise=0.0, panels=None
    ):
        """Write a block of FP64 or FP32 values on a GPU; see `TablePairs.write_on_gpu`."""
        import cupy

        block = self._values(what, rows, columns)
        apart = np.arange(rows.start, rows.stop)[:, None] - np.arange(columns.start, columns.stop)
        own = noise if np.ndim(noise) == 0 else noise[rows, None]
        block = block + own * (apart == 0)
        block = np.where(apart >= 0, block, 0.0) if triangle else block
        with out.device:
            values = cupy.asarray(block * scale).astype(out.dtype)
            if triangle:
                cupy.copyto(out, values, where=cupy.asarray(apart >= 0))
            else:
                out[...] = values
            squares = cupy.asarray((block**2).sum())
            if panels is None:
                return squares
            panels[0][...] = 0.0
            panels[0][0] = squares
        return None

    def extend(self):
        """Return False: without a table, its range cannot be extended to closer pairs."""
        return False

    def _values(self, what, rows, columns):
        if what == "correlation":
            return self.model.matrix(self.a[rows], self.b[columns])
        return self.model.derivatives(self.a[rows], self.b[columns], names=(what,))[what]

    def block(self, what, rows, columns, index=None):
        """Return a block of values, Fortran order, on the CPU or a GPU; see `write`."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        if index is None:
            out = np.empty(shape, order="F")
            self.write(what, rows, columns, out)
            return out
        import cupy

        with cupy.cuda.Device(index):
            out = cupy.empty(shape, order="F")
            self.write_on_gpu(what, rows, columns, out)
        return out

    def covariance(self, index=None):
        """Return the covariances of all pairs, (n, m) in Fortran order, from a GPU or threads."""
        n, m = len(self.a), len(self.b)
        if index is not None:
            return self.block("correlation", slice(0, n), slice(0, m), index)
        out = np.empty((n, m), order="F")
        panels = [slice(j, min(j + CPU_PANEL_COLUMNS, m)) for j in range(0, m, CPU_PANEL_COLUMNS)]
        in_threads(lambda p: self.write("correlation", slice(0, n), p, out[:, p]), panels, n * m)
        return out

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives of the field's covariance for a block, without those of the noise.

        `index` is the number of the current GPU where they are wanted.
        """
        found = self.model.derivatives(self.a[rows], self.b[columns], names=names)
        if index is None:
            return found
        import cupy

        return {name: cupy.asarray(np.asfortranarray(block)) for name, block in found.items()}


class PlacedTerm:
    """A term between inputs a and b: scaled points, times, and the octaves that its tables have.

    `x` and `y` are the points, (d, n) and (d, m), `inverse` is 1/a² for them, and `kinds` are the
    numbers of the variables, or None; `times` and `inverse_time` are the same for v = (u/b)².
    Arrays of points are shared with `others`, between the same inputs.
    """

    def __init__(self, term, a, b, box, others=()):
        self.term, self.metric = term, metric_of(a.metric)
        middle, unit, self.inverse = scale_of(term, self.metric, box)
        shared = next((one for one in others if one.term.map is None and term.map is None), None)
        if shared is not None:
            self.x, self.y = shared.x, shared.y
        else:
            self.x = self._points(a, middle, unit)
            self.y = self.x if a is b else self._points(b, middle, unit)
        extent = np.ptp(self.x if a is b else np.hstack((self.x, self.y)), axis=1).max()
        few = len(self.x), max(len(a), len(b)), self.metric
        if term.by_variable:
            near, far = (
                octaves_of(extent, *few, inverse)
                for inverse in (self.inverse.min(), self.inverse.max())
            )
            self.octaves = near[0], far[1]
        else:
            self.octaves = octaves_of(extent, *few, self.inverse)
        self.mapping = mapping_of(term, self.metric)
        self.kinds = None
        if term.by_variable:
            variables = (one.variable for one in (a, b))
            self.kinds = tuple(np.ascontiguousarray(one, dtype=np.int64) for one in variables)
        self.times, self.octaves_in_time = None, (0, 0)
        if term.time_range is not None:
            self._place_in_time(a, b)
        # tables whose copies kernels on a GPU may still read
        self._in_use, self._between = {}, {}

    def _points(self, inputs, middle, unit):
        points = (inputs.points - middle) / unit
        if self.term.map is not None:
            points = points @ self.term.map.T
        return np.ascontiguousarray(points.T)

    def _place_in_time(self, a, b):
        times = (one.time for one in (a, b))
        self.times = tuple(np.ascontiguousarray(one, dtype=np.float64) for one in times)
        with np.errstate(over="ignore"):
            self.inverse_time = float(
                min(1 / np.float64(self.term.time_range) ** 2, MOST_RANGES**2)
            )
        shortest, longest = a.lags if a is b else _lags_between(a, b)
        ends = (max(lag * lag * self.inverse_time, 1e-300) for lag in (shortest, longest))
        low, high = (frexp(end)[1] for end in ends)
        self.octaves_in_time, clock = (low - 2, high + 1), self.term.clock
        if clock is None:
            # s + v has the octaves of both
            few, most = self.octaves
            self.octaves = min(few, low - 2), max(most, high) + 1
        elif clock.stretch is not None:
            # s·Q(v) is smaller than s
            least = float(clock.evaluate(clock.stretch, longest**2 * self.inverse_time))
            self.octaves = self.octaves[0] + frexp(max(least, 1e-300))[1], self.octaves[1]

    def reach(self, further):
        """Let all later tables reach so many octaves further, to closer pairs in space and time."""
        for name in ("octaves", "octaves_in_time"):
            low, high = getattr(self, name)
            setattr(self, name, (low - further, high))

    def tables(self, functions, single=False, further=0):
        """Return the polynomials of each of some functions of space, and where they are.

        These are a list of (rows, 8) or (rows, 3); the row where the table of each pair of
        variables begins, (p, p); the number of rows of a table; the first interval; and whether
        there is no lower octave. They reach `further` octaves below those expected, to closer
        pairs.
        """
        low, high = self.octaves[0] - further, self.octaves[1]
        if not self.term.by_variable:
            table = table_of(self.term.correlation, low, high)
            found = [table.polynomials(what, single) for what in functions]
            rows, base = [each for each, _ in found], found[0][1]
            return rows, FIRST_ROW, len(rows[0]), base, table.low <= LOWEST_OCTAVE
        sources, order = self.term.correlations, {}
        numbers = [
            [order.setdefault(one.table_key, (len(order), one))[0] for one in row]
            for row in sources
        ]
        tables = [table_of(one, low, high) for _, one in order.values()]
        stacks = [[table.polynomials(what, single) for table in tables] for what in functions]
        base = max(base for _, base in stacks[0])
        length = max(len(rows) - (base - each) for rows, each in stacks[0])
        blocks = [[aligned(rows, base - each, length) for rows, each in stack] for stack in stacks]
        end = all(table.low <= LOWEST_OCTAVE for table in tables)
        rows = [stack[0] if len(stack) == 1 else np.vstack(stack) for stack in blocks]
        return rows, np.array(numbers, dtype=np.uint64) * np.uint64(length), length, base, end

    def tables_in_time(self, functions, single=False, further=0):
        """Return polynomials of some functions of time, their first interval, and the end.

        Return None for the polynomials of a model without functions of time.
        """
        if self.term.clock is None:
            return None, 0, True
        low, high = self.octaves_in_time
        source = table_of(self.term.clock.source, low - further, high)
        found = [source.polynomials(what, single) for what in functions]
        return [rows for rows, _ in found], found[0][1], source.low <= LOWEST_OCTAVE

    def numbers_for(self, space, time, single, further):
        """Return what loops need for the product of a function of space and one of time.

        These are the polynomials, where the tables of each pair of variables begin with their
        length, the first interval, the `clock` of `pairs_numba.fill`, and the end.
        """
        (rows,), starts, length, base, end = self.tables((space,), single, further)
        clock = None
        if self.times is not None:
            stretch = self.term.clock and self.term.clock.stretch
            names = (time,) if stretch is None else (time, stretch)
            tables, base_in_time, other_end = self.tables_in_time(names, single, further)
            functions = (None, None) if tables is None else (*tables, None)[:2]
            clock = *self.times, self.inverse_time, *functions, base_in_time
            end &= other_end
        return rows, (starts, length), base, clock, end

    def write(self, factor, products, rows, columns, out, first, add, further):
        """Write factor·Σ e(s Q(v)) g(v) over products into a block of FP64 or FP32, or add it.

        `first` is where columns begin; see `pairs_numba.fill`. Return whether longer tables would
        reach more pairs.
        """
        single, short = out.dtype == np.float32, False
        stride = out.strides[1] // out.itemsize
        # all from the block's first entry to its last, with what lies between its columns
        count = (out.shape[1] - 1) * stride + out.shape[0]
        if count == out.size:
            flat = out.reshape(-1, order="F")
        else:
            flat = np.lib.stride_tricks.as_strided(out, (count,), (out.itemsize,))
        for number, (space, time) in enumerate(products):
            polynomials, starts, base, clock, end = self.numbers_for(space, time, single, further)
            inverse, scale, kinds = self.inverse, factor, None
            if self.kinds is not None:
                inverse, scale = 1.0, 1.0
                kinds = *self.kinds, self.inverse, starts, np.asarray(factor, out.dtype)
            missed = loops().fill(
                *(self.x, rows.start, rows.stop, self.y, columns.start, columns.stop),
                inverse=inverse,
                mapping=self.mapping,
                rows=polynomials,
                base=base,
                scale=out.dtype.type(scale),
                first=first,
                out=flat,
                offset=-rows.start - columns.start * stride,
                stride=stride,
                clock=self._by_lag(clock, single),
                kinds=kinds,
                add=add or number > 0,
            )
            # below the lowest octave 1 - ρ is below the rounding of 1 but for very rough fields
            short |= missed > 0 and not end
        return short

    @cached_property
    def _different(self):
        """The different times and the numbers of rows and columns among them; None if many."""
        n, m = map(len, self.times)
        # a sample tells most cases of many times
        if len(np.unique(self.times[0][:: max(1, n // (2 * MOST_TIMES))])) > MOST_TIMES:
            return None
        times, numbers = np.unique(np.concatenate(self.times), return_inverse=True)
        if len(times) > MOST_TIMES or 4 * len(times) ** 2 > n * m:
            return None
        return times, numbers[:n].astype(np.int64), numbers[n:].astype(np.int64)

    def _by_lag(self, clock, single):
        """Return a clock with matrices of the functions between the different times, if few.

        They have the bits of what is computed for each pair.
        """
        if clock is None or clock[3] is None or loops().add_pairs is None or not self._different:
            return clock
        *_, inverse, decay, stretch, base = clock
        times, *numbers = self._different
        count, matrices = len(times), []
        for rows in (decay, stretch):
            if rows is not None and id(rows) not in self._between:
                out = np.empty((count, count), rows.dtype, order="F")
                points = times[None], 0, count
                missed = loops().fill(
                    *points,
                    *points,
                    inverse=inverse,
                    mapping=0,
                    rows=rows,
                    base=base,
                    scale=out.dtype.type(1.0),
                    first=-count,
                    out=out.reshape(-1, order="F"),
                    offset=0,
                    stride=count,
                )
                if missed:
                    return clock
                # the rows are kept too, so that their number stays theirs
                self._between[id(rows)] = np.ascontiguousarray(out), rows
            matrices.append(None if rows is None else self._between[id(rows)][0])
        return *numbers, *matrices

    def launch(self, form, factor, products, pairs, entries, panels, further):
        """Start the kernel for one product on a GPU; see `TablePairs.write_on_gpu`."""
        ((space, time),) = products
        polynomials, _, base, clock, end = self.numbers_for(space, time, form != "fp64", further)
        # kernels may still read their copies when other tables have taken their place
        kept = [polynomials, *(clock or ())]
        self._in_use |= {id(array): array for array in kept if np.ndim(array) == 2}
        pairs = (
            *(copy_on_gpu(self.x), self.x.shape[1], copy_on_gpu(self.y), self.y.shape[1]),
            *(len(self.x), *pairs, self.inverse, self.mapping),
        )
        real = np.float64 if form == "fp64" else np.float32
        entries = real(factor), *entries
        squares, missed = _launch(form, pairs, polynomials, base, entries, panels, clock)
        return squares, missed, end

    def evaluate(self, factor, products, rows, columns):
        """Evaluate factor·Σ e(s Q(v)) g(v) over products for a block by the formulas, (n, m)."""
        h, clock = self.metric.between(self.x.T[rows], self.y.T[columns]), self.term.clock
        v = None if self.times is None else self._lags(rows, columns)
        factor, inverse = np.atleast_2d(factor), np.atleast_2d(self.inverse)
        kinds = (np.zeros(n, dtype=int) for n in h.shape)
        if self.kinds is not None:
            kinds = self.kinds[0][rows], self.kinds[1][columns]
        of_rows, of_columns = kinds
        out = np.zeros(h.shape, order="F")
        for i, j in np.ndindex(*factor.shape):
            where = np.ix_(of_rows == i, of_columns == j)
            r, correlation = h[where] * np.sqrt(inverse[i, j]), self.term.correlations[i][j]
            if v is not None and clock is None:
                r = np.sqrt(r**2 + v[where])
            elif clock is not None and clock.stretch is not None:
                r = r * np.sqrt(clock.evaluate(clock.stretch, v[where]))
            for space, time in products:
                decay = 1.0 if clock is None else clock.evaluate(time, v[where])
                out[where] += factor[i, j] * decay * correlation.evaluate(space, r)
        return out

    def _lags(self, rows, columns):
        """Return v = (u/b)² of a block, (n, m)."""
        of_rows, of_columns = self.times
        return np.subtract.outer(of_rows[rows], of_columns[columns]) ** 2 * self.inverse_time

    def shares(self, share, rows, columns):
        """Return v/(s + v) or s/(s + v) of a block, 0 for 0/0, (n, m) in Fortran order."""
        inverse = self.inverse
        if self.kinds is not None:
            inverse = inverse[np.ix_(self.kinds[0][rows], self.kinds[1][columns])]
        h = self.metric.between(self.x.T[rows], self.y.T[columns])
        v, s = self._lags(rows, columns), (h * np.sqrt(inverse)) ** 2
        both = np.where(s + v > 0, s + v, 1.0)
        return np.asfortranarray((s if share == SPACE_SHARE else v) / both)

    def turned(self, turn, rows, columns, index):
        """Return u'(∂M)M⁻¹u/|u|² of a block, 0 for u = 0, (n, m) in Fortran order."""
        xp, x, y, change = np, self.x, self.y, self.term.changes[turn].map.tolist()
        if index is not None:
            import cupy as xp

            x, y = copy_on_gpu(x), copy_on_gpu(y)
        # transposed: columns are contiguous then, as those of blocks are
        apart = [(x[axis, rows] - y[axis, columns][:, None]).T for axis in range(len(x))]
        squared = sum(one * one for one in apart)
        form = sum(
            number * left * right
            for row, left in zip(change, apart, strict=True)
            for number, right in zip(row, apart, strict=True)
        )
        return xp.where(squared > 0, form / xp.where(squared > 0, squared, 1.0), 0.0)


def aligned(rows, skipped, length):
    """Return `length` rows of a table, without the first intervals; the last row is repeated.

    Other models may have made a longer table of one function.
    """
    if not skipped and len(rows) == length:
        return rows
    kept = np.vstack((rows[:1], rows[1 + skipped :]))
    return np.vstack((kept, np.repeat(kept[-1:], length - len(kept), axis=0)))


def shaped(function):
    """Whether a function of pairs is a product of tables times something else."""
    return function.turn is not None or function.products[0][1] in (TIME_SHARE, SPACE_SHARE)


class TablePairs(DensePairs):
    """Covariances and derivatives of a sum of terms, from the polynomials of tables.

    `box`, (2, d), holds the lowest and the highest coordinates of all points of which a and b are
    a part, by default of a and b: parts with one box have the bits of the whole. `parts` are the
    terms between a and b.
    """

    def __init__(self, model, a, b=None, box=None):
        super().__init__(model, a, b)
        if box is None:
            box = a.box if self.symmetric else box_of(a.points, b.points)
        terms = model.terms(metric_of(a.metric).dimensions(a.dimensions))
        self.parts = []
        for term in terms:
            self.parts.append(PlacedTerm(term, self.a, self.b, box, self.parts))

    def functions(self, what):
        """Return the summands of the covariance or of a derivative: part, factor and function."""
        return [(part, *each) for part in self.parts for each in part.term.functions(what)]

    def until_reached(self, work):
        """Call work(further) until tables reach all pairs; return its result.

        It returns a result and whether longer tables would reach more pairs. Tables reach `further`
        octaves below those expected, then and later.
        """
        further = 0
        while True:
            result, short = work(further)
            if not short:
                break
            further += FURTHER_OCTAVES
        if further:
            self.reach(further)
        return result

    def reach(self, further):
        """Let all later tables reach so many octaves further, to closer pairs."""
        for part in self.parts:
            part.reach(further)

    def extend(self):
        """Extend the range of later tables towards closer pairs; False if that is not possible."""
        low = min(part.octaves[0] for part in self.parts)
        self.reach(FURTHER_OCTAVES)
        return low > LOWEST_OCTAVE

    def write(self, what, rows, columns, out, *, triangle=False):
        """Write a block; see `DensePairs.write`."""
        functions = self.functions(what)
        if not self.model.tabulated or any(shaped(function) for *_, function in functions):
            super().write(what, rows, columns, out, triangle=triangle)
            return
        first = 0 if triangle else -len(self.b)

        def work(further):
            some = [
                part.write(factor, one.products, rows, columns, out, first, number > 0, further)
                for number, (part, factor, one) in enumerate(functions)
            ]
            return None, any(some)

        self.until_reached(work)

    def write_on_gpu(
        self, what, rows, columns, out, *, triangle=False, scale=1.0, noise=0.0, panels=None
    ):
        """Write a block on a GPU: FP64 (derivatives too), FP32, FP16, or uint8 for FP8 (E4M3).

        Return the squared Frobenius norm of what was written, before scale and rounding, as a
        number on the GPU; None if `panels` are given.

        `scale` is a power of two by which values are multiplied before they are rounded. `noise`, a
        number or (n,), is added where the row's number is the column's. `panels` are an FP64 and an
        int32 buffer with an entry for each panel of the block (see `panels_of`), for the sums of
        squares and the counts of missed pairs: the CPU does not wait then to learn whether the
        table must be extended (see `extend`). Raises `InvalidInput` if the model has no table.

        A sum of terms, and several variables, are generated on the CPU.
        """
        where = {"triangle": triangle, "scale": scale, "noise": noise, "panels": panels}
        (part, factor, function), *more = self.functions(what)
        if more or len(function.products) > 1 or part.kinds is not None or shaped(function):
            return super().write_on_gpu(what, rows, columns, out, **where)
        self.model.check_tabulated('Use on="cpu".')
        return self._write_product(part, factor, function.products, rows, columns, out, **where)

    def _write_product(
        self,
        part,
        factor,
        products,
        rows,
        columns,
        out,
        *,
        triangle=False,
        scale=1.0,
        noise=0.0,
        panels=None,
    ):
        """Write one product of functions on a GPU; see `write_on_gpu`."""
        stride = out.strides[1] // out.itemsize
        form, each = GPU_FORMATS[out.dtype.name], np.ndim(noise) > 0
        real = np.float64 if form == "fp64" else np.float32
        with out.device:
            entries = (
                *(real(0.0 if each else noise), copy_on_gpu(noise if each else part.x)),
                *(int(each), real(scale), 0 if triangle else -len(self.b), out),
                *(-rows.start - columns.start * stride, stride),
            )
            where = rows.start, rows.stop, columns.start, columns.stop

            def work(further):
                squares, missed, end = part.launch(
                    form, factor, products, where, entries, panels, further
                )
                if panels is not None:
                    return None, False
                return squares, int(missed.sum()) > 0 and not end

            squares = self.until_reached(work)
            return None if panels is not None else squares.sum()

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives for a block of pairs; see `DensePairs.derivatives`."""
        found = {name: self.functions(name) for name in names}
        slopes = {}
        return {
            name: self._sum(functions, rows, columns, index, slopes)
            for name, functions in found.items()
            if functions
        }

    def _values(self, what, rows, columns):
        return self._sum(self.functions(what), rows, columns, None, {})

    def _sum(self, functions, rows, columns, index, known):
        """Return a sum of functions of pairs for a block, on the CPU or a GPU.

        `known` keeps blocks that several sums multiply by something else.
        """
        total = None
        for part, factor, function in functions:
            where = id(part), np.asarray(factor).tobytes(), function.products
            if not shaped(function):
                block = self._block(part, factor, function.products, rows, columns, index)
            else:
                if where not in known:
                    known[where] = self._block(
                        part, factor, function.products, rows, columns, index
                    )
                block = known[where] * self._shape(part, function, rows, columns, index)
            total = block if total is None else total + block
        return total

    def _shape(self, part, function, rows, columns, index):
        """Return what multiplies the tables of a function of pairs for a block."""
        shapes, share = [], function.products[0][1]
        if share in (TIME_SHARE, SPACE_SHARE):
            block = part.shares(share, rows, columns)
            shapes.append(block if index is None else _on_gpu(block))
        if function.turn is not None:
            shapes.append(part.turned(function.turn, rows, columns, index))
        return shapes[0] * shapes[1] if shapes[1:] else shapes[0]

    def _block(self, part, factor, products, rows, columns, index):
        """Return factor·Σ e(s Q(v)) g(v) over products for a block, in Fortran order."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        if not self.model.tabulated:
            if index is not None:
                self.model.check_tabulated('Use on="cpu".')
            return part.evaluate(factor, products, rows, columns)
        if index is None or part.kinds is not None:
            out = np.empty(shape, order="F")

            def work(further):
                whole = -len(self.b)
                short = part.write(factor, products, rows, columns, out, whole, False, further)
                return None, short

            self.until_reached(work)
            return out if index is None else _on_gpu(out)
        import cupy

        total = None
        with cupy.cuda.Device(index):
            for product in products:
                out = cupy.empty(shape, order="F")
                self._write_product(part, factor, (product,), rows, columns, out)
                total = out if total is None else total + out
        return total


def _lags_between(a, b):
    """Return about the smallest and the largest lag between the times of two inputs."""
    times = np.concatenate([one.time[[one.time.argmin(), one.time.argmax()]] for one in (a, b)])
    longest = float(np.ptp(times)) or 1.0
    return min(a.lags[0], b.lags[0], longest), longest


def _on_gpu(array):
    """Return an array on the current GPU."""
    import cupy

    return cupy.asarray(array)


def panels_of(rows, columns):
    """Return the number of panels of a block with these numbers of rows and columns."""
    return (-(-rows // PANEL_ROWS)) * (-(-columns // PANEL_COLUMNS))


def _launch(form, pairs, polynomials, base, entries, given=None, clock=None):
    """Start the kernel; return the sum of squares and the number of missed pairs by panel.

    For `clock` see `pairs_numba.fill`.
    """
    import cupy
    from cupy.cuda import runtime

    i0, i1, j0, j1 = pairs[5:9]
    panels = panels_of(i1 - i0, j1 - j0)
    squares, missed = given or (cupy.empty(panels), cupy.empty(panels, dtype=np.int32))
    processors = runtime.deviceGetAttribute(
        runtime.cudaDevAttrMultiProcessorCount, runtime.getDevice()
    )
    # a row stands in chunks of 16 bytes
    row_bytes = -(-polynomials[0].nbytes // 16) * 16
    staged = min(len(polynomials) - 1, SHARED_BYTES // row_bytes)
    name, in_time = "covariances", ()
    if clock is not None:
        *times, inverse_time, decay, stretch, base_time = clock
        name, count = "covariances_in_time", 0 if decay is None else len(decay)
        functions = (polynomials if rows is None else rows for rows in (decay, stretch))
        arrays = [copy_on_gpu(array) for array in (*times, *functions)]
        numbers = count, base_time, int(stretch is not None)
        in_time = *arrays[:2], inverse_time, *arrays[2:], *numbers
    module("matern.cu").get_function(f"{name}_{form}")(
        (max(1, min(panels, 4 * processors)),),
        (PANEL_THREADS,),
        (
            *(*pairs, copy_on_gpu(polynomials), len(polynomials), base, staged),
            *(*entries, squares, missed, *in_time),
        ),
        shared_mem=staged * row_bytes,
    )
    return squares, missed
