"""Batched factorizations on a GPU: each thread factors one matrix, each warp 32 interleaved ones.

The CUDA source is generated from the text that numba compiles for the CPU and gives the same bits.
CuPy packs and unpacks the matrices. Tested on a CUDA emulator; not yet run on a real GPU.
"""

import re
from functools import cache

import numpy as np

from ..cuda import OPTIONS, source
from ..errors import InvalidInput
from . import batched_text
from .batched_text import Variant

WARP = 32
"""Matrices of a chunk, times `Variant.chunk`; as many threads are a block."""

MOST = 128

KERNELS = """
extern "C" __global__ void {name}_{suffix}({real} *a, {extra}int n, long long matrices)
{{
    const int lanes = blockDim.x;
    const long long chunk = blockIdx.x;
    if (chunk * lanes < matrices) {{
        {name}(a + chunk * n * n * lanes, {call}n, n, lanes, (int)threadIdx.x{columns});
    }}
}}
"""


def translated(lines):
    """Return lines of a program in C++, and the names of its integers and of its numbers."""
    out, depths, integers, numbers = [], [], set(), set()
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 4
        while depths and depth <= depths[-1]:
            out.append("    " * depths.pop() + "}")
        text, indent = line.strip().replace("//", "/"), "    " * depth
        loop = re.fullmatch(r"for (\w+) in range\((.*)\):", text)
        if loop:
            name, (start, stop, *step) = loop[1], loop[2].split(", ")
            step = int(step[0]) if step else 1
            compare = "<" if step > 0 else ">"
            text = f"for ({name} = {start}; {name} {compare} {stop}; {name} += {step}) {{"
            integers.add(name)
            depths.append(depth)
        elif text.startswith("if "):
            text = f"if ({text[3:-1]}) {{"
            depths.append(depth)
        else:
            target = re.match(r"(\w+) = ", text)
            if target:
                called = re.search(r"= (load|minus|times|root|reciprocal)\(", text)
                (numbers if called else integers).add(target[1])
            text += ";"
        out.append(indent + text)
    out += ["    " * depth + "}" for depth in reversed(depths)]
    return out, sorted(integers), sorted(numbers)


def _function(name, lines, extra, columns, room):
    """Return a program as a function template of C++."""
    body, integers, numbers = translated(lines)
    body = [f"int {', '.join(integers)};", f"Real {', '.join(numbers)};", *room, *body]
    head = f"template <class Real>\nBOTH void {name}(Real *a, {extra}int n, int ld, int lanes, int "
    return head + f"first{columns})\n{{\n" + "\n".join("    " + line for line in body) + "\n}\n"


def potrf_text(variant=None, n=None):
    """Return CUDA C++ with kernels potrf_fp64 and potrf_fp32.

    Parameters
    ----------
    variant : Variant, optional
    n : int, optional
        The only order; needed where the variant is unrolled.
    """
    variant = variant or Variant()
    lines = batched_text.potrf(variant, n)
    room = ["const int width = 1;", f"Real inverse[{n or MOST}];"]
    return _with_kernels("potrf", lines, "", "", room)


def substitution_text(backward, tile=4):
    """Return CUDA C++ with kernels forward_fp64 and so on; b has `columns` right-hand sides."""
    lines = batched_text.substitution(tile, backward)
    name = "backward" if backward else "forward"
    return _with_kernels(name, lines, "Real *b, ", ", int columns", [])


def _with_kernels(name, lines, extra, columns, room):
    text = source("batched.cuh") + _function(name, lines, extra, columns, room)
    text += "#ifdef __CUDACC__\n"
    for suffix, real in (("fp64", "double"), ("fp32", "float")):
        call = "b + chunk * n * columns * lanes, " if extra else ""
        more = extra.replace("Real", real) + (columns[2:] + ", " if columns else "")
        last = ", columns" if columns else ""
        text += KERNELS.format(
            name=name, suffix=suffix, real=real, extra=more, call=call, columns=last
        )
    return text + "#endif\n"


@cache
def _module(text):
    import cupy

    return cupy.RawModule(code=text, options=OPTIONS)


def in_chunks(xp, a, lanes, square=True):
    """Return (chunks, n, k, lanes) of a batch (batch, n, k), what is missing the identity, or 0."""
    batch, n, k = a.shape
    count = -(-batch // lanes)
    whole = xp.zeros((count * lanes, n, k), a.dtype)
    whole[:batch] = a
    if square:
        whole[batch:] = xp.eye(n, dtype=a.dtype)
    return xp.ascontiguousarray(whole.reshape(count, lanes, n, k).transpose(0, 2, 3, 1))


def as_batch(xp, chunks, batch):
    """Return the batch of so many matrices from its chunks."""
    count, n, k, lanes = chunks.shape
    return xp.ascontiguousarray(chunks.transpose(0, 3, 1, 2)).reshape(count * lanes, n, k)[:batch]


def judged(xp, lower, a):
    """Return factors with zeros above, or NaN where there is none, and LAPACK's info, in NumPy."""
    diagonal = xp.diagonal(lower, axis1=1, axis2=2)
    wrong = ~((diagonal > 0) & (diagonal < np.inf))
    info = xp.where(wrong.any(axis=1), wrong.argmax(axis=1) + 1, 0)
    lower = xp.tril(lower)
    lower = xp.where((info > 0)[:, None, None], xp.tril(xp.full_like(lower, np.nan)), lower)
    broken = ~xp.isfinite(xp.tril(a)).all(axis=2)
    info = xp.where(broken.any(axis=1), -1 - broken.argmax(axis=1), info)
    return lower, info if xp is np else info.get()


def potrf(a, overwrite=False, variant=None):
    """Return factors and info; see `geomxp.dense.batched.potrf`.

    Parameters
    ----------
    a : (batch, n, n) cupy.ndarray
    overwrite : bool
    variant : Variant, optional
    """
    import cupy

    from . import tuning

    given, batch, n = a, len(a), a.shape[1]
    single = a.dtype == np.float32
    with a.device:
        a = a.astype(np.float32 if single else np.float64, copy=False)
        if not a.size:
            return a.copy(), np.zeros(batch, np.int64)
        variant = variant or tuning.variant_for(n, a.dtype, "gpu")
        lanes = WARP * variant.chunk
        chunks = in_chunks(cupy, a, lanes)
        text = potrf_text(variant, n if variant.unroll else None)
        kernel = _module(text).get_function("potrf_fp32" if single else "potrf_fp64")
        order, matrices = np.int32(n), np.int64(len(chunks) * lanes)
        kernel((len(chunks),), (lanes,), (chunks, order, matrices))
        lower, info = judged(cupy, as_batch(cupy, chunks, batch), a)
        if overwrite and a is given:
            given[...] = lower
            lower = given
    return lower, info


def substitute(lower, b, passes):
    """Return b after substitutions; see `geomxp.dense.batched.solve`.

    Parameters
    ----------
    lower : (batch, n, n) cupy.ndarray
    b : (batch, n) or (batch, n, k) cupy.ndarray
    passes : sequence of bool
        Backward or not.
    """
    import cupy

    if b.ndim not in (2, 3) or b.shape[:2] != lower.shape[:2]:
        raise InvalidInput(
            f"b must be (batch, n) or (batch, n, k), with lower {lower.shape}. Got {b.shape}."
        )
    single = lower.dtype == b.dtype == np.float32
    kind, suffix = (np.float32, "fp32") if single else (np.float64, "fp64")
    with lower.device:
        if not b.size:
            return b.astype(kind)
        x = in_chunks(cupy, b.reshape(*b.shape[:2], -1).astype(kind), WARP, False)
        a = in_chunks(cupy, lower.astype(kind), WARP)
        for backward in passes:
            name = "backward" if backward else "forward"
            kernel = _module(substitution_text(backward)).get_function(f"{name}_{suffix}")
            sizes = np.int32(x.shape[2]), np.int32(a.shape[1]), np.int64(len(a) * WARP)
            kernel((len(a),), (WARP,), (a, x, *sizes))
        return as_batch(cupy, x, len(b)).reshape(b.shape)
