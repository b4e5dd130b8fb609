"""What is fastest on a machine: how large a leaf is, and how small batched matrices are computed.

Leaves are as large as where a library's own routine is as fast as another halving: measured on one
core with AMX (experiments/nested_cholesky). A GPU needs larger ones; those have not been measured.

Variants of `geomxp.linalg.batched` are searched for one order, type and device; the winner is kept
in `batched.json` of the user's cache directory (`GEOMXP_CACHE_DIR`, else the system's place for
it). What has not been searched is taken from a table that was measured on one core with AVX-512
(experiments/batched).
"""

import json
import time
import warnings
from dataclasses import asdict, replace
from functools import cache

import numpy as np

from ..errors import GeomxpWarning, InvalidInput
from .batched_programs import LOOKING, Variant, cache_directory, write_whole

PLAIN = {"potrf": 512, "trsm": 512, "trmm": 512, "syrk": 512}
COARSE = {"potrf": 256, "trsm": 256, "trmm": 256, "syrk": 512}
"""With products in coarse formats, which outrun the leaves."""

LEAVES_ON_GPU = {"potrf": 1024, "trsm": 1024, "trmm": 1024, "syrk": 2048}
"""Smaller products do not fill a GPU. Not measured yet."""

UNTUNED = Variant()
SHIPPED = (
    (8, Variant("left", 4, 4, unroll=True)),
    (16, Variant("top", 4, 1, unroll=True)),
    (128, UNTUNED),
)
"""The largest order, and what is fastest up to there. Each of the orders up to 16 is compiled by
itself, in one to four seconds, and kept on disk."""

PAIRED = 24
"""The largest order for which chunks of two registers are the fastest, where all is interleaved; in
FP32 those of one are about as fast."""

ON_GPU = Variant(chunk=0)
"""A block of threads for each matrix, whatever the order."""

SHIPPED_ON_GPU = ((32, UNTUNED), (128, ON_GPU))
"""As SHIPPED, on a GPU; chosen by counting bytes, not timed yet. UNTUNED uses at most 166 registers
and no stack; tiles of eight rows would spill."""

UNROLLED = 16
"""The largest order for which it can pay to write everything out; beyond it registers of a GPU
spill."""

GAIN = 1.03
"""What a variant must gain over the untuned one to be remembered."""


def leaf_size(name, n, forms, on="cpu"):
    """Return the leaf of a recursion.

    Parameters
    ----------
    name : {"potrf", "trsm", "trmm", "syrk"}
    n : int
        Order of the matrix.
    forms : sequence of Format
    on : {"cpu", "gpu"}

    Returns
    -------
    int
    """
    leaves = COARSE if any(form.coarse for form in forms) else PLAIN
    leaves = leaves if on == "cpu" else LEAVES_ON_GPU
    return min(leaves[name], max(n, 1))


def registers_of(n):
    """Return how many registers of a CPU an interleaved chunk has, for matrices of one order."""
    return 2 if n <= PAIRED else 1


def variant_for(n, dtype, on="cpu"):
    """Return the variant to factor matrices of one order with.

    Parameters
    ----------
    n : int
    dtype : dtype
    on : {"cpu", "gpu"}

    Returns
    -------
    Variant
        The one remembered for this device, else the shipped table's.
    """
    known = remembered().get(_key(n, dtype, on))
    if known is not None:
        return known
    shipped = SHIPPED_ON_GPU if on == "gpu" else SHIPPED
    return next(variant for most, variant in shipped if n <= most)


def remembered():
    """Return what searches have found: {"device dtype n": Variant}."""
    path = cache_directory() / "batched.json"
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return {}


@cache
def _read(path, _changed):
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        known = {key: Variant(**entry) for key, entry in entries.items()}
        if all(map(_sound, known.values())):
            return known
        problem = "an entry is no variant"
    except (ValueError, TypeError, AttributeError) as error:
        problem = str(error)
    warnings.warn(
        f"{path} is ignored: {problem}. Delete it, or run geomxp bench batched --tune.",
        GeomxpWarning,
        stacklevel=4,
    )
    return {}


def _sound(variant):
    small = all(type(x) is int and x <= 32 for x in (variant.tile, variant.chunk))
    small = small and variant.tile >= 1 and variant.chunk >= 0
    return small and variant.looking in LOOKING and type(variant.unroll) is bool


def remember(n, dtype, variant, on="cpu"):
    """Keep a variant for later; where that is impossible, say so and go on."""
    path = cache_directory() / "batched.json"
    known = remembered() | {_key(n, dtype, on): variant}
    entries = {key: asdict(entry) for key, entry in sorted(known.items())}
    try:
        write_whole(path, json.dumps(entries, indent=1))
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written: {error.strerror}. The choice is forgotten; "
            "GEOMXP_CACHE_DIR names another directory.",
            GeomxpWarning,
            stacklevel=2,
        )


def _key(n, dtype, on):
    return f"{device(on)} {np.dtype(dtype).name} {n}"


@cache
def device(on="cpu"):
    """Return the name of the device that timings belong to: the CPU, or the current GPU."""
    if on == "gpu":
        import cupy

        current = cupy.cuda.runtime.getDevice()
        return cupy.cuda.runtime.getDeviceProperties(current)["name"].decode()
    from ..runtime.devices import binding

    return binding.get_host_cpu_name()


def candidates(n, on="cpu"):
    """Return the variants worth timing for an order; chunks of one register, or one warp."""
    tiles = (1, 2, 4) if on == "gpu" else (2, 3, 4)
    found = [Variant(looking, tile) for looking in LOOKING for tile in tiles if tile <= max(n, 2)]
    if n <= UNROLLED:
        found += [Variant(looking, 4, unroll=True) for looking in ("left", "top")]
    return found + [ON_GPU] * (on == "gpu")


def search(n, dtype=np.float64, on="cpu", *, batch=4096, rounds=7, among=None):
    """Find the fastest variant for an order, and remember it.

    Each is checked against LAPACK before it is timed; they take turns. The untuned one is among
    them, and stays unless another is faster by `GAIN`, in a second race of these two as well.

    Parameters
    ----------
    n : int
    dtype : dtype
    on : {"cpu", "gpu"}
    batch : int
        Matrices.
    rounds : int
    among : sequence of Variant, optional

    Returns
    -------
    variant : Variant
    seconds : dict of Variant to float
        Medians, of the first race.
    """
    if not 1 <= n <= 128:
        raise InvalidInput(f"variants are for orders 1 to 128. Got {n}.")
    a = _matrices(n, dtype, batch)
    first = [variant for variant in dict.fromkeys((UNTUNED, *(among or candidates(n, on))))]
    seconds = _race([v for v in first if _right(a, v, on)], a, on, rounds)
    if among is None:
        best = min(seconds, key=seconds.get)
        wider = [replace(best, chunk=chunk) for chunk in (2, 4)]
        seconds |= _race([v for v in (best, *wider) if _right(a, v, on)], a, on, rounds)
    winner = min(seconds, key=seconds.get)
    if winner != UNTUNED:
        last = _race([UNTUNED, winner], a, on, 2 * rounds)
        if last[UNTUNED] < GAIN * last[winner]:
            winner = UNTUNED
    remember(n, dtype, winner, on)
    return winner, seconds


def _matrices(n, dtype, batch):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((16, n, n))
    some = x @ x.transpose(0, 2, 1) + n * np.eye(n)
    return np.ascontiguousarray(np.resize(some, (batch, n, n)), dtype)


def _right(a, variant, on):
    """Return whether a variant's factors are LAPACK's; say so if they are not."""
    from ..linalg import batched

    some = a[: 3 * 64 + 1]
    found = batched.potrf(_on(some, on), variant=variant)
    found = found if on == "cpu" else found.get()
    expected = np.linalg.cholesky(some)
    u = np.finfo(a.dtype).eps / 2
    if abs(found - expected).max() <= 8 * (a.shape[1] + 1) * u * abs(expected).max():
        return True
    warnings.warn(f"{variant} gives wrong factors here.", GeomxpWarning, stacklevel=3)
    return False


def _on(a, on):
    if on == "cpu":
        return a
    import cupy

    return cupy.asarray(a)


def _race(variants, a, on, rounds):
    """Return the median seconds of each variant; they take turns."""
    from ..linalg import batched

    a = _on(a, on)
    seconds = {variant: [] for variant in variants}
    for k in range(rounds + 1):
        for variant in variants:
            start = time.perf_counter()
            batched.potrf(a, check=False, variant=variant)
            if k:
                seconds[variant].append(time.perf_counter() - start)
    return {variant: float(np.median(times)) for variant, times in seconds.items()}
