"""Thousands of small Cholesky factorizations and substitutions at once (paper 004).

Matrices of a batch are interleaved while they are computed on: `chunk[i, j, m]` is entry (i, j) of
matrix m, so that one SIMD instruction of a CPU serves a register of matrices, and one memory
transaction of a GPU a warp. Only the lower triangle (j <= i) is read and written. `potrf` and
`solve` take batches as NumPy stores them and pack chunk by chunk. On a GPU, matrices above order
32, and those of all substitutions, are not interleaved: a block of threads or a warp has each of
them.

Functions compiled by numba may call, without the interpreter's lock:

- `factor_chunk`, `forward_chunk` and `backward_chunk`, in place on a chunk of FP64 or FP32 numbers.

      chunk : (rows, ld, lanes) ndarray, C order, n <= rows, n <= ld
      lanes : a multiple of `lanes_of(dtype)`; unused lanes must hold a matrix, say the identity

- `factor_packed`, `forward_packed` and `backward_packed`, in place on eight FP64 matrices whose
  packed lower triangles are interleaved, of an order n that is a multiple of 4.

      a : 1-D ndarray; a[8 (i (i + 1)/2 + j) + m] is entry (i, j <= i) of matrix m
      inverse : (8 n,) ndarray; reciprocals of the diagonal of L, written by `factor_packed`

Numba's disk cache does not notice a change of these in functions that call them: delete it then.

Every variant, both layouts and the GPU give the same bits: the same products are subtracted in the
same order, each with one rounding. The exception is `Variant.fast`, an option of the GPU. The CUDA
source is tested on an emulator; it has not yet run on a GPU.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite
from ..runtime.devices import binding
from . import batched_gpu, batched_programs, simd
from .batched_programs import LOOKING, MOST, UNTUNED, Variant, cache_directory, write_whole

if TYPE_CHECKING:
    from .._typing import Any, AnyArray, DTypeLike, Floats, Sequence, Whole

Task = Literal["potrf", "solve"]

BEYOND_CACHE = 2**24
"""Bytes of a batch that no CPU cache holds: its factors are written past the cache."""

factor_chunk = batched_programs.factorization().factor_chunk
"""factor_chunk(a, n): the first n rows of a chunk <- their Cholesky factors.

A matrix that is not positive definite gets a diagonal entry that is 0, infinite or NaN, as are all
that follow it. The other matrices are not affected.
"""

forward_chunk = batched_programs.substitution(False).forward_chunk
"""forward_chunk(lower, b, n): b (n, k, lanes) <- L⁻¹b."""

backward_chunk = batched_programs.substitution(True).backward_chunk
"""backward_chunk(lower, b, n): b (n, k, lanes) <- L'⁻¹b."""

factor_packed = batched_programs.packed().factor_packed
"""factor_packed(a, inverse, n): a <- L.

The last pivot of a matrix that is not positive definite is NaN, infinite or 0.
"""

forward_packed = batched_programs.packed().forward_packed
"""forward_packed(a, inverse, y, start, n): the eight vectors from y[start] <- L⁻¹y."""

backward_packed = batched_programs.packed().backward_packed
"""backward_packed(a, inverse, y, start, n): the eight vectors from y[start] <- L'⁻¹y."""


def lanes_of(dtype: DTypeLike) -> int:
    """Return how many matrices a SIMD register of this CPU serves; chunks consist of whole ones."""
    return simd.width(dtype)


@overload
def potrf(
    a: AnyArray,
    *,
    overwrite: bool = False,
    check: Literal[True] = True,
    variant: Variant | None = None,
) -> AnyArray: ...
@overload
def potrf(
    a: AnyArray,
    *,
    overwrite: bool = False,
    check: Literal[False],
    variant: Variant | None = None,
) -> tuple[AnyArray, Whole]: ...
def potrf(
    a: Any, *, overwrite: bool = False, check: bool = True, variant: Variant | None = None
) -> Any:
    """Factor a batch of symmetric positive definite matrices.

    A = L L'

    Parameters
    ----------
    a : (batch, n, n) ndarray or cupy.ndarray
        FP32 or FP64; other real numbers are converted to FP64. Only lower triangles are read.
        n is at most 128.
    overwrite : bool
        Whether the factors may overwrite a, if it is contiguous and of that type.
    check : bool
        Whether a matrix without a factor raises an error; otherwise `info` reports it.
    variant : Variant, optional
        How it is computed; by default the fastest known, see `variant_for`.

    Returns
    -------
    lower : (batch, n, n) array, as a
        Zero above the diagonal. The factor of a matrix without one is NaN.
    info : (batch,) ndarray of int
        Only with ``check=False``: 0; k where the leading minor of order k is not positive; -k
        where row k holds a NaN or an infinity.

    Raises
    ------
    NotPositiveDefinite
        If a matrix has no factor: the message names the first one, `members` holds the indices of
        all of them, and `lower` holds the other factors.
    InvalidInput
        If an entry is NaN or infinite, or `a` is not such a batch.

    Examples
    --------
    >>> lower = potrf(np.array([[[4.0, 2.0], [2.0, 5.0]]]))
    >>> lower[0].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    if _is_on_gpu(a):
        kind = _real(_checked(a).dtype)
        with a.device:
            variant = variant or variant_for(a.shape[1], kind, "gpu")
        lower, info = batched_gpu.potrf(a, kind, overwrite, variant)
    else:
        lower, info = _factored(_checked(np.asarray(a)), overwrite, variant)
    return _raised(lower, info) if check else (lower, info)


def solve(lower: AnyArray, b: AnyArray, *, variant: Variant | None = None) -> AnyArray:
    """Solve L L' x = b for each matrix of a batch.

    Parameters
    ----------
    lower : (batch, n, n) ndarray or cupy.ndarray
        From `potrf`.
    b : (batch, n) or (batch, n, k) array
    variant : Variant, optional
        On a GPU only: ``Variant(chunk=0)``, a block of threads for each matrix, or
        ``Variant(chunk=0, block=(32, 1, m))``, a warp for each matrix and m warps in a block. By
        default the fastest known, see `variant_for`.

    Returns
    -------
    array, as b
        FP64 unless both are FP32.

    Examples
    --------
    >>> a = np.array([[[4.0, 2.0], [2.0, 5.0]]])
    >>> solve(potrf(a), a[:, :, 0]).tolist()
    [[1.0, 0.0]]
    """
    return _substituted(lower, b, (False, True), variant)


def forward(lower: AnyArray, b: AnyArray, *, variant: Variant | None = None) -> AnyArray:
    """Return x of L x = b; see `solve`."""
    return _substituted(lower, b, (False,), variant)


def backward(lower: AnyArray, b: AnyArray, *, variant: Variant | None = None) -> AnyArray:
    """Return x of L' x = b; see `solve`."""
    return _substituted(lower, b, (True,), variant)


def interleave(a: Floats, lanes: int | None = None) -> Floats:
    """Return a batch in chunks, (chunks, n, n, lanes); identities fill up the last one.

    `lanes` is a multiple of `lanes_of`; by default the fastest for the order.
    """
    a = _checked(np.asarray(a))
    a = np.ascontiguousarray(a, _real(a.dtype))
    batch, n, _ = a.shape
    lanes = lanes or lanes_of(a.dtype) * (2 if n <= PAIRED else 1)
    if lanes % lanes_of(a.dtype):
        raise InvalidInput(
            f"lanes must be a multiple of {lanes_of(a.dtype)} for {a.dtype}. Got {lanes}."
        )
    chunks = np.zeros((-(-batch // lanes), n, n, lanes), a.dtype)
    for c, chunk in enumerate(chunks):
        members = min(lanes, batch - c * lanes)
        simd.pack_lower(a.reshape(-1), n, c * lanes, members, chunk.reshape(-1), lanes)
    return chunks


def separate(chunks: Floats, batch: int) -> Floats:
    """Return the lower triangles of the first `batch` matrices of some chunks, (batch, n, n)."""
    _, n, _, lanes = chunks.shape
    a = np.empty((batch, n, n), chunks.dtype)
    to = a.reshape(-1)
    for c, chunk in enumerate(chunks):
        flat = chunk.reshape(-1)
        simd.clear_upper(flat, n, lanes)
        members = min(lanes, batch - c * lanes)
        simd.unpack_lower(flat, n, lanes, to, c * lanes, members, to, False)
    return a


def potrf_interleaved(chunks: Floats, *, variant: Variant | None = None) -> Whole:
    """Factor chunks, (chunks, n, n, lanes) as from `interleave`, in place.

    Return `info` as `potrf` does, (chunks · lanes,), but NaN and infinities count as minors that
    are not positive. Raise `InvalidInput` if they are not such chunks.
    """
    width = lanes_of(chunks.dtype) if chunks.dtype in (np.float32, np.float64) else 0
    fits = chunks.ndim == 4 and chunks.shape[1] == chunks.shape[2] and width
    if not fits or chunks.shape[3] % width or not chunks.flags.carray:
        raise InvalidInput(
            "chunks must be (chunks, n, n, lanes) in C order, as `interleave` returns them: FP32 "
            f"or FP64, with lanes of whole registers ({width or '8 or 16'} here). "
            f"Got {chunks.dtype} {chunks.shape}."
        )
    _, n, _, lanes = chunks.shape
    variant = variant or variant_for(n, chunks.dtype)
    info = np.zeros(len(chunks) * lanes, np.int64)
    batched_programs.factorization(variant, n).factor_chunks(chunks, info)
    return info


def _is_on_gpu(a):
    return hasattr(a, "__cuda_array_interface__")


def _checked(a):
    """Return a batch of matrices; raise `InvalidInput` if it is not one."""
    if a.ndim != 3 or a.shape[1] != a.shape[2]:
        hint = " Try a[None]." if a.ndim == 2 else ""
        raise InvalidInput(f"a batch of matrices must be (batch, n, n). Got {a.shape}.{hint}")
    if a.shape[1] > MOST:
        raise InvalidInput(
            f"matrices of a batch must be of order {MOST} or less. Got {a.shape[1]}; try "
            "geomxp.linalg.nested.potrf on each."
        )
    if a.dtype.kind not in "biuf" or a.dtype.itemsize > 8 or a.dtype == np.float16:
        raise InvalidInput(f"matrices of a batch must be FP32 or FP64. Got {a.dtype}.")
    return a


def _real(*types):
    """Return FP32 if all are FP32, else FP64."""
    single = all(np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize == 4 for dtype in types)
    return np.dtype(np.float32 if single else np.float64)


def _aligned(shape, dtype):
    """Return an empty array that is aligned to SIMD registers."""
    room = np.empty(int(np.prod(shape)) + simd.REGISTER // dtype.itemsize, dtype)
    skip = -room.ctypes.data % simd.REGISTER // dtype.itemsize
    return room[skip : skip + int(np.prod(shape))].reshape(shape)


def _factored(a, overwrite, variant):
    """Return the factors of an ndarray and `info`, see `potrf`."""
    source = np.require(a, _real(a.dtype), ("C", "A"))
    own = not np.may_share_memory(source, a) or (overwrite and source.flags.writeable)
    lower = source if own else _aligned(source.shape, source.dtype)
    batch, n, _ = source.shape
    info = np.zeros(batch, np.int64)
    if source.size:
        variant = variant or variant_for(n, source.dtype)
        program = batched_programs.factorization(variant, n)
        lanes, row = variant.chunk * lanes_of(source.dtype), n * source.itemsize
        past_cache = not own and row % simd.REGISTER == 0 and source.nbytes >= BEYOND_CACHE
        program.factor_batch(source, lower, info, lanes, past_cache)
    return lower, info


def _raised(lower, info):
    """Return the factors, or raise the error that `info` reports."""
    members = np.flatnonzero(info)
    if not members.size:
        return lower
    first = int(members[0])
    broken = np.flatnonzero(info < 0)
    if broken.size:
        raise InvalidInput(
            f"matrix {broken[0]} of the batch holds a NaN or an infinity in row "
            f"{-info[broken[0]] - 1}{_others(broken)}."
        )
    error = NotPositiveDefinite(
        f"matrix {first} of the batch: the leading minor of order {info[first]} is not positive"
        f"{_others(members)}",
        order=int(info[first]),
    )
    error.members, error.lower = members, lower
    raise error


def _others(members):
    return f"; and {members.size - 1} more" if members.size > 1 else ""


def _substituted(lower, b, passes, variant):
    """Return b after the substitutions: forward (False), backward (True)."""
    on_gpu = _is_on_gpu(lower)
    if not on_gpu:
        lower, b = np.asarray(lower), np.asarray(b)
    if b.ndim not in (2, 3) or b.shape[:2] != _checked(lower).shape[:2]:
        raise InvalidInput(
            f"b must be (batch, n) or (batch, n, k), with lower {lower.shape}. Got {b.shape}."
        )
    kind = _real(lower.dtype, b.dtype)
    if on_gpu:
        with lower.device:
            variant = variant or variant_for(lower.shape[1], kind, "gpu", "solve")
        return batched_gpu.substitute(lower, b, kind, passes, variant)
    if variant is not None:
        raise InvalidInput(
            f"`variant` must be None on a CPU: one way to substitute. Got {variant}."
        )
    lower = np.ascontiguousarray(lower, kind)
    x = np.array(b.reshape(*b.shape[:2], -1) if b.size else b, kind, order="C")
    if x.size:
        diagonal = lower.diagonal(axis1=1, axis2=2)
        wrong = np.flatnonzero(
            ~(abs(diagonal) > 0).all(axis=1) | ~np.isfinite(diagonal).all(axis=1)
        )
        if wrong.size:
            raise InvalidInput(
                f"the diagonal of factor {wrong[0]} holds a 0, a NaN or an infinity."
            )
        for back in passes:
            program = batched_programs.substitution(back)
            loop = program.backward_batch if back else program.forward_batch
            loop(lower, x, lanes_of(kind))
    return x.reshape(b.shape)


# The variant for an order, type and device: the winner of a search, kept in `batched.json` of the
# user's cache directory, or else the entry of a table. experiments/batched compares variants on
# interleaved chunks, on one core with AVX-512; no study compares them on canonical batches.


SHIPPED = (
    (8, Variant("left", 4, 4, unroll=True)),
    (16, Variant("top", 4, 1, unroll=True)),
    (128, UNTUNED),
)
"""Largest order, and the variant up to there. Above 16 a search may find a faster one: at orders 48
and 64 that is `top` with tile 4, on chunks. Each order up to 16 is compiled by itself and kept on
disk."""

PAIRED = 24
"""Largest order for which `interleave` takes chunks of two registers: the fastest at orders 12 to
24 in FP64, and 5 and 8 in FP32 (experiments/batched)."""

ON_GPU = Variant(chunk=0)
"""A block of threads for each matrix, in shared memory, for any order. The untuned variant of
substitutions on a GPU."""

SHIPPED_ON_GPU = ((32, UNTUNED), (128, ON_GPU))
"""As SHIPPED, on a GPU; chosen by counting bytes, not timed yet."""

UNROLLED = 16
"""Largest order for which full unrolling is a candidate; larger ones were not timed."""

SHAPES = 8
"""Blocks of threads that a search compares for the best panel width."""

GAIN = 1.03
"""Speed-up over the untuned variant from which on another is remembered."""


def variant_for(n: int, dtype: DTypeLike, on: str = "cpu", what: Task = "potrf") -> Variant:
    """Return the fastest known variant: the one remembered for this device, or the shipped one."""
    known = remembered().get(_key(n, dtype, on, what))
    if known is not None:
        return known
    if what == "solve":
        return ON_GPU
    shipped = SHIPPED_ON_GPU if on == "gpu" else SHIPPED
    return next(variant for most, variant in shipped if n <= most)


def remembered() -> dict[str, Variant]:
    """Return the winners of earlier searches, {"device dtype n": Variant}.

    Keys of substitutions end in " solve".
    """
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
        if all(map(_is_valid, known.values())):
            return known
        problem = "an entry is not a variant"
    except (ValueError, TypeError, AttributeError) as error:
        problem = str(error)
    warnings.warn(
        f"{path} is ignored: {problem}. Delete it, or run geomxp bench batched --tune.",
        GeomxpWarning,
        stacklevel=4,
    )
    return {}


def _is_valid(variant):
    small = all(type(x) is int and x <= 32 for x in (variant.tile, variant.chunk))
    small = small and variant.tile >= 1 and variant.chunk >= 0
    block = (variant.panel, *variant.block)
    small = small and all(type(x) is int and 0 <= x <= 1024 for x in block)
    small = small and len(variant.block) in (0, 3) and not (variant.chunk and any(block))
    # all factors and solutions of this device would be less exact
    exact = variant.fast is False
    return small and exact and variant.looking in LOOKING and type(variant.unroll) is bool


def remember(
    n: int, dtype: DTypeLike, variant: Variant, on: str = "cpu", what: Task = "potrf"
) -> None:
    """Keep a variant on disk; warn if that is not possible."""
    path = cache_directory() / "batched.json"
    known = remembered() | {_key(n, dtype, on, what): variant}
    entries = {key: asdict(entry) for key, entry in sorted(known.items())}
    try:
        write_whole(path, json.dumps(entries, indent=1))
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written: {error.strerror}. The choice is not saved; set "
            "GEOMXP_CACHE_DIR to a directory that can be written.",
            GeomxpWarning,
            stacklevel=2,
        )


def _key(n, dtype, on, what):
    solve = " solve" if what == "solve" else ""
    return f"{device_name(on)} {np.dtype(dtype).name} {n}{solve}"


@cache
def device_name(on: str = "cpu") -> str:
    """Return the name of the device that timings belong to: the CPU, or the current GPU."""
    return batched_gpu.device_name() if on == "gpu" else binding.get_host_cpu_name()


def candidates(
    n: int, on: str = "cpu", dtype: DTypeLike = np.float64, what: Task = "potrf"
) -> list[Variant]:
    """Return the variants worth timing for an order; chunks of one register, or one warp.

    On a GPU also one with panels for each panel width, see `batched_gpu.panels`. Substitutions have
    variants on a GPU only.
    """
    if what == "solve":
        return [ON_GPU, *batched_gpu.warps(batched_gpu.limits())]
    tiles = (1, 2, 4) if on == "gpu" else (2, 3, 4)
    variants = [Variant(looking, t) for looking in LOOKING for t in tiles if t <= max(n, 2)]
    if n <= UNROLLED:
        variants += [Variant(looking, 4, unroll=True) for looking in ("left", "top")]
    if on == "gpu":
        by_width = batched_gpu.panels(n, dtype, batched_gpu.limits())
        variants += [ON_GPU, *(shapes[0] for shapes in by_width.values())]
    return variants


def _beside(best, n, dtype):
    """Return variants like the best one of a race: larger chunks, or other blocks of threads."""
    if best.panel:
        return batched_gpu.panels(n, dtype, batched_gpu.limits())[best.panel][1:SHAPES]
    return [replace(best, chunk=chunk) for chunk in (2, 4)] if best.chunk else []


def search(
    n: int,
    dtype: DTypeLike = np.float64,
    on: str = "cpu",
    *,
    batch: int = 4096,
    rounds: int = 7,
    among: Sequence[Variant] | None = None,
    what: Task = "potrf",
) -> tuple[Variant, dict[Variant, float]]:
    """Find the fastest variant for an order among some, and remember it.

    By default these are `candidates`, then the winner with larger chunks, or with other blocks of
    threads. Each is checked against LAPACK before it is timed, in turns with the others. The
    untuned variant takes part, and stays unless another is faster by `GAIN`, also in a second race
    of these two. With ``what="solve"``, on a GPU, the variants are of `solve` with one right-hand
    side. Also return the median seconds of the first race.
    """
    if not 1 <= n <= MOST:
        raise InvalidInput(f"variants are for orders 1 to {MOST}. Got {n}.")
    if what == "solve" and on != "gpu":
        raise InvalidInput('substitutions have no variants on a CPU. Try on="gpu".')
    if any(variant.fast for variant in among or ()):
        raise InvalidInput(
            "a search remembers its winner for all later calls, which are not to be `fast`. "
            "Compare fast variants with `race`, and pass one to `potrf`."
        )
    untuned = ON_GPU if what == "solve" else UNTUNED
    a = _matrices(n, dtype, batch)
    first = list(dict.fromkeys((untuned, *(among or candidates(n, on, dtype, what)))))
    seconds = race([v for v in first if _is_right(a, v, on, what)], a, on, rounds, what)
    if among is None:
        best = min(seconds, key=seconds.get)
        near = (best, *_beside(best, n, dtype))
        seconds |= race([v for v in near if _is_right(a, v, on, what)], a, on, rounds, what)
    winner = min(seconds, key=seconds.get)
    if winner != untuned:
        last = race([untuned, winner], a, on, 2 * rounds, what)
        if last[untuned] < GAIN * last[winner]:
            winner = untuned
    remember(n, dtype, winner, on, what)
    return winner, seconds


def _matrices(n, dtype, batch):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((16, n, n))
    some = x @ x.transpose(0, 2, 1) + n * np.eye(n)
    return np.ascontiguousarray(np.resize(some, (batch, n, n)), dtype)


def _is_right(a, variant, on, what="potrf"):
    """Return whether a variant's factors or solutions are LAPACK's; warn if they are not."""
    some = a[: 3 * 64 + 1]
    if what == "solve":
        expected = np.linalg.cholesky(some)
        found = solve(_on(expected, on), _on(some[:, 0], on), variant=variant)
        # of A x = A e_1, with matrices whose condition is small
        expected = np.broadcast_to(np.eye(a.shape[1])[0], found.shape)
    else:
        found, expected = potrf(_on(some, on), variant=variant), np.linalg.cholesky(some)
    found = found if on == "cpu" else found.get()
    u = np.finfo(a.dtype).eps / 2
    if abs(found - expected).max() <= 8 * (a.shape[1] + 1) * u * abs(expected).max():
        return True
    wrong = "solutions" if what == "solve" else "factors"
    warnings.warn(f"{variant} gives wrong {wrong} on this device.", GeomxpWarning, stacklevel=3)
    return False


def _on(a, on):
    if on == "cpu":
        return a
    import cupy

    return cupy.asarray(a)


def race(
    variants: Sequence[Variant], a: AnyArray, on: str, rounds: int, what: Task = "potrf"
) -> dict[Variant, float]:
    """Return the median seconds of each variant; they take turns.

    With ``what="solve"`` lower triangles of `a` are the factors.
    """
    a = _on(a, on)
    b = a[:, 0].copy()
    seconds = {variant: [] for variant in variants}
    for k in range(rounds + 1):
        for variant in variants:
            start = time.perf_counter()
            if what == "solve":
                solve(a, b, variant=variant)
                _wait(on)
            else:
                # waits for `info`
                potrf(a, check=False, variant=variant)
            if k:
                seconds[variant].append(time.perf_counter() - start)
    return {variant: float(np.median(times)) for variant, times in seconds.items()}


def _wait(on):
    if on == "gpu":
        import cupy

        cupy.cuda.get_current_stream().synchronize()
