"""Predicted cost of a method: seconds and bytes, before anything is computed.

Operations are counted and divided by the rate of this machine, which one small factorization
measures once per process. Predictions are right within a factor of 2 to 3 for tens of cores at
most; time for compiling loops in the first run, and for copies to a disk, comes in addition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ..covariance import sums
from ..errors import InvalidInput
from ..linalg import recursive
from ..runtime.devices import (
    blas_threads,
    bytes_of,
    free_memory,
    human_bytes,
    is_cluster,
    require_memory,
    resolve_all,
    usable_cores,
)

if TYPE_CHECKING:
    from .base import Likelihood

TIMED_ORDER, TIMED_FACTORIZATIONS = 768, 3
"""Order of the matrix whose factorization gives the rate, and how often it is factored."""

EXACT_EVALUATIONS, VECCHIA_EVALUATIONS, BOBYQA_EVALUATIONS = 8, 15, 100
"""Typical numbers of evaluations of a fit: by Fisher scoring, exact (where the start is the maximum
of Vecchia's approximation) and by Vecchia's approximation; by BOBYQA, without derivatives."""

DEFAULT_NEIGHBOURS = 30
"""Neighbours of Vecchia's approximation where none are given."""

START_SEARCH_OPERATIONS, START_SEARCH_LOCATIONS = 1.5e10, 450
"""Operations that find the starts of a search, at this many locations or more; fewer below."""

TABLE_OPERATIONS = 3e8
"""Operations that make the table of a correlation and its derivatives."""

PAIR_OPERATIONS = 2000
"""Operations, at the rate of a factorization, for the covariance of two locations and its
derivatives by the parameters."""

NEIGHBOUR_PAIR_OPERATIONS, LOCATION_OPERATIONS = 190, 1e4
"""Operations of Vecchia's approximation for two neighbours of a location, beside those of the
factorization of its block; and for a location."""

SIMULATION_EVALUATIONS, SIMULATION_OPERATIONS = 24, 2.5e6
"""Standard errors of Vecchia's approximation come from simulated data sets, which cost this many
evaluations and operations for each location."""

OBSERVED_INFORMATION_EVALUATIONS = 1
"""Evaluations that the observed information costs, beside one for each parameter."""

BLOCKS_PER_THREAD = 8
"""Blocks of Vecchia's approximation that a thread factors at one time."""

ORDERING_OPERATIONS, NEIGHBOUR_SEARCH_OPERATIONS = 2e5, 8e3
"""Operations that order a location, and that find one of its neighbours."""

GPU_DERIVATIVE_BLOCKS = 16
"""Blocks of derivatives that a GPU computes at one time."""

LEAST_PANEL_COLUMNS = 256
"""Columns of Σ⁻¹ that are solved for together: with fewer, reading the tiles takes longer than the
arithmetic."""

PANEL_BYTES, PANEL_BYTES_PER_CORE = 2**23, 2**21
"""Memory of blocks of covariances and their derivatives beside a panel, for each parameter: at
least, and for each core."""


@dataclass(frozen=True)
class Cost:
    """Predicted cost of a method for one data set.

    Parameters
    ----------
    seconds_of_evaluation : float or None
        Wall-clock time of the log-likelihood with score and information at one model. None for GPUs
        and clusters, whose rates are not measured.
    seconds_of_fit : float or None
        Wall-clock time of a fit with the typical number of evaluations, starts and standard errors
        included.
    bytes : int
        Memory that the method needs at least: of the machine, of the device, or of all workers of a
        cluster together. If there is room, standard errors of the exact method use a matrix more
        for each parameter.
    fits : bool or None
        Whether so many bytes, and the disk behind them, are free now; None for a cluster.
    """

    seconds_of_evaluation: float | None
    seconds_of_fit: float | None
    bytes: int
    fits: bool | None

    def __str__(self) -> str:
        size = human_bytes(self.bytes)
        if self.seconds_of_fit is None:
            return size
        return f"{in_words(self.seconds_of_fit)} and {size}"


def predicted_cost(method: Likelihood, n: int, dimensions: int = 2, free: int = 4) -> Cost:
    """Predict the seconds and the bytes of a method.

    Exact: n³/3 operations for the factorization, 2n³/3 for Σ⁻¹, which the score needs, and the
    covariances of n²/2 pairs of locations. A fit has about 8 evaluations, and the observed
    information, which costs about one evaluation more than it has parameters. Where tiles leave no
    memory for 256 columns of Σ⁻¹, it has about 100 evaluations without derivatives. A method of
    your own counts as exact.

    Vecchia's approximation with m neighbours: n·m³ operations for the blocks, and the covariances
    of n·m² pairs. A fit has about 15 evaluations; its standard errors cost about 24.

    Parameters
    ----------
    method : Likelihood
    n : int
        Number of locations.
    dimensions : int
        Number of coordinates.
    free : int
        Number of estimated covariance parameters.

    Returns
    -------
    Cost

    Raises
    ------
    NotEnoughMemory
        If a limit of the method's memory is below its minimum.

    Examples
    --------
    >>> import geomxp as gx
    >>> exact = predicted_cost(gx.Exact(), 6_000)
    >>> 288e6 <= exact.bytes < 320e6
    True
    >>> predicted_cost(gx.Vecchia(30), 6_000).bytes < exact.bytes / 10
    True
    """
    if method.approximate:
        return _of_vecchia(method, n, dimensions)
    return _of_exact(method, n, dimensions, free)


def _of_exact(method, n, dimensions, free):
    needed, fits = _bytes_of_exact(method, n)
    if not _measurable(method.on):
        return Cost(None, None, needed, fits)
    scoring = method.dense or _columns(method, n) >= min(n, LEAST_PANEL_COLUMNS)
    return Cost(*_seconds_of_exact(n, dimensions, free, scoring), needed, fits)


def _columns(method, n):
    """Return the columns of Σ⁻¹ for which there is memory; see `ExactEvaluator`."""
    # beside coarse formats Σ⁻¹ is FP32; solves with layers copy their columns, in FP64
    share = 4.0 if method.layers is not None else (0.5 if method.noisy else 1.0)
    if method.memory is not None:
        room = min(free_memory(), bytes_of("memory", method.memory))
    else:
        room = free_memory() - int(4 * min(share, 1.0) * n * (n + 1))
    tile = method.tile if isinstance(method.tile, int) else 1024
    return columns_of_panel(n, room, share=share, tile=tile)


def _seconds_of_exact(n, dimensions=2, free=4, scoring=True):
    """Return the seconds of an evaluation and of a fit."""
    pairs = 0.5 * n**2 * PAIR_OPERATIONS * (8 + dimensions) / 10
    evaluation = n**3 / rate() + (pairs + TABLE_OPERATIONS) / (rate_of_core() * usable_cores())
    evaluations = BOBYQA_EVALUATIONS / 3
    if scoring:
        evaluations = EXACT_EVALUATIONS + OBSERVED_INFORMATION_EVALUATIONS + free
    return evaluation, _starts(n) + evaluations * evaluation


def _bytes_of_exact(method, n):
    """Return the bytes that the exact method needs, and whether they are free."""
    if method.dense:
        gpu = _gpu(method.on)
        free = free_memory() if gpu is None else gpu.free_memory()
        needed = bytes_for(n, 1, gpu)
        return needed, needed <= free
    try:
        plan = method.plan(n)
    except (InvalidInput, OSError):
        # the formats depend on the matrix: at most those of FP64; or a directory does not exist yet
        needed = 4 * n * (n + 1)
        if is_cluster(method.on):
            return needed, None
        if method.memory is not None:
            needed = min(needed, bytes_of("memory", method.memory))
        return needed, needed <= free_memory()
    if plan.behind == "workers":
        return plan.bytes, None
    if plan.behind == "disk":
        needed = sum(plan.budgets)
        return needed, needed <= free_memory() and plan.bytes <= plan.free
    return plan.bytes, plan.bytes <= plan.free


def _of_vecchia(method, n, dimensions):
    needed = _bytes_of_vecchia(n, method.neighbours, dimensions)
    fits = None if is_cluster(method.on) else needed <= free_memory()
    if not _measurable(method.on):
        return Cost(None, None, needed, fits)
    return Cost(*_seconds_of_vecchia(n, method.neighbours), needed, fits)


def _bytes_of_vecchia(n, neighbours, dimensions=2):
    m = min(neighbours, max(n - 1, 0))
    # neighbours and weights, those of draws from a richer approximation, and the columns of draws
    needed = int(n * (12 * (m + max(60, 2 * m)) + 8 * 32 * 4 + 8 * (dimensions + 20)))
    return min(needed, bytes_for(n, 3)) + bytes_of_blocks(m) + 2**24


def bytes_of_blocks(m):
    """Return the bytes of the blocks of m neighbours that all threads factor at one time."""
    # lower triangles of BLOCKS_PER_THREAD blocks in each thread
    return usable_cores() * BLOCKS_PER_THREAD * 8 * m * (m + 1) // 2


def check_neighbours(n: int, neighbours: int, targets: int | None = None) -> None:
    """Raise `NotEnoughMemory` if neighbours of n locations, or of so many targets, do not fit.

    The least memory of a log-likelihood or a prediction: neighbours with their weights, and the
    blocks of each thread.
    """
    m, rows = min(neighbours, n), n if targets is None else targets
    free = free_memory()
    # 12 r m + c m² = free
    square = bytes_of_blocks(10**6) / 1e12
    most = int((sqrt(36 * rows**2 + square * free) - 6 * rows) / square)
    least = min(DEFAULT_NEIGHBOURS, max(most, 1))
    remedy = f"use at most {most:,}, such as {least} (--neighbours {least}, neighbours={least})"
    if targets is None and m >= n - 1 and bytes_for(n, 1) <= free:
        remedy = "use the exact likelihood, which fits (--method exact, gx.Exact())"
    require_memory(
        f"a graph of {m:,} neighbours for each of {rows:,} locations needs",
        12 * rows * m + bytes_of_blocks(m),
        remedy,
        free,
    )


def _seconds_of_vecchia(n, neighbours):
    """Return the seconds of an evaluation and of a fit."""
    m = min(neighbours, max(n - 1, 0))
    operations = n * (m**3 + NEIGHBOUR_PAIR_OPERATIONS * m**2 + LOCATION_OPERATIONS)
    work = VECCHIA_EVALUATIONS * (operations + TABLE_OPERATIONS)
    work += n * (ORDERING_OPERATIONS + NEIGHBOUR_SEARCH_OPERATIONS * m)
    work += SIMULATION_EVALUATIONS * operations + n * SIMULATION_OPERATIONS
    core = rate_of_core() * usable_cores()
    return (operations + TABLE_OPERATIONS) / core, _starts(n) + work / core


def _starts(n):
    """Return the seconds that find the starts of a search."""
    return START_SEARCH_OPERATIONS * min(1.0, n / START_SEARCH_LOCATIONS) / rate_of_core()


def _gpu(on):
    """Return the first device of a method if it is a GPU, otherwise None."""
    device = None if is_cluster(on) else resolve_all(on)[0]
    return device if device is not None and device.index is not None else None


def _measurable(on):
    """Whether a method computes on this machine's CPU."""
    return not is_cluster(on) and _gpu(on) is None


def bytes_for(n, matrices, device=None):
    """Return the free bytes that this many n×n matrices need."""
    # with blocks in progress, whitened columns and the interpreter's overhead
    needed = int(1.02 * matrices * n * n * 8) + 64 * n + 2**24
    if device is None or device.index is None:
        return needed
    return needed + GPU_DERIVATIVE_BLOCKS * 8 * min(n, sums.BLOCK_ORDER) ** 2


def columns_of_panel(n, room, matrices=1, share=1.0, tile=1024):
    """Return how many columns fit in `room` for each of so many n×n matrices, at least 0.

    Beside the rows of two tiles; `share` is the size of an entry relative to FP64's.
    """
    column = int(8 * share * (n + 2 * tile)) * matrices
    beside = max(PANEL_BYTES, PANEL_BYTES_PER_CORE * usable_cores()) * matrices
    return max(0, int(room - bytes_for(n, 0) - beside) // column)


def closing(method: Likelihood, free: int) -> int:
    """Return how many evaluations the standard errors of a fit cost, after the search."""
    return SIMULATION_EVALUATIONS if method.approximate else OBSERVED_INFORMATION_EVALUATIONS + free


# Alternatives where the exact likelihood does not fit the memory


def on_disk(n, free):
    """Return a bound of the memory, as text, the seconds of a fit within it, and bytes on a disk.

    `free` are the bytes of memory that are free.
    """
    size = f"{max(1, int(free / 2e9))}GB"
    return (
        size,
        _seconds_of_exact(n, scoring=columns_of_panel(n, free / 2) >= LEAST_PANEL_COLUMNS)[1],
        4 * n * (n + 1),
    )


def alternatives(n: int, on_gpu: bool = False) -> str:
    """Return what fits if n locations are too many for one matrix, with predicted costs of a fit.

    A sentence without the full stop, for messages: options of the command line and calls.
    """
    vecchia = in_words(_seconds_of_vecchia(n, DEFAULT_NEIGHBOURS)[1])
    size, seconds, disk = on_disk(n, free_memory())
    behind = f'a disk (--memory {size}, gx.Exact(memory="{size}"): {in_words(seconds)}, '
    behind += f"{human_bytes(disk)} of disk)"
    if on_gpu:
        behind = 'RAM (--device-memory 8GB, gx.Exact(on="gpu", device_memory="8GB"))'
    return (
        f"use Vecchia's approximation (--method vecchia, gx.Vecchia({DEFAULT_NEIGHBOURS}): "
        f"{vecchia} for a fit); {behind}; or coarser formats (--kl 1e-3, "
        "gx.Exact(gx.for_divergence(1e-3)): a fifth to a half of the memory)"
    )


# The rate of this machine


def rate():
    """Return the operations per second of a factorization by all usable cores."""
    # on cores that are busy with something else, threads that wait for each other can be slower
    return max(_measured(usable_cores()), rate_of_core())


def rate_of_core():
    """Return the operations per second of a factorization by one core."""
    return _measured(1)


@cache
def _measured(cores):
    """Measure the rate of a factorization by a number of cores, once per process."""
    steps = np.arange(TIMED_ORDER)
    sigma = np.asfortranarray(np.exp(-np.abs(steps[:, None] - steps) / 8.0))
    shortest = np.inf
    # BLAS uses one thread for small orders
    with blas_threads(0 if cores == 1 else TIMED_ORDER):
        for _ in range(TIMED_FACTORIZATIONS):
            matrix = sigma.copy(order="F")
            begun = time.perf_counter()
            recursive.potrf(matrix)
            shortest = min(shortest, time.perf_counter() - begun)
    return TIMED_ORDER**3 / 3 / shortest


# In words


def in_words(seconds):
    """Return a predicted time as text, with one or two digits.

    Examples
    --------
    >>> [in_words(seconds) for seconds in (0.2, 7.4, 130, 5e4, 1e6)]
    ['less than 1 s', 'about 7 s', 'about 2 min', 'about 14 h', 'about 12 days']
    """
    if seconds < 1:
        return "less than 1 s"
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < most * size:
            return f"about {_round(seconds / size)} {unit}"
    return f"about {_round(seconds / 86400):,} days"


def _round(number):
    """Round a number to two digits."""
    return int(float(f"{number:.2g}"))
