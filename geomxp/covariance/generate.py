"""Generate covariances and their derivatives between locations, in RAM or on a GPU.

`TablePairs` evaluates the polynomials of `geomxp.covariance.table` at the speed of memory, and
extends a table that does not reach the closest pairs. `DensePairs` calls a family's own `matrix`.
"""

import warnings
from functools import cache, cached_property
from math import frexp
from threading import Lock

import numpy as np

from ..cuda import module
from ..errors import GeomxpWarning, InvalidInput, MissingPackage
from ..linalg.device import copy_on_gpu
from ..runtime.devices import in_threads
from .distance import EARTH_RADIUS, metric_of, power_of_two_near
from .table import LOWEST_OCTAVE, SPLIT, SPLIT_FP32, table_of

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

MATERN_FUNCTIONS = "correlation", "slope", "smoothness"
"""Functions of Matérn's tables: M(r), r M'(r) and ∂M/∂ν."""

MOST_RANGES, NEGLIGIBLE_CORRELATION = 1e150, 2.0**-60
"""Limit on extents in units of the range; correlations below the second there are neglected."""

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


def scale_of(model, metric, box):
    """Return what maps locations to points, A(x - middle)/unit, and 1/a² for their differences.

    `box`, (2, d), holds the lowest and the highest coordinates of the embedded locations.
    """
    low, high = box
    # differences of coordinates near 1 have squares, and powers of two change no digit
    unit = 1.0
    if not metric_of(metric).fixed_scale:
        unit = 4 * power_of_two_near(float((high / 4 - low / 4).max()))
    # a linear map rounds coordinates, and less so near the origin
    middle = 0.0 if model.anisotropy is None else low / 2 + high / 2
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.float64(unit) / model.range
        inverse = float(min(ratio * ratio, MOST_RANGES**2))
    if (
        ratio > MOST_RANGES
        and model.correlation(MOST_RANGES * model.range) > NEGLIGIBLE_CORRELATION
    ):
        raise InvalidInput(
            f"the range {model.range:g} is too short for the distances of these locations: "
            f"a {model.family} model with these shapes is still correlated at 1e150 times the "
            "range. Choose a larger range."
        )
    if metric_of(metric).arc:
        # arcs are computed from chords² inverse, and must not lose the chord
        inverse = max(inverse, 1e-300)
    return middle, unit, inverse


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


def mapping_of(model, metric):
    """Return how kernels map squared straight distances to the variable of the table.

    1: to those of great-circle arcs; 2: as `table.fold` does.
    """
    return int(metric_of(metric).arc) + 2 * (model.support == "rough")


class DensePairs:
    """Covariances and derivatives between inputs a and b, by a family's own `matrix`.

    A block has the values of some rows and columns; `what` is "correlation" for the covariance σ²ρ,
    "slope" for σ²r dρ/dr, or a parameter's name for the derivative by it.
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


class TablePairs(DensePairs):
    """Covariances and derivatives of an isotropic family, from the polynomials of a table.

    `box`, (2, d), holds the lowest and the highest coordinates of all points of which a and b are
    a part, by default of a and b: parts with one box have the bits of the whole.
    """

    def __init__(self, model, a, b=None, box=None):
        super().__init__(model, a, b)
        self.metric = metric_of(a.metric)
        of_rows = a.points
        of_columns = of_rows if b is None else b.points
        if box is None:
            box = a.box if self.symmetric else box_of(of_rows, of_columns)
        middle, unit, self.inverse = scale_of(model, self.metric, box)
        self.x = self._points(of_rows, middle, unit)
        self.y = self.x if self.symmetric else self._points(of_columns, middle, unit)
        extent = np.ptp(self.x if self.symmetric else np.hstack((self.x, self.y)), axis=1).max()
        few = max(self.x.shape[1], self.y.shape[1])
        self.octaves = octaves_of(extent, len(self.x), few, self.metric, self.inverse)
        self.mapping = mapping_of(model, self.metric)
        # tables whose copies kernels on a GPU may still read
        self._in_use = {}

    def _points(self, places, middle, unit):
        points = (places - middle) / unit
        if self.model.anisotropy is not None:
            points = points @ self.model.anisotropy.matrix().T
        return np.ascontiguousarray(points.T)

    def write(self, what, rows, columns, out, *, triangle=False):
        """Write a block; see `DensePairs.write`."""
        if not self.model.tabulated:
            super().write(what, rows, columns, out, triangle=triangle)
            return
        stride = out.strides[1] // out.itemsize
        # all from the block's first entry to its last, with what lies between its columns
        count = (out.shape[1] - 1) * stride + out.shape[0]
        flat = np.lib.stride_tricks.as_strided(out, (count,), (out.itemsize,))
        offset = -rows.start - columns.start * stride
        single = out.dtype == np.float32
        first = 0 if triangle else -self.y.shape[1]
        fill = loops().fill_fp32 if single else loops().fill
        further = 0
        while True:
            (polynomials, base), clock, lowest = self.tables(what, single, further)
            clock = self.by_lag(clock, single)
            missed = fill(
                *(self.x, rows.start, rows.stop, self.y, columns.start, columns.stop),
                inverse=self.inverse,
                mapping=self.mapping,
                rows=polynomials,
                base=base,
                scale=out.dtype.type(self.model.variance),
                first=first,
                out=flat,
                offset=offset,
                stride=stride,
                clock=clock,
            )
            # below the lowest octave 1 - ρ is below the rounding of 1 but for very rough fields
            if not missed or lowest:
                break
            further += FURTHER_OCTAVES
        if further:
            self.reach(further)

    def tables(self, what, single, further=0):
        """Return polynomials of ρ with their first interval, the `clock` of `fill`, and an end.

        The tables reach `further` octaves below those expected, to closer pairs; the end says that
        there is no lower octave.
        """
        low, high = self.octaves
        table = table_of(self.model, low - further, high)
        return table.polynomials(what, single), None, table.low <= LOWEST_OCTAVE

    def by_lag(self, clock, single):
        """Return the clock unchanged: nothing depends on time; see `TimePairs.by_lag`."""
        return clock

    def reach(self, further):
        """Let all later tables reach so many octaves further, to closer pairs."""
        low, high = self.octaves
        self.octaves = low - further, high

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
        """
        self.model.check_tabulated('Use on="cpu".')
        stride = out.strides[1] // out.itemsize
        form = GPU_FORMATS[out.dtype.name]
        single = form != "fp64"
        real = np.float32 if single else np.float64
        each, further = np.ndim(noise) > 0, 0
        with out.device:
            pairs = (
                *(copy_on_gpu(self.x), self.x.shape[1], copy_on_gpu(self.y), self.y.shape[1]),
                *(len(self.x), rows.start, rows.stop, columns.start, columns.stop),
                *(self.inverse, self.mapping),
            )
            entries = (
                *(real(self.model.variance), real(0.0 if each else noise)),
                *(copy_on_gpu(noise if each else self.x), int(each), real(scale)),
                *(0 if triangle else -self.y.shape[1], out),
                *(-rows.start - columns.start * stride, stride),
            )
            while True:
                (polynomials, base), clock, end = self.tables(what, single, further)
                # kernels may still read their copies when other tables have taken their place
                kept = [polynomials, *(clock or ())]
                self._in_use |= {id(array): array for array in kept if np.ndim(array) == 2}
                squares, missed = _launch(form, pairs, polynomials, base, entries, panels, clock)
                if panels is not None:
                    return None
                if end or not int(missed.sum()):
                    break
                further += FURTHER_OCTAVES
            if further:
                self.reach(further)
            return squares.sum()

    def extend(self):
        """Extend the range of later tables towards closer pairs; False if that is not possible."""
        low, _ = self.octaves
        self.reach(FURTHER_OCTAVES)
        return low > LOWEST_OCTAVE

    def _values(self, what, rows, columns):
        """Evaluate a block by the formula, for a model without a table."""
        h = self.metric.between(self.x.T[rows], self.y.T[columns])
        return self.model.variance * self.model.evaluate(what, h * np.sqrt(self.inverse))

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives for a block of pairs; see `DensePairs.derivatives`."""
        model, result, where = self.model, {}, (rows, columns, index)
        if "variance" in names:
            result["variance"] = self.block("correlation", *where) / model.variance
        for shape in model.shapes:
            if shape.name in names:
                result[shape.name] = self.block(shape.name, *where)
        if any(name == "range" or name.startswith("anisotropy") for name in names):
            slope = self.block("slope", *where)
            if "range" in names:
                # ∂C/∂a = -(σ²/a) r ρ'(r)
                result["range"] = -slope / model.range
            if model.anisotropy is not None:
                result |= self._by_anisotropy(rows, columns, slope, names, index)
        return result

    def _by_anisotropy(self, rows, columns, slope, names, index):
        """∂C/∂φ = (σ²r ρ'(r)/h²) · u'(∂A/∂φ)d with u = Ad, and d = A⁻¹u."""
        result, xp, x, y = {}, np, self.x, self.y
        if index is not None:
            import cupy as xp

            x, y = copy_on_gpu(x), copy_on_gpu(y)
        # transposed: columns are contiguous then, as the slope's are
        apart = [(x[axis, rows] - y[axis, columns][:, None]).T for axis in (0, 1)]
        squared = apart[0] ** 2 + apart[1] ** 2
        share = xp.where(squared > 0, slope / xp.where(squared > 0, squared, 1.0), 0.0)
        generators = self.model.anisotropy.generators().tolist()
        for name, change in zip(("angle", "ratio"), generators, strict=True):
            if f"anisotropy_{name}" in names:
                inner = sum(change[i][j] * apart[i] * apart[j] for i in (0, 1) for j in (0, 1))
                result[f"anisotropy_{name}"] = share * inner
        return result


class TimePairs(TablePairs):
    """Covariances and derivatives of a space-time family; see `space_time.SpaceTime`."""

    def __init__(self, model, a, b=None, box=None):
        super().__init__(model.space, a, b, box)
        self.field, self.model = self.model, model
        self.clock = model.clock(self.metric.dimensions(a.dimensions))
        times = (one.time for one in (self.a, self.b))
        self.times = tuple(np.ascontiguousarray(one, dtype=np.float64) for one in times)
        self._between = {}
        with np.errstate(over="ignore"):
            self.inverse_time = float(min(1 / np.float64(model.time_range) ** 2, MOST_RANGES**2))
        shortest, longest = self.a.lags if b is None else _lags_between(self.a, self.b)
        ends = (max(lag * lag * self.inverse_time, 1e-300) for lag in (shortest, longest))
        low, high = (frexp(end)[1] for end in ends)
        self.octaves_in_time = low - 2, high + 1
        if self.clock is None:
            # s + v has the octaves of both
            few, most = self.octaves
            self.octaves = min(few, low - 2), max(most, high) + 1
        elif self.clock.stretch is not None:
            # s·Q(v) is smaller than s
            least = float(self.clock.evaluate(self.clock.stretch, longest**2 * self.inverse_time))
            self.octaves = self.octaves[0] + frexp(max(least, 1e-300))[1], self.octaves[1]

    def tables(self, what, single, further=0):
        """Return polynomials of a product of functions; see `TablePairs.tables` and `terms`."""
        low, high = self.octaves
        of_space, of_time = self._names(what)
        table = table_of(self.field, low - further, high)
        polynomials, end = table.polynomials(of_space, single), table.low <= LOWEST_OCTAVE
        if self.clock is None:
            return polynomials, (*self.times, self.inverse_time, None, None, 0), end
        low, high = self.octaves_in_time
        source = table_of(self.clock.source, low - further, high)
        decay, base = source.polynomials(of_time, single)
        stretch = self.clock.stretch and source.polynomials(self.clock.stretch, single)[0]
        clock = *self.times, self.inverse_time, decay, stretch, base
        return polynomials, clock, end and source.low <= LOWEST_OCTAVE

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

    def by_lag(self, clock, single):
        """Return a clock with matrices of the functions between the different times, if few.

        They have the bits of what is computed for each pair.
        """
        if clock is None or clock[3] is None or loops().add_pairs is None or not self._different:
            return clock
        *_, inverse, decay, stretch, base = clock
        times, *numbers = self._different
        count, fill = len(times), loops().fill_fp32 if single else loops().fill
        matrices = []
        for rows in (decay, stretch):
            if rows is not None and id(rows) not in self._between:
                out = np.empty((count, count), rows.dtype, order="F")
                points = times[None], 0, count
                missed = fill(
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

    def fields(self, names):
        """Return the functions that the derivatives by some parameters need.

        These are the names of functions of space, "correlation" first, those of functions of time,
        the numbers of decay and stretch (or -1) among these, and the fields, (k, 4): derivative k
        is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = fields[k], times a factor of `terms`, e
        functions of space and g of time; without the second product where c = -1.
        """
        terms, clock = self.terms(names), self.clock
        of_space, of_time = ["correlation"], ["one", "time", "space"]
        decay = stretch = -1
        if clock is not None:
            of_time = [clock.decay] + ([clock.stretch] if clock.stretch else [])
            decay, stretch = 0, len(of_time) - 1 if clock.stretch else -1
        fields = np.full((len(names), 4), -1)
        for field, name in zip(fields, names, strict=True):
            for k, (space, time) in enumerate(terms[name][1]):
                for known, one in ((of_space, space), (of_time, time)):
                    if one not in known:
                        known.append(one)
                field[2 * k : 2 * k + 2] = of_time.index(time), of_space.index(space)
        return of_space, of_time, (decay, stretch), fields

    def rows_of(self, of_space, of_time, further):
        """Return the rows of named functions of space and of time, and the end; see `tables`.

        Of both (T, K, 8) and the first interval; None and 0 if time is a coordinate.
        """
        low, high = self.octaves
        table = table_of(self.field, low - further, high)
        space, end = np.array([table.rows(name) for name in of_space]), table.low <= LOWEST_OCTAVE
        if self.clock is None:
            return (space, table.base, None, 0), end
        low, high = self.octaves_in_time
        source = table_of(self.clock.source, low - further, high)
        time = np.array([source.rows(name) for name in of_time])
        return (space, table.base, time, source.base), end and source.low <= LOWEST_OCTAVE

    def _names(self, what):
        """Return the names of a function of space and one of time, of "correlation" or a pair."""
        decay = None if self.clock is None else self.clock.decay
        return (what, decay) if isinstance(what, str) else what

    def reach(self, further):
        """Let all later tables reach so many octaves further, to closer pairs in space and time."""
        super().reach(further)
        low, high = self.octaves_in_time
        self.octaves_in_time = low - further, high

    def _values(self, what, rows, columns):
        """Evaluate a block by the formula, for a model without a table."""
        r, v = self._distances(rows, columns), self._lags(rows, columns)
        of_space, of_time = self._names(what)
        if self.clock is None:
            return self.model.variance * self.field.evaluate(of_space, np.sqrt(r**2 + v))
        stretch = self.clock.evaluate(self.clock.stretch, v) if self.clock.stretch else 1.0
        in_space = self.field.evaluate(of_space, r * np.sqrt(stretch))
        return self.model.variance * self.clock.evaluate(of_time, v) * in_space

    def _lags(self, rows, columns):
        """Return v = (u/b)² of a block, (n, m)."""
        of_rows, of_columns = self.times
        return np.subtract.outer(of_rows[rows], of_columns[columns]) ** 2 * self.inverse_time

    def terms(self, names):
        """Return each parameter's derivative of C as {name: (factor, products)}.

        C is σ² times a function of space times one of time, and so is each of the products, named
        as pairs. If time is a coordinate, r² = s + v, the functions of time are "one", and the
        shares of "space", s/(s + v), and "time", v/(s + v).
        """
        model, clock = self.model, self.clock
        decay = "one" if clock is None else clock.decay
        found = {
            "variance": (1 / model.variance, [("correlation", decay)]),
            "smoothness": (1.0, [("smoothness", decay)]),
            # ∂C/∂a = -(σ²/a) G r ρ'(r)
            "range": (-1 / model.range, [("slope", "space" if clock is None else decay)]),
            "time_range": (-1 / model.time_range, [("slope", "time")]),
        }
        for name, (of_decay, of_stretch) in {} if clock is None else clock.terms.items():
            products = [("correlation", of_decay)]
            products += [] if of_stretch is None else [("slope", of_stretch)]
            # G changes with log b as with -log r, r = |u|/b
            found[name] = found.get(name, (1.0,))[0], products
        return {name: found[name] for name in names if name in found}

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives for a block of pairs; see `DensePairs.derivatives`."""
        result, v = {}, None
        for name, (factor, products) in self.terms(names).items():
            blocks = [self.block(one, rows, columns, index) for one in products]
            result[name] = factor * (blocks[0] + blocks[1] if blocks[1:] else blocks[0])
            share = products[0][1]
            if share in ("space", "time"):
                if v is None:
                    v, s = self._lags(rows, columns), self._distances(rows, columns) ** 2
                    both = np.where(s + v > 0, s + v, 1.0)
                share = np.asfortranarray((s if share == "space" else v) / both)
                result[name] *= share if index is None else _on_gpu(share)
        return result

    def _distances(self, rows, columns):
        """Return h/a of a block, (n, m)."""
        h = self.metric.between(self.x.T[rows], self.y.T[columns])
        return h * np.sqrt(self.inverse)


class VariablePairs(DensePairs):
    """Covariances and derivatives of several variables; see `multivariate.Multivariate`.

    The tables of all pairs of variables have the same octaves and stand below each other. Where the
    noise of variables is correlated, p is the number of kinds of inputs; see `Multivariate.terms`.
    """

    def __init__(self, model, a, b=None, box=None):
        super().__init__(model, a, b)
        self.metric, self.components = metric_of(a.metric), model.terms()
        of_rows = a.points
        of_columns = of_rows if b is None else b.points
        if box is None:
            box = a.box if self.symmetric else box_of(of_rows, of_columns)
        largest = (np.unravel_index(c.smoothness.argmax(), c.range.shape) for c in self.components)
        self.tabulated = all(
            model.correlation_of(one, *where).tabulated
            for one, where in zip(self.components, largest, strict=True)
        )
        # 1/a² of each pair of variables, of each component
        self.inverses, unit = [], 1.0
        for one in self.components:
            inverse = np.empty(one.range.shape)
            for i, j in np.ndindex(*inverse.shape):
                matern = model.correlation_of(one, i, j)
                _, unit, inverse[i, j] = scale_of(matern, self.metric, box)
            self.inverses.append(inverse)
        points = (of_rows, of_columns)
        self.x, self.y = (np.ascontiguousarray((part / unit).T) for part in points)
        extent = np.ptp(np.hstack((self.x, self.y)), axis=1).max()
        few = max(len(self.a), len(self.b))

        def octaves(inverse):
            return octaves_of(extent, len(self.x), few, self.metric, inverse)

        self.octaves = [
            (octaves(inverse.min())[0], octaves(inverse.max())[1]) for inverse in self.inverses
        ]
        variables = (one.variable for one in (self.a, self.b))
        self.kinds = tuple(np.ascontiguousarray(one, dtype=np.int64) for one in variables)

    def write(self, what, rows, columns, out, *, triangle=False):
        """Write a block; see `DensePairs.write`."""
        terms = [(k, "correlation", one.amplitude) for k, one in enumerate(self.components)]
        self._write(terms, rows, columns, out, triangle)

    def _write(self, terms, rows, columns, out, triangle=False):
        """Write the sum of terms: component, function, and amplitudes (p, p)."""
        if not self.tabulated:
            values = sum(self._by_formula(*term, rows, columns) for term in terms)
            below = np.arange(rows.start, rows.stop)[:, None] >= np.arange(
                columns.start, columns.stop
            )
            np.copyto(out, values, where=below if triangle else True)
            return
        stride = out.strides[1] // out.itemsize
        count = (out.shape[1] - 1) * stride + out.shape[0]
        flat = np.lib.stride_tricks.as_strided(out, (count,), (out.itemsize,))
        offset = -rows.start - columns.start * stride
        single = out.dtype == np.float32
        first = 0 if triangle else -self.y.shape[1]
        fill = loops().fill_by_variable
        for number, (k, what, amplitude) in enumerate(terms):
            further = 0
            while True:
                table, starts, base, lowest = self.tables(k, what, single, further)
                kinds = *self.kinds, self.inverses[k], starts, amplitude.astype(out.dtype)
                missed = fill(
                    *(self.x, rows.start, rows.stop, self.y, columns.start, columns.stop),
                    rows=table,
                    base=base,
                    first=first,
                    out=flat,
                    offset=offset,
                    stride=stride,
                    kinds=kinds,
                    add=number > 0,
                )
                if not missed or lowest:
                    break
                if number > 0:
                    # what was added so far is not the sum: begin again with longer tables
                    low, high = self.octaves[k]
                    self.octaves[k] = low - further - FURTHER_OCTAVES, high
                    self._write(terms, rows, columns, out, triangle)
                    return
                further += FURTHER_OCTAVES
            if further:
                low, high = self.octaves[k]
                self.octaves[k] = low - further, high

    def tables(self, k, what, single, further=0):
        """Return the polynomials of a component's pairs, where each pair's begin, and the end.

        These are (rows, 8) or (rows, 3), (p, p), the first interval, and whether there is no lower
        octave.
        """
        low, high = self.octaves[k]
        one, known = self.components[k], {}
        starts = np.empty(one.smoothness.shape, dtype=np.uint64)
        lowest, split = True, SPLIT_FP32 if single else SPLIT
        low, blocks, base = max(low - further, LOWEST_OCTAVE), [], 0
        for i, j in np.ndindex(*starts.shape):
            nu = one.smoothness[i, j]
            if nu not in known:
                matern = self.model.correlation_of(one, i, j)
                table = table_of(matern, low, high)
                lowest &= table.low <= LOWEST_OCTAVE
                rows, base = table.polynomials(what, single)
                # other models may have made a longer table
                skipped = (low - table.low) << split
                base += skipped
                known[nu] = sum(map(len, blocks))
                blocks.append(np.vstack((rows[:1], rows[1 + skipped :])))
            starts[i, j] = known[nu]
        least = min(map(len, blocks))
        rows = np.vstack([block[:least] for block in blocks])
        order = {start: k * least for k, start in enumerate(known.values())}
        starts = np.vectorize(order.get)(starts.astype(np.int64)).astype(np.uint64)
        return rows, (starts, least), base, lowest

    @property
    def summable(self):
        """Whether loops can sum over pairs of locations with the derivatives."""
        return self.tabulated and loops().add_pairs is not None

    def numbers_for(self, names, further=0):
        """Return what kernels of Vecchia's approximation need for derivatives by some parameters.

        These are the tables of the functions, (F, rows, 8), with the three of `MATERN_FUNCTIONS` if
        there are names, else the correlation; the rows of one table and their first interval; for
        each pair of variables and each component 1/a², the amplitude, the row where its tables
        begin and the factors of the derivatives, (p, p, C, R, 8); which parameter and which
        function each factor is of, (E, 2); and whether there is no lower octave.
        """
        # all components have the same octaves
        low, high = min(low for low, _ in self.octaves), max(high for _, high in self.octaves)
        self.octaves = [(low, high)] * len(self.octaves)
        functions = MATERN_FUNCTIONS if names else MATERN_FUNCTIONS[:1]
        used = [
            (k, f)
            for k, name in enumerate(names)
            for f in range(len(MATERN_FUNCTIONS))
            if any(one.factors(name)[f] is not None for one in self.components)
        ]
        count, p = len(self.components), len(self.components[0].amplitude)
        rows = -(-(3 + len(used)) // 8)
        numbers, stacks, lowest, before = np.zeros((p, p, count, rows * 8)), [], True, 0
        for c, one in enumerate(self.components):
            tables = [self.tables(c, what, False, further) for what in functions]
            _, (starts, length), base, end = tables[0]
            lowest &= end
            stacks.append([table[0] for table in tables])
            numbers[:, :, c, 0], numbers[:, :, c, 1] = self.inverses[c], one.amplitude
            numbers[:, :, c, 2] = starts + np.uint64(before)
            before += len(tables[0][0])
            for e, (k, f) in enumerate(used):
                factors = one.factors(names[k])[f]
                numbers[:, :, c, 3 + e] = 0.0 if factors is None else factors
        whole = np.array([np.vstack(stack) for stack in zip(*stacks, strict=True)])
        entries = np.array(used, dtype=np.int64).reshape(-1, 2)
        return whole, (length, base), numbers.reshape(p, p, count, rows, 8), entries, lowest

    def stacked(self, k, functions, further=0):
        """Return the polynomials of some functions for each two observed variables; see `tables`.

        These are (p, p, F, K + 2, 8), the first interval, and whether there is no lower octave.
        """
        tables = [self.tables(k, what, False, further) for what in functions]
        _, (starts, length), base, lowest = tables[0]
        count = self.model.variables
        rows = np.empty((count, count, len(functions), length, tables[0][0].shape[1]))
        for i, j in np.ndindex(count, count):
            first = int(starts[i, j])
            rows[i, j] = [table[0][first : first + length] for table in tables]
        return rows, base, lowest

    def reach(self, further):
        """Let all later tables reach so many octaves further, to closer pairs."""
        self.octaves = [(low - further, high) for low, high in self.octaves]

    def extend(self):
        """Extend the range of later tables towards closer pairs; False if that is not possible."""
        low = min(low for low, _ in self.octaves)
        self.octaves = [(each - FURTHER_OCTAVES, high) for each, high in self.octaves]
        return low > LOWEST_OCTAVE

    def _values(self, what, rows, columns):
        """Evaluate a block of covariances."""
        return self.block(what, rows, columns)

    def block(self, what, rows, columns, index=None):
        """Return a block of covariances; see `DensePairs.block`."""
        if index is not None:
            return super().block(what, rows, columns, index)
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start), order="F")
        self.write(what, rows, columns, out)
        return out

    def _by_formula(self, k, what, amplitude, rows, columns):
        """Evaluate a term by the formula, (n, m)."""
        h = self.metric.between(self.x.T[rows], self.y.T[columns])
        of_rows, of_columns = self.kinds[0][rows], self.kinds[1][columns]
        out = np.empty(h.shape)
        for i, j in np.ndindex(*amplitude.shape):
            where = np.ix_(of_rows == i, of_columns == j)
            matern = self.model.correlation_of(self.components[k], i, j)
            r = h[where] * np.sqrt(self.inverses[k][i, j])
            out[where] = amplitude[i, j] * matern.evaluate(what, r)
        return out

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives for a block of pairs; see `DensePairs.derivatives`."""
        shape, result = (rows.stop - rows.start, columns.stop - columns.start), {}
        for name in names:
            terms = [
                (k, what, factors)
                for k, one in enumerate(self.components)
                for what, factors in zip(MATERN_FUNCTIONS, one.factors(name), strict=True)
                if factors is not None
            ]
            if terms:
                result[name] = np.empty(shape, order="F")
                self._write(terms, rows, columns, result[name])
        if index is None:
            return result
        import cupy

        return {name: cupy.asarray(block) for name, block in result.items()}


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
