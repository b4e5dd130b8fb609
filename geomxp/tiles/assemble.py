"""Assembly of Σ(θ) from locations, on the device where it will be factored.

Only the lower triangle is written. Threads share its blocks. Each entry is computed once, by the
same polynomial in every block.
"""

from math import frexp, prod

import numpy as np

from ..covariance import sums as sums_by_blocks
from ..covariance.distance import power_of_two_near
from ..covariance.generate import panels_of
from ..covariance.inputs import Inputs
from ..linalg.backend import backend_of, device_of
from ..linalg.device import empty_matrix
from ..linalg.formats import FP32, FP64
from ..runtime.devices import in_threads
from .layout import Layout

ASSEMBLY_BLOCK_ROWS = 512
"""Rows and columns of a block: a few milliseconds for one thread."""

STRIP_ENTRIES = 2**18
"""Entries of adjacent small tiles that one call generates for their norms; a call has an overhead
of 50 µs."""


def blocks(n):
    """Yield the lower triangle as slices of rows and columns; see `sums_by_blocks.blocks`."""
    return sums_by_blocks.blocks(n, ASSEMBLY_BLOCK_ROWS)


def covariance_matrix(model, locations, metric, out=None, index=None):
    """Assemble the lower triangle of Σ, (n, n) in Fortran order, in `out` or new memory.

    Σ is the field's covariance with the noise of the observations on the diagonal. The upper
    triangle is not set. `index` is the number of a GPU; the CPU if not given.
    """
    inputs = Inputs.of(locations, metric)
    n, pairs, noise = len(inputs), model.pairs(inputs), model.noise(inputs).variances
    if index is not None:
        sigma = empty_matrix(n, index) if out is None else out
        whole = slice(0, n)
        pairs.write_on_gpu("correlation", whole, whole, sigma, triangle=True, noise=noise)
        return sigma
    return with_noise(_written(pairs, np.empty((n, n), order="F") if out is None else out), noise)


def field_matrix(model, inputs):
    """Return the lower triangle of the field's covariance, (n, n) in Fortran order, in RAM."""
    n = len(inputs)
    return _written(model.pairs(inputs), np.empty((n, n), order="F"))


def with_noise(sigma, noise):
    """Add the variances of the noise, (n,), to the diagonal; return the matrix."""
    sigma.reshape(-1, order="F")[:: len(sigma) + 1] += noise
    return sigma


def _written(pairs, sigma):
    """Write the covariances of the lower triangle; return the matrix."""

    def write(block):
        pairs.write("correlation", *block, sigma[block], triangle=True)

    n = len(sigma)
    in_threads(write, blocks(n), n * n // 2)
    return sigma


def derivative_matrix(model, locations, metric, name, index=None, dtype=np.float64):
    """Return the lower triangle of ∂Σ/∂θ, as `covariance_matrix`, for a correlation parameter.

    Its entries are computed in FP64.
    """
    n, pairs = len(locations), model.pairs(Inputs.of(locations, metric))
    if index is not None:
        import cupy

        derivative = empty_matrix(n, index, dtype)
        with cupy.cuda.Device(index):
            for block in sums_by_blocks.blocks(n):
                derivative[block] = pairs.derivatives(*block, (name,), index)[name]
        return derivative
    derivative = np.empty((n, n), dtype, order="F")

    def write(block):
        derivative[block] = pairs.derivatives(*block, (name,))[name]

    in_threads(write, blocks(n), n * n // 2)
    return derivative


def diagonal_matrix(diagonal, n, index=None, dtype=np.float64):
    """Return a diagonal matrix, (n, n) in Fortran order, in RAM or on a GPU."""
    diagonal = np.asarray(diagonal, dtype)
    if index is None:
        return with_noise(np.zeros((n, n), dtype, order="F"), diagonal)
    matrix = empty_matrix(n, index, dtype)
    with device_of(matrix):
        matrix[...] = 0.0
        return with_noise(matrix, backend_of(matrix).put(diagonal, matrix))


def norms_of(generator):
    """Return the Frobenius norms of all tiles, (T, T), zeros above the diagonal."""
    layout = generator.layout
    squares = np.zeros((layout.tiles, layout.tiles))
    squares[tuple(np.transpose(layout.lower))] = generator.squares(layout.lower)
    return np.sqrt(squares)


def norms_of_groups(originals):
    """Return the norms of all cells, computed by groups of cells that always belong to one block.

    The squared norm of a group is divided among its cells in proportion to their areas, so that
    sums over blocks are unchanged.
    """
    layout, (*about, _) = originals.layout, originals.source
    side, heights = layout.joined, layout.heights
    groups = Originals(*about, Layout(layout.n, layout.tile * side), originals.index)
    of_cell = np.arange(layout.tiles) // side
    cells = of_cell[:, None], of_cell
    areas = np.outer(heights, heights) / np.outer(*2 * (groups.layout.heights,))[cells]
    norms = np.tril(groups.norms()[cells] * np.sqrt(areas))
    # on the diagonal there are single cells
    single = [(i, k) for i, k in layout.lower if of_cell[i] == of_cell[k]]
    norms[tuple(np.transpose(single))] = np.sqrt(originals.squares(single))
    return norms


def _inside(rows, start):
    """Return a slice of some rows as one of those from `start` on."""
    return slice(rows.start - start, rows.stop - start)


class Originals:
    """Generator of the tiles of A, Σ(θ) = 4^e A; it stores none of them.

    The diagonal of A is near 1, so that values in any unit are within FP32's range. Locations are
    in an order that keeps neighbours together, see `covariance.ordering`. `index` is the number of
    the GPU that generates the tiles; the CPU if not given.
    """

    def __init__(self, model, locations, metric, layout, index=None):
        inputs = Inputs.of(locations, metric)
        noise = model.noise(inputs).variances
        exponent = frexp(model.largest_variance + float(np.max(noise)))[1] // 2
        # in two steps, because 4^e may overflow
        unit = 2.0**-exponent
        self.exponent, self.layout, self.index = exponent, layout, index
        self.source = model, locations, metric, layout
        self.model = model.scaled(unit).scaled(unit)
        self.noise = noise * unit * unit
        self.pairs = self.model.pairs(inputs)

    def on(self, index):
        """Return the same on another device."""
        return Originals(*self.source, index)

    def tile(self, i, k, form=FP64, careful=False, out=None, missed=None):
        """Return A_ik as an FP64 or FP32 array in Fortran order; diagonal tiles are whole.

        It is written to `out` if given. `careful` generates in FP64 and rounds, which costs a third
        more than generation in FP32. With `missed`, a row of `missed_pairs()`, the CPU does not
        wait to learn whether the table of correlations reaches all pairs: if it does not, the tile
        is wrong and the row is not 0.
        """
        if careful and form is not FP64:
            fine = self.tile(i, k, missed=missed)
            backend = backend_of(fine)
            out = backend.empty(fine.shape, form.dtype, fine) if out is None else out
            backend.assign(out, fine)
            return out
        if self.index is not None:
            return self._tile_on_gpu(i, k, form, out, missed)
        out = np.empty(self.layout.shape(i, k), form.dtype, order="F") if out is None else out
        self.pairs.write("correlation", self.layout.rows(i), self.layout.rows(k), out)
        return self._with_noise(out, self.layout.rows(i)) if i == k else out

    def _with_noise(self, block, rows):
        """Add the variance of the noise to a diagonal block of some rows; return it."""
        return with_noise(block, np.asarray(self.noise[rows], block.dtype))

    def entries(self, rows, columns):
        """Return A[rows, columns], two slices without common locations, on the CPU in FP64."""
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start), order="F")
        self.pairs.write("correlation", rows, columns, out)
        return out

    def block(self, rows, columns, form=FP64, panels=None):
        """Return A[rows, columns], two slices, as accurate as a format needs.

        Fortran order; FP32 for coarser formats, else FP64: the error of generation in FP32 exceeds
        the rounding of FP32. With `panels`, two buffers (see `pairs.write_on_gpu`), the CPU does
        not wait for missed pairs.
        """
        dtype = FP32.dtype if form.coarse else FP64.dtype
        shape = rows.stop - rows.start, columns.stop - columns.start
        if self.index is not None:
            import cupy

            with cupy.cuda.Device(self.index):
                out = cupy.empty(shape, dtype, order="F")
                where = {"noise": self.noise, "panels": panels}
                self.pairs.write_on_gpu("correlation", rows, columns, out, **where)
            return out
        out = np.empty(shape, dtype, order="F")

        def write(some):
            part = slice(some.start - rows.start, some.stop - rows.start)
            self.pairs.write("correlation", some, columns, out[part])

        starts = range(rows.start, rows.stop, ASSEMBLY_BLOCK_ROWS)
        parts = [slice(first, min(first + ASSEMBLY_BLOCK_ROWS, rows.stop)) for first in starts]
        in_threads(write, parts, prod(shape))
        return self._with_noise(out, rows) if rows == columns else out

    def diagonal(self):
        """Return the diagonal of A, (n,) in FP64, on the device of the blocks."""
        inputs = Inputs.of(self.source[1], self.source[2])
        diagonal = self.model.diagonal(inputs) + self.noise
        if self.index is None:
            return diagonal
        import cupy

        with cupy.cuda.Device(self.index):
            return cupy.asarray(diagonal)

    def _tile_on_gpu(self, i, k, form, out, missed, squares=None):
        import cupy

        layout = self.layout
        with cupy.cuda.Device(self.index):
            out = cupy.empty(layout.shape(i, k), form.dtype, order="F") if out is None else out
            panels = None
            if missed is not None:
                count = panels_of(*layout.shape(i, k))
                squares = cupy.empty(count) if squares is None else squares[:count]
                panels = squares, missed[:count]
            self.pairs.write_on_gpu(
                *("correlation", layout.rows(i), layout.rows(k), out),
                **{"noise": self.noise, "panels": panels},
            )
        return out

    def missed_pairs(self, tiles):
        """Return zeroed counters of missed pairs on the GPU, one row per tile; see `tile`."""
        import cupy

        width = self.layout.height(0)
        with cupy.cuda.Device(self.index):
            return cupy.zeros((tiles, panels_of(width, width)), np.int32)

    def check_memory(self):
        """Raise `NotEnoughMemory` if tiles fit in no format: here a `Placement` checks that."""

    def extend(self):
        """Extend the table of correlations to closer pairs; return whether that is possible."""
        return self.pairs.extend()

    def norms(self):
        """Return the Frobenius norms of all tiles; see `norms_of`."""
        return norms_of(self)

    def norms_for(self, rule):
        """Return the norms that a precision rule needs: by groups of cells if it joins cells."""
        grouped = self.layout.joined > 1 and rule.joins
        return norms_of_groups(self) if grouped else self.norms()

    def squares(self, pairs):
        """Return the squared Frobenius norms of tiles."""
        if self.index is not None:
            return self._squares_on_gpu(pairs)
        from ..linalg.loops import sum_of_squares

        def squares(strip):
            # neighbouring tiles are columns of one array
            (i, first), (_, last) = strip[0], strip[-1]
            rows, start = self.layout.rows(i), self.layout.rows(first).start
            columns = slice(start, self.layout.rows(last).stop)
            block = np.empty((self.layout.height(i), columns.stop - start), FP32.dtype, order="F")
            self.pairs.write("correlation", rows, columns, block)
            tiles = [block[:, _inside(self.layout.rows(k), start)] for _, k in strip]
            if first <= i <= last:
                self._with_noise(tiles[i - first], rows)
            return [sum_of_squares(tile.reshape(-1, order="F")) for tile in tiles]

        strips = list(self._strips(pairs))
        return [
            each for found in in_threads(squares, strips, self.layout.n**2 // 2) for each in found
        ]

    def _strips(self, pairs):
        """Yield neighbouring tiles of one block row, as many as `STRIP_ENTRIES` allow."""
        strip, most = [], max(1, STRIP_ENTRIES // self.layout.tile**2)
        for i, k in pairs:
            if strip and (strip[-1] != (i, k - 1) or len(strip) == most):
                yield strip
                strip = []
            strip.append((i, k))
        if strip:
            yield strip

    def _squares_on_gpu(self, pairs):
        """Do the same on a GPU; the CPU waits once."""
        import cupy

        layout, first = self.layout, self.layout.height(0)
        with cupy.cuda.Device(self.index):
            work = cupy.empty(first * first, FP32.dtype)
            while True:
                missed = self.missed_pairs(len(pairs))
                squares = cupy.zeros(missed.shape)
                for (i, k), wrong, sums in zip(pairs, missed, squares, strict=True):
                    shape = layout.shape(i, k)
                    out = work[: prod(shape)].reshape(shape, order="F")
                    self._tile_on_gpu(i, k, FP32, out, wrong, sums)
                totals = cupy.empty(len(pairs) + 1)
                totals[:-1] = squares.sum(axis=1)
                totals[-1] = missed.sum()
                totals = totals.get()
                if not (totals[-1] and self.extend()):
                    return totals[:-1]


def originals(model, locations, metric, tile=None, index=None):
    """Return `Originals`, by default with the usual size of tiles for the number of locations."""
    return Originals(model, locations, metric, Layout.of(len(locations), tile), index)


# Estimate of diag(Σ⁻¹) from nearest neighbours.


PRECISION_NEIGHBOURS = 20
MOST_PRECISION_LOCATIONS = 4096
"""Locations in the estimate at most: every k-th one of a large set."""

CLUMP_SPACING_SHARE, CLUMP_PRECISION_RATIO = 0.1, 3.0
"""A location is in a clump if the last neighbour is nearer than this part of that distance in the
sparsest block row; it matters if its precision is so many times that of the least precise row."""


def conditional_precisions(originals, locations, metric):
    """Estimate p_i = Σ (Σ⁻¹)_qq over the locations q of each block row, (T,), and find clumps.

    Block rows with locations of a clump much denser than the other locations count with the largest
    precision in place of the mean: entries next to the clump are the largest in their tiles, so
    that errors and precisions do not average independently. Returns also which block rows these
    are, (T,) of bool.

    1/(Σ⁻¹)_qq is the variance of z_q given all other values. The variance given the nearest
    neighbours alone is slightly larger. Locations are in the order of the tiles.
    """
    from scipy.spatial import cKDTree

    model, layout = originals.model, originals.layout
    points = model.isotropic(locations, metric)
    # squares of coordinates near 1 neither overflow nor vanish
    unit = power_of_two_near(float(np.abs(points).max()))
    points = points / unit
    # every k-th location, and at least one of each block row
    every = max(1, layout.n // MOST_PRECISION_LOCATIONS)
    some = np.union1d(np.arange(0, layout.n, every), np.arange(0, layout.n, layout.tile))
    apart, near = cKDTree(points).query(points[some], min(PRECISION_NEIGHBOURS, layout.n))
    apart, near = (array.reshape(len(some), -1) for array in (apart, near))
    # the location itself last, even if others coincide with it
    itself = near == some[:, None]
    near = np.take_along_axis(near, np.argsort(itself, axis=1, kind="stable"), axis=1)
    near = np.column_stack((near[:, :-1], some))
    if model.of_distance:
        sets = _correlated(model, points[near], unit)
    else:
        inputs = Inputs.of(locations, metric)
        sets = np.array([model.matrix(inputs[rows], inputs[rows]) for rows in near])
    noise = originals.noise[near]
    precision = _precisions(sets + noise[:, :, None] * np.eye(near.shape[1]))
    block = some // layout.tile
    mean, rows = np.bincount(block, precision) / np.bincount(block), np.arange(layout.tiles)
    spacing = max(np.median(apart[block == i, -1]) for i in rows)
    dense = (apart[:, -1] < CLUMP_SPACING_SHARE * spacing) & (
        precision > CLUMP_PRECISION_RATIO * mean.min()
    )
    largest = np.zeros(layout.tiles)
    np.maximum.at(largest, block[dense], precision[dense])
    return np.maximum(mean, largest) * [layout.height(i) for i in rows], largest > 0


def _correlated(model, points, unit):
    """Return C of many small sets of points, (b, m, d), whose coordinates are in this unit."""
    apart = unit * np.linalg.norm(points[:, :, None] - points[:, None], axis=3)
    return model.variance * model.correlation(apart)


def _precisions(sigma):
    """Return 1 / var(z_m given z_1, ..., z_(m-1)) = (Σ⁻¹)_mm for many small Σ, (b, m, m).

    The variance is the square of the last entry of a Cholesky factor, bounded by FP64's rounding.
    """
    least = sigma.shape[1] * 2.0**-53 * np.trace(sigma, axis1=1, axis2=2)
    try:
        return 1.0 / np.maximum(np.linalg.cholesky(sigma)[:, -1, -1] ** 2, least)
    except np.linalg.LinAlgError:
        # some are singular to working precision
        values, vectors = np.linalg.eigh(sigma)
        return np.sum(vectors[:, -1] ** 2 / np.maximum(values, least[:, None]), axis=1)
