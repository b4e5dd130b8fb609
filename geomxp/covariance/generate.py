"""Covariances and their derivatives between places, written where they are wanted.

Up to ν = 50 from the table of `geomxp.covariance.table`, at the speed of memory; above, by the
formula. The pairs of places that a table does not reach extend it.
"""

import warnings
from functools import cache
from math import frexp

import numpy as np

from ..covariance import matern
from ..cuda import module
from ..errors import GeomxpWarning, InvalidInput, MissingPackage
from ..linalg.device import copy_on_gpu
from ..runtime.devices import in_threads
from .distance import EARTH_RADIUS, between, embed, power_of_two_near
from .table import LARGEST_SMOOTHNESS, LOWEST, correlation_table

WIDTH = 512
"""Columns that one thread takes at a time."""

THREADS, PANEL_ROWS, PANEL_COLUMNS = 256, 512, 32
"""How cuda/matern.cu shares a tile among its blocks of threads."""

SHARED_BYTES = 46 * 1024
"""For a table in a GPU's shared memory, of the 48 KiB that every GPU grants without asking."""

GPU_FORMATS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}


@cache
def _loops():
    """Return the module with the CPU's loops: compiled by numba, or NumPy's if it is missing."""
    try:
        from . import kernel as loops
    except MissingPackage:
        from . import kernel_numpy as loops

        warnings.warn(
            "numba cannot be imported: covariances on the CPU are computed by NumPy, about ten "
            "times slower. To install numba: pip install numba.",
            GeomxpWarning,
            stacklevel=3,
        )
    return loops


def box_of(*points):
    """Return the lowest and the highest coordinates of some points, (2, d)."""
    lows, highs = zip(*((part.min(axis=0), part.max(axis=0)) for part in points), strict=True)
    return np.array((np.min(lows, axis=0), np.max(highs, axis=0)))


def scale_of(model, metric, box):
    """Return what makes points of places, A(x - middle)/unit, and 1/a² for their differences.

    Parameters
    ----------
    model : Matern
    metric : str
    box : (2, d) ndarray
        Lowest and highest coordinates of the places, as `embed` gives them.

    Returns
    -------
    middle : float or (d,) ndarray
    unit, inverse : float
    """
    low, high = box
    # differences of coordinates near 1 have squares, and powers of two change no digit
    unit = 1.0
    if metric == "euclidean":
        unit = 4 * power_of_two_near(float((high / 4 - low / 4).max()))
    # a linear map rounds coordinates, and less so near the origin
    middle = 0.0 if model.anisotropy is None else low / 2 + high / 2
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.float64(unit) / model.range
        inverse = float(min(ratio * ratio, 1e300))
    return middle, unit, inverse


def octaves_of(extent, dimensions, few, metric, inverse):
    """Return the octaves of s that `few` places probably have; a miss extends them.

    Parameters
    ----------
    extent : float
        The largest difference of two points in a coordinate.
    dimensions : int
        Of the points.
    few : int
    metric : str
    inverse : float
        1/a².
    """
    extent = max(extent, 1e-300)
    longest = extent**2 * dimensions * inverse
    if metric == "great-circle":
        # an arc is at most π/2 chords
        longest = min(longest * 2.5, (np.pi * EARTH_RADIUS) ** 2 * inverse)
    high = frexp(max(longest, 1e-300))[1]
    # n places of d dimensions: their shortest distance is seldom below extent/(8 n^(2/d))
    return high - 6 - int(np.ceil(4 / dimensions * np.log2(few + 1))), high


class Generator:
    """All that one model says of the pairs of two sets of places.

    Parameters
    ----------
    model : Matern
    metric : str
    a : (n, d) ndarray
        Places of the rows.
    b : (m, d) ndarray, optional
        Places of the columns; a if not given.
    box : (2, d) ndarray, optional
        Lowest and highest coordinates of all places of which these are a part, as `embed` gives
        them: parts with one box have the bits of the whole. Of a and b if not given.
    """

    def __init__(self, model, metric, a, b=None, box=None):
        self.model, self.metric = model, metric
        a = embed(np.asarray(a, dtype=np.float64), metric)
        b = a if b is None else embed(np.asarray(b, dtype=np.float64), metric)
        self.symmetric = b is a
        middle, unit, self.inverse = scale_of(model, metric, box_of(a, b) if box is None else box)
        self.x = self._points(a, middle, unit)
        self.y = self.x if self.symmetric else self._points(b, middle, unit)
        extent = np.ptp(np.hstack((self.x, self.y)), axis=1).max()
        few = max(self.x.shape[1], self.y.shape[1])
        self.octaves = octaves_of(extent, len(self.x), few, metric, self.inverse)
        self._read = {}

    def _points(self, places, middle, unit):
        points = (places - middle) / unit
        if self.model.anisotropy is not None:
            points = points @ self.model.anisotropy.matrix().T
        return np.ascontiguousarray(points.T)

    def write(self, what, rows, columns, out, *, triangle=False, place=None):
        """Write a block of values, in the column-major order of `out`.

        Parameters
        ----------
        what : {"correlation", "by_smoothness", "slope"}
            σ²ρ, σ²∂ρ/∂ν or σ²r dρ/dr.
        rows, columns : slice
        out : 2-D ndarray, Fortran order, of FP64 or FP32
            The whole matrix; or the block itself where `place` is (0, 0).
        triangle : bool
            Leave out what stands above the diagonal of the whole matrix.
        place : (int, int), optional
            Where in `out` the block starts; at its rows and columns if not given.
        """
        i, j = (rows.start, columns.start) if place is None else place
        if self.model.smoothness > LARGEST_SMOOTHNESS:
            block = self._by_formula(what, rows, columns)
            out[i : i + block.shape[0], j : j + block.shape[1]] = block
            return
        flat = out.reshape(-1, order="F")
        stride = len(out)
        offset = (i - rows.start) + (j - columns.start) * stride
        single = out.dtype == np.float32
        first = 0 if triangle else -self.y.shape[1]
        kernel_numpy = _loops()
        low, high = self.octaves
        while True:
            table = correlation_table(self.model.smoothness, low, high)
            missed = (kernel_numpy.fill_fp32 if single else kernel_numpy.fill)(
                *(self.x, rows.start, rows.stop, self.y, columns.start, columns.stop),
                *(self.inverse, self.metric == "great-circle"),
                getattr(table, what + ("_fp32" if single else "")),
                table.base_fp32 if single else table.base,
                out.dtype.type(self.model.variance),
                *(first, flat, offset, stride),
            )
            # below the lowest octave 1 - ρ is below the rounding of 1 but for ν near 0
            if not missed or table.low <= LOWEST:
                return
            low = table.low - 20
            self.octaves = low, high

    def write_on_gpu(
        self,
        what,
        rows,
        columns,
        out,
        *,
        triangle=False,
        place=None,
        scale=1.0,
        nugget=0.0,
        panels=None,
    ):
        """Write a block of values on a GPU, as `write` does on the CPU.

        Parameters
        ----------
        what : {"correlation", "by_smoothness", "slope"}
            The two derivatives in FP64 only.
        rows, columns : slice
        out : 2-D cupy.ndarray, Fortran order, of FP64, FP32, FP16, or uint8 for FP8 (E4M3)
            The whole matrix; or the block itself where `place` is (0, 0).
        triangle, place
            As for `write`.
        scale : float
            A power of two by which the values are multiplied before they are rounded to `out`.
        nugget : float
            Added where a row's number is the column's.
        panels : (FP64 cupy.ndarray, int32 cupy.ndarray), optional
            Buffers with an entry for each panel of the block (see `panels_of`), for the sums of
            squares and the counts of missed pairs. The CPU then does not wait to learn whether the
            table must be extended; see `extend`.

        Returns
        -------
        cupy.ndarray, () or None
            Squared Frobenius norm of what was written, before scale and rounding; on the GPU.
            None if panels are given.

        Raises
        ------
        InvalidInput
            If the smoothness has no table.
        """
        if self.model.smoothness > LARGEST_SMOOTHNESS:
            raise InvalidInput(
                f"On a GPU `smoothness` must be at most {LARGEST_SMOOTHNESS:g}. "
                f'Got {self.model.smoothness:g}: try on="cpu".'
            )
        i, j = (rows.start, columns.start) if place is None else place
        stride = out.strides[1] // out.itemsize
        form = GPU_FORMATS[out.dtype.name]
        single, real = ("", np.float64) if form == "fp64" else ("_fp32", np.float32)
        low, high = self.octaves
        with out.device:
            pairs = (
                *(copy_on_gpu(self.x), self.x.shape[1], copy_on_gpu(self.y), self.y.shape[1]),
                *(len(self.x), rows.start, rows.stop, columns.start, columns.stop),
                *(self.inverse, int(self.metric == "great-circle")),
            )
            entries = (
                *(real(self.model.variance), real(nugget), real(scale)),
                *(0 if triangle else -self.y.shape[1], out),
                *((i - rows.start) + (j - columns.start) * stride, stride),
            )
            while True:
                table = correlation_table(self.model.smoothness, low, high)
                # kernels may still read its copy when another table has taken its place
                self._read[id(table)] = table
                polynomials, base = getattr(table, what + single), getattr(table, "base" + single)
                squares, missed = _launch(form, pairs, polynomials, base, entries, panels)
                if panels is not None:
                    return None
                if table.low <= LOWEST or not int(missed.sum()):
                    return squares.sum()
                low = table.low - 20
                self.octaves = low, high

    def extend(self):
        """Extend the range of later tables towards closer pairs; False if that is not possible."""
        low, high = self.octaves
        self.octaves = low - 20, high
        return low > LOWEST

    def _by_formula(self, what, rows, columns):
        """As `write`, for a smoothness without table."""
        nu, variance = self.model.smoothness, self.model.variance
        h = between(self.x.T[rows], self.y.T[columns], self.metric)
        r = np.minimum(h * np.sqrt(self.inverse), 1e4 * nu)
        function = {
            "correlation": matern.correlation,
            "by_smoothness": matern.correlation_by_smoothness,
            "slope": matern.correlation_slope,
        }[what]
        return variance * function(r, nu)

    def block(self, what, rows, columns, index=None):
        """Return a block of values, Fortran order, on the CPU or a GPU; see `write`."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        if index is None:
            out = np.empty(shape, order="F")
            self.write(what, rows, columns, out, place=(0, 0))
            return out
        import cupy

        with cupy.cuda.Device(index):
            out = cupy.empty(shape, order="F")
            self.write_on_gpu(what, rows, columns, out, place=(0, 0))
        return out

    def covariance(self, index=None):
        """Return σ²ρ for all pairs, (n, m) in Fortran order.

        It is computed on the GPU number `index`, or on the CPU, where threads share the columns.
        """
        n, m = self.x.shape[1], self.y.shape[1]
        if index is not None:
            return self.block("correlation", slice(0, n), slice(0, m), index)
        out = np.empty((n, m), order="F")
        panels = [slice(j, min(j + WIDTH, m)) for j in range(0, m, WIDTH)]
        in_threads(lambda p: self.write("correlation", slice(0, n), p, out), panels, n * m)
        return out

    def derivatives(self, rows, columns, names, index=None):
        """Return the derivatives of the field's covariance for a block of pairs.

        Parameters
        ----------
        rows, columns : slice
        names : sequence of str
            Parameters, the nugget left out.
        index : int, optional
            Number of the GPU where they are wanted, which must be the current one.

        Returns
        -------
        dict of str to array
        """
        model, result, where = self.model, {}, (rows, columns, index)
        if "variance" in names:
            result["variance"] = self.block("correlation", *where) / model.variance
        if "smoothness" in names:
            result["smoothness"] = self.block("by_smoothness", *where)
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
        back = np.linalg.inv(self.model.anisotropy.matrix())
        pairs = zip(("angle", "ratio"), self.model.anisotropy.matrix_derivatives(), strict=True)
        for name, matrix in pairs:
            if f"anisotropy_{name}" in names:
                change = (matrix @ back).tolist()
                inner = sum(change[i][j] * apart[i] * apart[j] for i in (0, 1) for j in (0, 1))
                result[f"anisotropy_{name}"] = share * inner
        return result


def panels_of(rows, columns):
    """Return the number of panels of a block with these numbers of rows and columns."""
    return (-(-rows // PANEL_ROWS)) * (-(-columns // PANEL_COLUMNS))


def _launch(form, pairs, polynomials, base, entries, given=None):
    """Start the kernel; return the sum of squares and the number of missed pairs by panel."""
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
    module("matern.cu").get_function(f"covariances_{form}")(
        (max(1, min(panels, 4 * processors)),),
        (THREADS,),
        (
            *(*pairs, copy_on_gpu(polynomials), len(polynomials), base, staged),
            *(*entries, squares, missed),
        ),
        shared_mem=staged * row_bytes,
    )
    return squares, missed
