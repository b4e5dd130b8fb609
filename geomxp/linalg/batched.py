"""Thousands of small Cholesky factorizations and substitutions at once (paper 004).

Matrices of a batch lie interleaved while they are computed on: `chunk[i, j, m]` is entry (i, j) of
matrix m, so that one SIMD instruction of a CPU serves a register of matrices, and one memory
transaction of a GPU a warp. Only the lower triangle (j <= i) is read and written. `potrf` and
`solve` take batches as NumPy has them and pack chunk by chunk; `factor_chunk`, `forward_chunk`,
`backward_chunk` and `backward_last` work on a chunk in place, and may be called from functions
compiled by numba (without the interpreter's lock; FP64 or FP32). On a GPU, matrices above order 32,
and those of all substitutions, are not interleaved: a block of threads holds each in shared memory.

    chunk : (rows, ld, lanes) ndarray, C order, n <= rows, n <= ld
    lanes : a multiple of `lanes_of(dtype)`; lanes without a matrix must hold one, say the identity

Numba's cache of such a function, in a file that has not changed itself, does not see a change of
these: delete it after one.

Every variant and every layout gives the same bits: the same products are subtracted in the same
order, each with one rounding. The CUDA source is tested on an emulator; it has not yet run
on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from ..errors import InvalidInput, NotPositiveDefinite
from ..linalg import batched_layout, batched_programs, tuning
from .simd import REGISTER, width

if TYPE_CHECKING:
    from .._typing import Any, AnyArray, DTypeLike, Floats, Whole
    from .batched_programs import Variant

MOST = 128
"""The largest order."""

BEYOND_CACHE = 2**24
"""Bytes of a batch that a CPU's caches do not hold: its factors go straight to memory."""

factor_chunk = batched_programs.factorization().factor_chunk
"""factor_chunk(a, n): the first n rows of a chunk <- their Cholesky factors.

A matrix that is not positive definite has a diagonal entry that is 0, infinite or NaN; so are, or
NaN, all that follow it. The others are not touched by it.
"""

forward_chunk = batched_programs.substitution(False).forward_chunk
"""forward_chunk(lower, b, n): b (n, k, lanes) <- L⁻¹b."""

backward_chunk = batched_programs.substitution(True).backward_chunk
"""backward_chunk(lower, b, n): b (n, k, lanes) <- L'⁻¹b."""

backward_last = batched_programs.substitution(True).backward_last
"""backward_last(lower, x, n): x (n, 1, lanes) <- L'⁻¹e, e the last unit vector: L⁻¹'s last row."""


def lanes_of(dtype: DTypeLike) -> int:
    """Return how many matrices a SIMD register of this CPU serves; a chunk has whole ones."""
    return width(dtype)


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
        FP32 or FP64; other real numbers become FP64. Only lower triangles count. n is at most 128.
    overwrite : bool
        Whether the factors may take a's place, if it is contiguous and of that type.
    check : bool
        Whether a matrix without a factor raises an error; else it is told in `info`.
    variant : Variant, optional
        How it is computed, by default the fastest known (`geomxp.linalg.tuning`).

    Returns
    -------
    lower : (batch, n, n) array, as a
        With zeros above the diagonal. Of a matrix without a factor: NaN.
    info : (batch,) ndarray of int
        Only with ``check=False``: 0; k where the leading minor of order k is not positive; -k
        where row k holds a NaN or an infinity.

    Raises
    ------
    NotPositiveDefinite
        With the index of the first such matrix in its text, of all of them in `members`, and with
        the other factors in `lower`.
    InvalidInput
        If an entry is NaN or infinite, or `a` is no such batch.

    Examples
    --------
    >>> lower = potrf(np.array([[[4.0, 2.0], [2.0, 5.0]]]))
    >>> lower[0].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    if not isinstance(a, np.ndarray) and hasattr(a, "__cuda_array_interface__"):
        from ..linalg import batched_gpu

        lower, info = batched_gpu.potrf(_checked(a), overwrite, variant)
        return (lower, info) if not check else _raised(lower, info)
    given = _checked(np.asarray(a))
    source = np.require(given, _real(given.dtype), ("C", "A"))
    own = not np.may_share_memory(source, given) or (overwrite and source.flags.writeable)
    lower = source if own else _aligned(source.shape, source.dtype)
    batch, n, _ = source.shape
    info = np.zeros(batch, np.int64)
    if source.size:
        variant = variant or tuning.variant_for(n, source.dtype)
        if not variant.chunk:
            raise InvalidInput("a variant with chunk=0 is for a GPU. On a CPU chunk is 1 or more.")
        program = batched_programs.factorization(variant, n)
        lanes, row = variant.chunk * lanes_of(source.dtype), n * source.itemsize
        past_cache = not own and row % REGISTER == 0 and source.nbytes >= BEYOND_CACHE
        program.factor_batch(source, lower, info, lanes, past_cache)
    return (lower, info) if not check else _raised(lower, info)


def solve(lower: AnyArray, b: AnyArray) -> AnyArray:
    """Solve L L' x = b for each matrix of a batch.

    Parameters
    ----------
    lower : (batch, n, n) ndarray or cupy.ndarray
        From `potrf`.
    b : (batch, n) or (batch, n, k) array

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
    return _substituted(lower, b, (False, True))


def forward(lower: AnyArray, b: AnyArray) -> AnyArray:
    """Return x of L x = b; see `solve`."""
    return _substituted(lower, b, (False,))


def backward(lower: AnyArray, b: AnyArray) -> AnyArray:
    """Return x of L' x = b; see `solve`."""
    return _substituted(lower, b, (True,))


def interleave(a: Floats, lanes: int | None = None) -> Floats:
    """Return a batch in chunks, (chunks, n, n, lanes); what fills the last one is the identity.

    Parameters
    ----------
    a : (batch, n, n) ndarray
    lanes : int, optional
        Matrices in a chunk: a multiple of `lanes_of`; by default what is fastest for the order.
    """
    a = _checked(np.asarray(a))
    a = np.ascontiguousarray(a, _real(a.dtype))
    batch, n, _ = a.shape
    lanes = lanes or lanes_of(a.dtype) * tuning.registers_of(n)
    if lanes % lanes_of(a.dtype):
        raise InvalidInput(
            f"lanes must be a multiple of {lanes_of(a.dtype)} for {a.dtype}. Got {lanes}."
        )
    chunks = np.zeros((-(-batch // lanes), n, n, lanes), a.dtype)
    for c, chunk in enumerate(chunks):
        members = min(lanes, batch - c * lanes)
        batched_layout.pack_lower(a.reshape(-1), n, c * lanes, members, chunk.reshape(-1), lanes)
    return chunks


def separate(chunks: Floats, batch: int) -> Floats:
    """Return the lower triangles of a batch of so many matrices from its chunks."""
    _, n, _, lanes = chunks.shape
    a = np.empty((batch, n, n), chunks.dtype)
    to = a.reshape(-1)
    for c, chunk in enumerate(chunks):
        flat = chunk.reshape(-1)
        batched_layout.clear_upper(flat, n, lanes)
        members = min(lanes, batch - c * lanes)
        batched_layout.unpack_lower(flat, n, lanes, to, c * lanes, members, to, False)
    return a


def potrf_interleaved(chunks: Floats, *, variant: Variant | None = None) -> Whole:
    """Factor chunks in place.

    Parameters
    ----------
    chunks : (chunks, n, n, lanes) ndarray, C order
        As from `interleave`.
    variant : Variant, optional

    Returns
    -------
    (chunks · lanes,) ndarray of int
        As `info` of `potrf`; a NaN or an infinity counts as no positive minor.

    Raises
    ------
    InvalidInput
        If they are no such chunks.
    """
    width = lanes_of(chunks.dtype) if chunks.dtype in (np.float32, np.float64) else 0
    fits = chunks.ndim == 4 and chunks.shape[1] == chunks.shape[2] and width
    if not fits or chunks.shape[3] % width or not chunks.flags.carray:
        raise InvalidInput(
            "chunks must be (chunks, n, n, lanes) in C order, as `interleave` makes them: FP32 or "
            f"FP64, with lanes of whole registers ({width or '8 or 16'} here). "
            f"Got {chunks.dtype} {chunks.shape}."
        )
    _, n, _, lanes = chunks.shape
    variant = variant or tuning.variant_for(n, chunks.dtype)
    info = np.zeros(len(chunks) * lanes, np.int64)
    batched_programs.factorization(variant, n).factor_chunks(chunks, info)
    return info


def _checked(a):
    """Return a batch of matrices, or say what is wrong with it."""
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
    """Return an empty array whose memory begins where a SIMD register's may."""
    room = np.empty(int(np.prod(shape)) + REGISTER // dtype.itemsize, dtype)
    skip = -room.ctypes.data % REGISTER // dtype.itemsize
    return room[skip : skip + int(np.prod(shape))].reshape(shape)


def _raised(lower, info):
    """Return the factors, or raise what `info` says."""
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


def _substituted(lower, b, passes):
    """Return b after the substitutions: forward (False), backward (True)."""
    if not isinstance(lower, np.ndarray) and hasattr(lower, "__cuda_array_interface__"):
        from ..linalg import batched_gpu

        return batched_gpu.substitute(_checked(lower), b, passes)
    lower, b = _checked(np.asarray(lower)), np.asarray(b)
    if b.ndim not in (2, 3) or b.shape[:2] != lower.shape[:2]:
        raise InvalidInput(
            f"b must be (batch, n) or (batch, n, k), with lower {lower.shape}. Got {b.shape}."
        )
    kind = _real(lower.dtype, b.dtype)
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
