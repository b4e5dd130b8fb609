"""Thousands of small Cholesky factorizations and substitutions at once (paper 004).

Matrices of a batch are interleaved while they are computed on: `chunk[i, j, m]` is entry (i, j) of
matrix m, so that one SIMD instruction of a CPU serves a register of matrices, and one memory
transaction of a GPU a warp. Only the lower triangle (j <= i) is read and written. `potrf` and
`solve` take batches as NumPy stores them and pack chunk by chunk. On a GPU they do not interleave
by default: some lanes of a warp, or a block of threads, process each matrix.

`interleave` and `interleave_vectors` make batches that stay interleaved, for `potrf_interleaved`,
`forward_interleaved`, `backward_interleaved`, `solve_interleaved` and `posv_interleaved` (the
complete solution). Nothing is packed or copied there.

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
source has run on an H200 (experiments/h200).
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite
from ..runtime.devices import binding
from . import batched_gpu, batched_programs, simd
from .batched_programs import LARGEST_ORDER, LOOKING, UNTUNED, Variant, cache_directory, write_whole

if TYPE_CHECKING:
    from .._typing import Any, AnyArray, DTypeLike, Sequence, Whole

BEYOND_CACHE_BYTES = 2**24
"""Bytes of a batch that no CPU cache holds: its factors are written past the cache."""

factor_chunk = batched_programs.factorization().factor_chunk
"""factor_chunk(a, n): the first n rows of a chunk <- their Cholesky factors.

A matrix that is not positive definite gets a diagonal entry that is 0, infinite or NaN, as are all
that follow it. The other matrices are not affected.
"""

forward_chunk = batched_programs.substitution().forward_chunk
"""forward_chunk(lower, b, n): b (n, k, lanes) <- L⁻¹b."""

backward_chunk = batched_programs.substitution().backward_chunk
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
        if info is None:
            return lower if check else (lower, np.zeros(len(a), np.int64))
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


def interleave(a: AnyArray, lanes: int | Literal["batch"] | None = None) -> AnyArray:
    """Return a batch in chunks of matrices whose entries are interleaved.

    Parameters
    ----------
    a : (batch, n, n) ndarray or cupy.ndarray
        As for `potrf`; only lower triangles are read.
    lanes : int or "batch", optional
        Matrices of a chunk: a multiple of `lanes_of` on a CPU, of 32 on a GPU. "batch": one chunk
        for all matrices, without chunking (the paper's Figure 7). By default the fastest known for
        the order.

    Returns
    -------
    chunks : (chunks, n, n, lanes) array
        chunks[c, i, j, m] is entry (i, j) of matrix c lanes + m. Identities fill up the last chunk.
        Entries above the diagonal are undefined.

    Examples
    --------
    >>> a = np.stack([4.0 * np.eye(3)] * 10)
    >>> chunks = interleave(a, "batch")
    >>> bool((chunks[0, 2, 2, :10] == 4.0).all())
    True
    """
    on = "gpu" if _is_on_gpu(a) else "cpu"
    a = _checked(a if on == "gpu" else np.asarray(a))
    kind = _real(a.dtype)
    batch, n, _ = a.shape
    if lanes is None:
        lanes = _lanes(variant_for(n, kind, on, layout="interleaved").chunk, batch, kind, on)
    elif lanes == "batch":
        lanes = _lanes(lanes, batch, kind, on)
    unit = _lanes(1, batch, kind, on)
    if not isinstance(lanes, (int, np.integer)) or lanes < 1 or lanes % unit:
        raise InvalidInput(
            f'lanes must be a multiple of {unit} for {kind} on this device, or "batch". '
            f"Got {lanes!r}."
        )
    if on == "gpu":
        return batched_gpu.in_chunks(a.astype(kind, copy=False), int(lanes))
    a = np.ascontiguousarray(a, kind)
    chunks = np.zeros((-(-batch // lanes), n, n, lanes), kind)
    for c, chunk in enumerate(chunks):
        members = min(lanes, batch - c * lanes)
        simd.pack_lower(a.reshape(-1), n, c * lanes, members, chunk.reshape(-1), lanes)
    return chunks


def separate(chunks: AnyArray, batch: int) -> AnyArray:
    """Return the lower triangles of the first `batch` matrices of some chunks, (batch, n, n).

    Examples
    --------
    >>> separate(interleave(np.array([[[4.0, 2.0], [2.0, 5.0]]])), 1)[0].tolist()
    [[4.0, 0.0], [2.0, 5.0]]
    """
    count, n, lanes = _chunked(chunks)
    _check_batch(batch, count * lanes)
    if _is_on_gpu(chunks):
        return batched_gpu.separate(chunks, batch)
    a = np.empty((batch, n, n), chunks.dtype)
    to = a.reshape(-1)
    for c, chunk in enumerate(chunks):
        flat = chunk.reshape(-1)
        simd.clear_upper(flat, n, lanes)
        members = min(lanes, batch - c * lanes)
        simd.unpack_lower(flat, n, lanes, to, c * lanes, members, to, False)
    return a


def interleave_vectors(b: AnyArray, chunks: AnyArray) -> AnyArray:
    """Return right-hand sides in the layout of some chunks.

    Parameters
    ----------
    b : (batch, n) or (batch, n, k) ndarray or cupy.ndarray
    chunks : (chunks, n, n, lanes) array
        From `interleave`, of as many matrices.

    Returns
    -------
    (chunks, n, k, lanes) array
        Of the type of `chunks`. Zeros fill up the last chunk.

    Examples
    --------
    >>> chunks = interleave(np.stack([4.0 * np.eye(3)] * 10))
    >>> b = interleave_vectors(np.ones((10, 3)), chunks)
    >>> b.shape == (len(chunks), 3, 1, chunks.shape[3])
    True
    """
    count, n, lanes = _chunked(chunks)
    if not _is_on_gpu(b):
        b = np.asarray(b)
    fits = b.ndim in (2, 3) and b.shape[1] == n and -(-len(b) // lanes) == count
    if not fits or b.dtype.kind not in "biuf":
        raise InvalidInput(
            f"b must be (batch, {n}) or (batch, {n}, k), real, for {count} chunks of {lanes} "
            f"matrices. Got {b.dtype} {b.shape}."
        )
    if not _together(chunks, b):
        raise InvalidInput("b must be in the memory of the chunks, on the same device.")
    k = math.prod(b.shape[2:])
    with _on_device_of(chunks) as xp:
        room = xp.zeros((count * lanes, n, k), chunks.dtype)
        room[: len(b)] = b.reshape(len(b), n, k)
        return xp.ascontiguousarray(room.reshape(count, lanes, n, k).transpose(0, 2, 3, 1))


def separate_vectors(b: AnyArray, batch: int) -> AnyArray:
    """Return the first `batch` members of interleaved right-hand sides, (batch, n, k).

    Examples
    --------
    >>> chunks = interleave(np.stack([4.0 * np.eye(2)] * 3))
    >>> separate_vectors(interleave_vectors([[1, 2], [3, 4], [5, 6]], chunks), 2)[:, :, 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if not _is_on_gpu(b):
        b = np.asarray(b)
    if b.ndim != 4:
        raise InvalidInput(
            f"b must be (chunks, n, k, lanes), as `interleave_vectors` returns it. Got {b.shape}."
        )
    count, n, columns, lanes = b.shape
    _check_batch(batch, count * lanes)
    with _on_device_of(b):
        return b.transpose(0, 3, 1, 2).reshape(count * lanes, n, columns)[:batch]


def potrf_interleaved(chunks: AnyArray, *, variant: Variant | None = None) -> Whole:
    """Factor interleaved matrices in place.

    Parameters
    ----------
    chunks : (chunks, n, n, lanes) ndarray or cupy.ndarray
        From `interleave`; the lower triangles are overwritten with the factors, which have the
        bits of `potrf`.
    variant : Variant, optional
        By default the fastest known for this layout, see `variant_for`; its `chunk` has no effect.

    Returns
    -------
    info : (chunks lanes,) ndarray of int
        As of `potrf`, but NaN and infinities count as minors that are not positive. The factor of a
        matrix without one is undefined.

    Raises
    ------
    InvalidInput
        If `chunks` is not as from `interleave`.

    Examples
    --------
    >>> chunks = interleave(np.array([[[4.0, 2.0], [2.0, 5.0]]]))
    >>> info = potrf_interleaved(chunks)
    >>> separate(chunks, 1)[0].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    count, n, lanes = _chunked(chunks)
    variant = variant or _variant_of(chunks)
    if _is_on_gpu(chunks):
        return batched_gpu.potrf_chunks(chunks, variant)
    info = np.zeros(count * lanes, np.int64)
    batched_programs.factorization(variant, n).factor_chunks(chunks, info)
    return info


def solve_interleaved(chunks: AnyArray, b: AnyArray) -> AnyArray:
    """Solve L L' x = b in place for interleaved factors.

    Parameters
    ----------
    chunks : (chunks, n, n, lanes) ndarray or cupy.ndarray
        From `potrf_interleaved`.
    b : (chunks, n, k, lanes) array
        From `interleave_vectors`; overwritten with x, which has the bits of `solve`.

    Returns
    -------
    b

    Raises
    ------
    InvalidInput
        If an argument is not of this kind; or if the diagonal of a factor holds a 0, a NaN or an
        infinity: members of b from that one on are then unchanged.

    Examples
    --------
    >>> chunks = interleave(np.array([[[4.0, 2.0], [2.0, 5.0]]]))
    >>> info = potrf_interleaved(chunks)
    >>> b = interleave_vectors([[4.0, 2.0]], chunks)
    >>> separate_vectors(solve_interleaved(chunks, b), 1)[0, :, 0].tolist()
    [1.0, 0.0]
    """
    return _substituted_interleaved(chunks, b, (False, True))


def forward_interleaved(chunks: AnyArray, b: AnyArray) -> AnyArray:
    """Solve L x = b in place; see `solve_interleaved`.

    Examples
    --------
    >>> chunks = interleave(np.array([[[2.0, 0.0], [1.0, 2.0]]]))
    >>> b = interleave_vectors([[4.0, 6.0]], chunks)
    >>> separate_vectors(forward_interleaved(chunks, b), 1)[0, :, 0].tolist()
    [2.0, 2.0]
    """
    return _substituted_interleaved(chunks, b, (False,))


def backward_interleaved(chunks: AnyArray, b: AnyArray) -> AnyArray:
    """Solve L' x = b in place; see `solve_interleaved`.

    Examples
    --------
    >>> chunks = interleave(np.array([[[2.0, 0.0], [1.0, 2.0]]]))
    >>> b = interleave_vectors([[5.0, 2.0]], chunks)
    >>> separate_vectors(backward_interleaved(chunks, b), 1)[0, :, 0].tolist()
    [2.0, 1.0]
    """
    return _substituted_interleaved(chunks, b, (True,))


def posv_interleaved(chunks: AnyArray, b: AnyArray, *, variant: Variant | None = None) -> Whole:
    """Factor interleaved matrices and solve A x = b, both in place.

    On a CPU a matrix is factored and solved from while it is in the cache.

    Parameters
    ----------
    chunks, variant
        As for `potrf_interleaved`.
    b : (chunks, n, k, lanes) array
        From `interleave_vectors`; overwritten with x, which has the bits of `solve`. NaN where the
        matrix has no factor.

    Returns
    -------
    info : (chunks lanes,) ndarray of int
        As of `potrf_interleaved`.

    Raises
    ------
    InvalidInput
        If an argument is not of this kind.

    Examples
    --------
    >>> chunks = interleave(np.array([[[4.0, 2.0], [2.0, 5.0]]]))
    >>> b = interleave_vectors([[4.0, 2.0]], chunks)
    >>> info = posv_interleaved(chunks, b)
    >>> separate_vectors(b, 1)[0, :, 0].tolist()
    [1.0, 0.0]
    """
    count, n, lanes = _chunked(chunks)
    _check_vectors(chunks, b)
    variant = variant or _variant_of(chunks)
    if _is_on_gpu(chunks):
        info = batched_gpu.potrf_chunks(chunks, variant)
        batched_gpu.substitute_chunks(chunks, b, (False, True))
    else:
        info = np.zeros(count * lanes, np.int64)
        batched_programs.solution(variant, n).solve_chunks(chunks, b, info)
    if info.any():
        failed = np.where(info, np.nan, 1).astype(b.dtype).reshape(count, 1, 1, lanes)
        with _on_device_of(b) as xp:
            b *= xp.asarray(failed)
    return info


def _chunked(chunks):
    """Return the number of chunks, n and lanes; raise `InvalidInput` if they are not chunks."""
    kind, on = getattr(chunks, "dtype", None), "gpu" if _is_on_gpu(chunks) else "cpu"
    unit = _lanes(1, 1, kind, on) if kind in (np.float32, np.float64) else 0
    fits = unit and chunks.ndim == 4 and chunks.shape[1] == chunks.shape[2] <= LARGEST_ORDER
    if not fits or chunks.shape[3] % unit or not chunks.shape[3] or not _is_writable(chunks):
        raise InvalidInput(
            "chunks must be (chunks, n, n, lanes) in C order, as `interleave` returns them: FP32 "
            f"or FP64, writable, n at most {LARGEST_ORDER}, lanes a multiple of "
            f"{unit or '8 or 16'}. Got {kind} {getattr(chunks, 'shape', type(chunks).__name__)}."
        )
    count, n, _, lanes = chunks.shape
    return count, n, lanes


@contextmanager
def _on_device_of(a):
    """Compute on the device of an array, with NumPy or CuPy."""
    if not _is_on_gpu(a):
        yield np
        return
    import cupy

    with a.device:
        yield cupy


def _together(a, b):
    """Return whether two arrays are in the memory of one device."""
    return _is_on_gpu(a) == _is_on_gpu(b) and (not _is_on_gpu(a) or a.device == b.device)


def _check_batch(batch, members):
    if not isinstance(batch, (int, np.integer)) or not 0 <= batch <= members:
        raise InvalidInput(
            f"batch must be a number of matrices, at most the {members} of the chunks. "
            f"Got {batch!r}."
        )


def _is_writable(a):
    return a.flags.c_contiguous if _is_on_gpu(a) else a.flags.carray


def _check_vectors(chunks, b):
    """Raise `InvalidInput` if b does not hold right-hand sides beside these chunks."""
    count, n, lanes = _chunked(chunks)
    kind, shape = getattr(b, "dtype", None), getattr(b, "shape", type(b).__name__)
    fits = kind == chunks.dtype and _together(chunks, b)
    fits = fits and len(shape) == 4 and (*shape[:2], shape[3]) == (count, n, lanes)
    if not fits or not _is_writable(b):
        raise InvalidInput(
            f"b must be ({count}, {n}, k, {lanes}) in C order, {chunks.dtype} as the chunks and in "
            f"the same memory; `interleave_vectors` makes it. Got {kind} {shape}."
        )
    if not _is_on_gpu(b) and np.may_share_memory(chunks, b):
        raise InvalidInput("b must not share memory with the chunks. Try b.copy().")


def _substituted_interleaved(chunks, b, passes):
    """Substitute in place: forward (False), backward (True); return b."""
    _check_vectors(chunks, b)
    if _is_on_gpu(chunks):
        _check_inverses(batched_gpu.singular(chunks))
        batched_gpu.substitute_chunks(chunks, b, passes)
    else:
        ways = False in passes, True in passes
        _check_inverses(batched_programs.substitution().substitute_chunks(chunks, b, *ways))
    return b


def _check_inverses(singular):
    """Raise `InvalidInput` if the number of a singular factor is not -1."""
    if singular >= 0:
        raise InvalidInput(f"the diagonal of factor {singular} holds a 0, a NaN or an infinity.")


def _lanes(chunk, batch, dtype, on="cpu"):
    """Return how many matrices lie side by side; see `Variant.chunk`."""
    unit = batched_gpu.WARP if on == "gpu" else lanes_of(dtype)
    return max(-(-batch // unit), 1) * unit if chunk == "batch" else chunk * unit


def _is_on_gpu(a):
    # quickly for CuPy's arrays, whose property takes microseconds; PyTorch's on a CPU have none
    kind = type(a)
    known = kind is not np.ndarray and kind.__module__.partition(".")[0] == "cupy"
    return known or hasattr(a, "__cuda_array_interface__")


def _checked(a):
    """Return a batch of matrices; raise `InvalidInput` if it is not one."""
    if a.ndim != 3 or a.shape[1] != a.shape[2]:
        hint = " Try a[None]." if a.ndim == 2 else ""
        raise InvalidInput(f"a batch of matrices must be (batch, n, n). Got {a.shape}.{hint}")
    if a.shape[1] > LARGEST_ORDER:
        raise InvalidInput(
            f"matrices of a batch must be of order {LARGEST_ORDER} or less. Got {a.shape[1]}; try "
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
    room = np.empty(int(np.prod(shape)) + simd.REGISTER_BYTES // dtype.itemsize, dtype)
    skip = -room.ctypes.data % simd.REGISTER_BYTES // dtype.itemsize
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
        lanes, row = _lanes(variant.chunk, batch, source.dtype), n * source.itemsize
        past_cache = (
            not own and row % simd.REGISTER_BYTES == 0 and source.nbytes >= BEYOND_CACHE_BYTES
        )
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
            variant = variant or variant_for(lower.shape[1], kind, "gpu", what="solve")
        return batched_gpu.substitute(lower, b, kind, passes, variant)
    if variant is not None:
        raise InvalidInput(
            "`variant` is for a GPU: leave it out on a CPU, where substitutions have no variants. "
            f"Got {variant}."
        )
    lower = np.ascontiguousarray(lower, kind)
    x = np.array(b.reshape(*b.shape[:2], -1) if b.size else b, kind, order="C")
    if x.size:
        ways = lanes_of(kind), False in passes, True in passes
        _check_inverses(batched_programs.substitution().substitute_batch(lower, x, *ways))
    return x.reshape(b.shape)


# The variant for an order, type, device and layout: the winner of a search, kept in `batched.json`
# of the user's cache directory, or else the entry of a table.

Layout = Literal["canonical", "interleaved"]
"""Matrix by matrix, as NumPy stores a batch; or in chunks, as `interleave` returns them."""

BATCH_LAYOUTS = ("canonical", "interleaved")

Task = Literal["potrf", "solve"]

BATCH_TASKS = ("potrf", "solve")

SHIPPED_VARIANTS = {
    "canonical": (
        (8, Variant("left", 4, 4, unroll=True)),
        (16, Variant("top", 4, 1, unroll=True)),
        (128, UNTUNED),
    ),
    "interleaved": (
        (8, Variant("left", 4, 2, unroll=True)),
        (16, Variant("top", 4, 2, unroll=True)),
        (128, UNTUNED),
    ),
}
"""Largest order, and the variant up to there (experiments/batched, one core with AVX-512). Each
order up to 16 is compiled by itself and kept on disk."""

BLOCK_PER_MATRIX = Variant(chunk=0)
"""A block of threads for each matrix, in shared memory, for any order. The untuned variant of
substitutions on a GPU."""

GLOBAL_MEMORY_VARIANTS = {"potrf": Variant("top", 4), "solve": Variant(chunk=0, block=(32, 1, 4))}
"""Variants for orders whose matrices exceed a block's shared memory. In FP64 these are orders above
104 where a block has at most 48 KB; with 64 KB, above 124 for `potrf` and above 120 for `solve`."""

SHIPPED_GPU_VARIANTS = {
    "canonical": (
        (2, Variant(chunk=0, block=(1, 1, 32))),
        (8, Variant(chunk=0, block=(4, 1, 16))),
        (16, Variant(chunk=0, block=(8, 1, 16))),
        (32, Variant(chunk=0, block=(16, 1, 2))),
        (48, Variant(chunk=0, block=(32, 1, 1))),
        (128, BLOCK_PER_MATRIX),
    ),
    "interleaved": ((24, Variant("left", 1)), (48, Variant("left", 2)), (128, Variant("top", 4))),
}
"""As SHIPPED_VARIANTS, on a GPU. Where a search on an H200 timed the shipped variant (orders 5 to
64), it took at most 4/3 of the fastest time (experiments/h200, stage i)."""

LARGEST_UNROLLED_ORDER = {"cpu": 24, "gpu": 16}
"""Largest order for which full unrolling is a candidate; compilation then takes seconds."""

COMPARED_BLOCK_SHAPES = 8
"""Blocks of threads that a search compares for the best panel width."""

LEAST_SPEEDUP = 1.03
"""Speed-up over the untuned variant from which on another is remembered."""


def variant_for(
    n: int,
    dtype: DTypeLike,
    on: str = "cpu",
    *,
    layout: Layout = "canonical",
    what: Task = "potrf",
) -> Variant:
    """Return the fastest known variant: the one remembered for this device, or the shipped one."""
    # empty matrices are those of any variant
    _check_search(max(n, 1), on, layout, what)
    known = remembered().get(_key(n, dtype, on, layout, what))
    if known is not None:
        return known
    if what == "solve":
        return by_blocks(n, dtype, what)
    shipped = (SHIPPED_GPU_VARIANTS if on == "gpu" else SHIPPED_VARIANTS)[layout]
    found = next(variant for most, variant in shipped if n <= most)
    return by_blocks(n, dtype, what) if found == BLOCK_PER_MATRIX else found


def by_blocks(n: int, dtype: DTypeLike, what: Task) -> Variant:
    """Return BLOCK_PER_MATRIX, or another variant if a matrix exceeds a block's shared memory."""
    size = np.dtype(dtype).itemsize
    excess = batched_gpu.excess(n, size, what, batched_gpu.limits())
    return GLOBAL_MEMORY_VARIANTS[what] if excess else BLOCK_PER_MATRIX


def _check_search(n, on, layout, what):
    """Raise `InvalidInput` for what has no variants."""
    if not 1 <= n <= LARGEST_ORDER:
        raise InvalidInput(f"variants are for orders 1 to {LARGEST_ORDER}. Got {n}.")
    for name, value, known in (("layout", layout, BATCH_LAYOUTS), ("what", what, BATCH_TASKS)):
        if value not in known:
            raise InvalidInput(f"{name} must be one of {', '.join(known)}. Got {value!r}.")
    if what == "solve" and (on != "gpu" or layout != "canonical"):
        raise InvalidInput(
            "substitutions have variants on a GPU only, for canonical batches. "
            f'Try on="gpu", layout="canonical". Got on={on!r}, layout={layout!r}.'
        )


def remembered() -> dict[str, Variant]:
    """Return the winners of earlier searches, {"device dtype n": Variant}.

    Keys of interleaved batches end in " interleaved", those of substitutions in " solve".
    """
    path = os.path.join(cache_directory(), "batched.json")
    try:
        return _read(path, os.stat(path).st_mtime_ns)
    except OSError:
        return {}


@cache
def _read(path, _changed):
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
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
    whole = variant.chunk == "batch" or (type(variant.chunk) is int and 0 <= variant.chunk <= 64)
    whole = whole and type(variant.tile) is int and 1 <= variant.tile <= 32
    block = (variant.panel, *variant.block)
    whole = whole and all(type(x) is int and 0 <= x <= 1024 for x in block)
    whole = whole and len(variant.block) in (0, 3) and not (variant.chunk and any(block))
    # all factors and solutions of this device would be less exact
    exact = variant.fast is False
    return whole and exact and variant.looking in LOOKING and type(variant.unroll) is bool


def remember(
    n: int,
    dtype: DTypeLike,
    variant: Variant,
    on: str = "cpu",
    *,
    layout: Layout = "canonical",
    what: Task = "potrf",
) -> None:
    """Keep a variant on disk; warn if that is not possible."""
    path = cache_directory() / "batched.json"
    known = remembered() | {_key(n, dtype, on, layout, what): variant}
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


def _key(n, dtype, on, layout, what):
    kind = " interleaved" * (layout == "interleaved") + " solve" * (what == "solve")
    return f"{device_name(on)} {np.dtype(dtype).name} {n}{kind}"


def _variant_of(chunks):
    on = "gpu" if _is_on_gpu(chunks) else "cpu"
    return variant_for(chunks.shape[1], chunks.dtype, on, layout="interleaved")


@cache
def device_name(on: str = "cpu") -> str:
    """Return the name of the device that timings belong to: the CPU, or the current GPU."""
    return batched_gpu.device_name() if on == "gpu" else binding.get_host_cpu_name()


def candidates(
    n: int,
    on: str = "cpu",
    dtype: DTypeLike = np.float64,
    *,
    layout: Layout = "canonical",
    what: Task = "potrf",
) -> list[Variant]:
    """Return the variants worth timing for an order; chunks of one register, or one warp.

    For canonical batches on a GPU also one with panels for each panel width, and one with rows in
    registers for each number of lanes; see `batched_gpu.panels` and `batched_gpu.rows`.
    Substitutions have variants only there.
    """
    if what == "solve":
        blocks = by_blocks(n, dtype, what)
        return list(dict.fromkeys((blocks, *batched_gpu.warps(batched_gpu.limits()))))
    tiles = (1, 2, 4) if on == "gpu" else (2, 3, 4)
    variants = [Variant(looking, t) for looking in LOOKING for t in tiles if t <= max(n, 2)]
    if n <= LARGEST_UNROLLED_ORDER[on]:
        variants += [Variant(looking, 4, unroll=True) for looking in LOOKING]
    if on == "gpu" and layout == "canonical":
        limits = batched_gpu.limits()
        by_width = batched_gpu.panels(n, dtype, limits)
        variants += [by_blocks(n, dtype, what), *(shapes[0] for shapes in by_width.values())]
        variants += batched_gpu.rows(n, dtype, limits)
    return list(dict.fromkeys(variants))


def _beside(best, n, dtype, layout, what):
    """Return variants like the best one of a race: larger chunks, or other blocks of threads."""
    if best.panel:
        return batched_gpu.panels(n, dtype, batched_gpu.limits())[best.panel][
            1:COMPARED_BLOCK_SHAPES
        ]
    if best.block and what == "potrf":
        return batched_gpu.rows(n, dtype, batched_gpu.limits(), best.block[0])
    sizes = (2, 4) if layout == "canonical" else (2, 4, "batch")
    return [replace(best, chunk=chunk) for chunk in sizes] if best.chunk else []


def search(
    n: int,
    dtype: DTypeLike = np.float64,
    on: str = "cpu",
    *,
    layout: Layout = "canonical",
    what: Task = "potrf",
    batch: int = 4000,
    rounds: int = 7,
    among: Sequence[Variant] | None = None,
) -> tuple[Variant, dict[Variant, float]]:
    """Find the fastest variant for an order and layout, and remember it; see `fastest`."""
    if any(variant.fast for variant in among or ()):
        raise InvalidInput(
            "a search remembers its winner for all later calls, which are not to be `fast`. "
            "Compare fast variants with `race`, and pass one to `potrf`."
        )
    kind = {"layout": layout, "what": what}
    winner, seconds = fastest(n, dtype, on, **kind, batch=batch, rounds=rounds, among=among)
    remember(n, dtype, winner, on, **kind)
    return winner, seconds


def fastest(
    n: int,
    dtype: DTypeLike = np.float64,
    on: str = "cpu",
    *,
    layout: Layout = "canonical",
    what: Task = "potrf",
    batch: int = 4000,
    rounds: int = 7,
    among: Sequence[Variant] | None = None,
) -> tuple[Variant, dict[Variant, float]]:
    """Return the fastest variant for an order and layout among some, and the median seconds of all.

    By default these are `candidates`, then the winner with larger chunks, and without chunks if the
    batch is interleaved; or the winner with other blocks of threads. Each is checked against LAPACK
    before it is timed, in turns with the others. The untuned variant takes part, and stays unless
    another is faster by `LEAST_SPEEDUP`, also in a second race of these two. The seconds are those
    of the first races. With ``what="solve"``, for canonical batches on a GPU, the variants are of
    `solve` with one right-hand side.
    """
    _check_search(n, on, layout, what)
    untuned = by_blocks(n, dtype, what) if what == "solve" else UNTUNED
    a = _matrices(n, dtype, batch)

    def raced(variants, rounds=rounds):
        right = [v for v in variants if _is_right(a, v, on, layout, what)]
        return race(right, a, on, rounds, layout, what)

    first = among or candidates(n, on, dtype, layout=layout, what=what)
    seconds = raced(dict.fromkeys((untuned, *first)))
    if among is None:
        best = min(seconds, key=seconds.get)
        seconds |= raced(dict.fromkeys((best, *_beside(best, n, dtype, layout, what))))
    winner = min(seconds, key=seconds.get)
    if winner != untuned:
        last = raced((untuned, winner), 2 * rounds)
        if last.get(untuned, math.inf) < LEAST_SPEEDUP * last[winner]:
            winner = untuned
    return winner, seconds


def _matrices(n, dtype, batch):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((16, n, n))
    some = x @ x.transpose(0, 2, 1) + n * np.eye(n)
    return np.ascontiguousarray(np.resize(some, (batch, n, n)), dtype)


def _is_right(a, variant, on, layout, what):
    """Return whether a variant's factors or solutions are LAPACK's; warn if they are not."""
    some = a[: 3 * 64 + 1]
    expected = np.linalg.cholesky(some)
    if what == "solve":
        found = solve(_on(expected, on), _on(some[:, 0], on), variant=variant)
        # of A x = A e_1, with matrices whose condition is small
        expected = np.broadcast_to(np.eye(a.shape[1])[0], found.shape)
    elif layout == "interleaved":
        chunks = interleave(_on(some, on), _lanes(variant.chunk, len(some), a.dtype, on))
        potrf_interleaved(chunks, variant=variant)
        found = separate(chunks, len(some))
    else:
        found = potrf(_on(some, on), variant=variant)
    found = found if on == "cpu" else found.get()
    u = np.finfo(a.dtype).eps / 2
    if abs(found - expected).max() <= 8 * (a.shape[1] + 1) * u * abs(expected).max():
        return True
    wrong = "solutions" if what == "solve" else "factors"
    warnings.warn(f"{variant} gives wrong {wrong} on this device.", GeomxpWarning, stacklevel=4)
    return False


def _on(a, on):
    if on == "cpu":
        return a
    import cupy

    return cupy.asarray(a)


def race(
    variants: Sequence[Variant],
    a: AnyArray,
    on: str,
    rounds: int,
    layout: Layout = "canonical",
    what: Task = "potrf",
) -> dict[Variant, float]:
    """Return the median seconds of each variant; they take turns.

    In the interleaved layout, chunks are factored in place; restoring them is not timed. With
    ``what="solve"`` lower triangles of `a` are the factors.
    """
    a = _on(a, on)
    b = a[:, 0].copy()
    seconds = {variant: [] for variant in variants}
    rooms = {}
    if layout == "interleaved":
        for chunk in {variant.chunk for variant in variants}:
            kept = interleave(a, _lanes(chunk, len(a), a.dtype, on))
            rooms[chunk] = kept, kept.copy()
    for k in range(rounds + 1):
        for variant in variants:
            if rooms:
                kept, chunks = rooms[variant.chunk]
                chunks[...] = kept
                _wait(on)
            start = time.perf_counter()
            if what == "solve":
                solve(a, b, variant=variant)
                _wait(on)
            # factorizations wait for `info`
            elif rooms:
                potrf_interleaved(chunks, variant=variant)
            else:
                potrf(a, check=False, variant=variant)
            if k:
                seconds[variant].append(time.perf_counter() - start)
    return {variant: float(np.median(times)) for variant, times in seconds.items()}


def _wait(on):
    if on == "gpu":
        import cupy

        cupy.cuda.get_current_stream().synchronize()
