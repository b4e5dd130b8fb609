"""Batched factorizations on a GPU.

There are two ways to factor: a block of threads holds one matrix in shared memory
(`cuda/batched.cu`), or each thread factors one matrix of an interleaved chunk, by a program
translated from the text that numba compiles for the CPU. `batched.variant_for` chooses by the
order. Substitutions use a block for each matrix, and a thread for each one of an interleaved
chunk. All give the bits of the CPU.

Tested on a CUDA emulator; not yet run on a real GPU.
"""

import re
from functools import cache

import numpy as np

from ..cuda import OPTIONS, module, source
from ..errors import InvalidInput
from . import batched_programs
from .batched_programs import MOST, UNTUNED

WARP = 32
"""Matrices of a chunk, and threads of a block, for each unit of `Variant.chunk`."""

MOVERS = 256
"""Threads of a block that packs or unpacks 32 matrices."""

WIDEST = 128
"""Threads of a block in interleaved chunks of that many matrices or more."""

KERNEL = """
extern "C" __global__ void potrf_{suffix}({real} *a, int n, int lanes, long long matrices)
{{
    const long long m = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (m < matrices) {{
        potrf(a + m / lanes * n * n * lanes, n, n, lanes, (int)(m % lanes));
    }}
}}
"""

SUBSTITUTION = """
extern "C" __global__ void substitute_{suffix}(const {real} *a, {real} *b, int n, int columns,
                                               int lanes, long long matrices, int forwards,
                                               int backwards)
{{
    const long long m = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const int lane = (int)(m % lanes);
    if (m < matrices) {{
        a += m / lanes * n * n * lanes;
        b += m / lanes * n * columns * lanes;
        if (forwards) forward(a, b, n, n, columns, lanes, lane, lane);
        if (backwards) backward(a, b, n, n, columns, lanes, lane, lane);
    }}
}}
"""

FUNCTION = """template <class Real>
BOTH void {name}({arguments})
{{
{body}
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
            step = (*step, "1")[0]
            sign = ">" if step.startswith("-") else "<"
            text = f"for ({name} = {start}; {name} {sign} {stop}; {name} += {step}) {{"
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


def _function(name, arguments, lines, declared=()):
    """Return a program as a function in C++."""
    body, integers, numbers = translated(lines)
    lines = [f"int {', '.join(integers)};", f"Real {', '.join(numbers)};", *declared, *body]
    text = "\n".join("    " + line for line in lines)
    return FUNCTION.format(name=name, arguments=arguments, body=text)


def _source(functions, kernel):
    """Return CUDA C++ with functions, and a kernel of them for both types."""
    kinds = ("fp64", "double"), ("fp32", "float")
    kernels = "".join(kernel.format(suffix=suffix, real=real) for suffix, real in kinds)
    return source("batched.cuh") + functions + "#ifdef __CUDACC__\n" + kernels + "#endif\n"


def potrf_text(variant=UNTUNED, n=None):
    """Return CUDA C++ with kernels potrf_fp64 and potrf_fp32; if unrolled, for one order n."""
    room = "const int width = 1;", f"Real inverse[{n or MOST}];"
    arguments = "Real *a, int n, int ld, int lanes, int first"
    lines = batched_programs.potrf(variant, n)
    return _source(_function("potrf", arguments, lines, room), KERNEL)


def substitution_text():
    """Return CUDA C++ with kernels substitute_fp64 and substitute_fp32 for interleaved chunks."""
    arguments = "const Real *a, Real *b, int n, int ld, int columns, int lanes, int first, "
    functions = (
        _function(name, arguments + "int start", batched_programs.substitution_text(back))
        for name, back in (("forward", False), ("backward", True))
    )
    return _source("".join(functions), SUBSTITUTION)


@cache
def _module(text):
    import cupy

    return cupy.RawModule(code=text, options=OPTIONS)


def _kernel(name, dtype):
    """Return a kernel of cuda/batched.cu."""
    return module("batched.cu").get_function(f"{name}_{_suffix(dtype)}")


def _suffix(dtype):
    return "fp32" if dtype == np.float32 else "fp64"


def _view(a):
    """Return an array and its strides in entries."""
    return a, *(step // a.itemsize for step in a.strides)


def _per_matrix(name, a, arguments, beside=0):
    """Launch a kernel with one block for each matrix; shared memory has `beside` more numbers."""
    batch, n, _ = a.shape
    kernel, order = _kernel(name, a.dtype), _padded(n)
    # start_of(order) + order, as cuda/batched.cu has them
    shared = (order * (order + 4 - order // 2) + beside) * a.itemsize
    # never reduced: other threads may launch the kernel for other orders
    most = max(shared, kernel.max_dynamic_shared_size_bytes)
    kernel.max_dynamic_shared_size_bytes = most
    kernel.preferred_shared_memory_carveout = 100
    kernel((batch,), (-(-n // WARP) * WARP,), arguments, shared_mem=shared)


def _padded(n):
    return -(-n // 4) * 4


def in_chunks(a, lanes):
    """Return (chunks, n, n, lanes) of a batch's lower triangles; see `batched.interleave`.

    Entries above the diagonal are undefined. `lanes` is a multiple of 32.
    """
    import cupy

    batch, n, _ = a.shape
    with a.device:
        chunks = cupy.empty((-(-batch // lanes), n, n, lanes), a.dtype)
        if chunks.size:
            groups = len(chunks) * lanes // WARP
            _kernel("pack", a.dtype)((groups,), (MOVERS,), (*_view(a), chunks, n, lanes, batch))
    return chunks


def device_name():
    """Return the name of the current GPU."""
    from cupy.cuda import runtime

    return runtime.getDeviceProperties(runtime.getDevice())["name"].decode()


def potrf(a, dtype, overwrite, variant):
    """Return factors and info; see `geomxp.linalg.batched.potrf`."""
    import cupy

    given, (batch, n, _) = a, a.shape
    with a.device:
        a = a.astype(dtype, copy=False)
        own = (overwrite or a is not given) and a.flags.c_contiguous
        lower, info = a if own else cupy.empty(a.shape, a.dtype), cupy.empty(batch, np.int64)
        if not a.size:
            return lower, np.zeros(batch, np.int64)
        if variant.chunk:
            _interleaved(a, lower, info, variant)
        else:
            _per_matrix("factor", a, (*_view(a), lower, info, n))
        return lower, info.get()


def _interleaved(a, lower, info, variant):
    """Write factors and info; one thread factors one matrix of an interleaved chunk."""
    batch, n, _ = a.shape
    lanes = -(-batch // WARP) if variant.chunk == "batch" else variant.chunk
    chunks = in_chunks(a, lanes * WARP)
    factor_chunks(chunks, variant)
    entries = *_view(a), chunks, lower, info, n, lanes * WARP, batch
    _kernel("unpack", a.dtype)((-(-batch // WARP),), (MOVERS,), entries)


def _per_thread(text, name, chunks, before, after=(), columns=1):
    """Launch a kernel(*before, lanes, matrices, *after) with a thread for each matrix of chunks."""
    count, n, _, lanes = chunks.shape
    wide = max(n, columns)
    if n * wide * lanes >= 2**31:
        raise InvalidInput(
            f"a chunk must have less than 2^31 entries on a GPU. Got {n} x {wide} x {lanes}; use "
            "smaller chunks, such as interleave(a, 32)."
        )
    if not chunks.size:
        return
    kernel = _module(text).get_function(f"{name}_{_suffix(chunks.dtype)}")
    threads, matrices = min(lanes, WIDEST), count * lanes
    sizes = *before, np.int32(lanes), np.int64(matrices), *after
    kernel((-(-matrices // threads),), (threads,), sizes)


def factor_chunks(chunks, variant):
    """Factor chunks in place; nothing is checked."""
    n = chunks.shape[1]
    text = potrf_text(variant, n if variant.unroll else None)
    _per_thread(text, "potrf", chunks, (chunks, np.int32(n)))


def _proper(diagonal):
    """Return which entries of diagonals are positive and finite, (chunks lanes, n)."""
    count, lanes, n = diagonal.shape
    return ((diagonal > 0) & (diagonal < np.inf)).get().reshape(count * lanes, n)


def potrf_chunks(chunks, variant):
    """Factor chunks in place; return info; see `batched.potrf_interleaved`."""
    with chunks.device:
        factor_chunks(chunks, variant)
        good = _proper(chunks.diagonal(axis1=1, axis2=2))
    return np.where(good.all(axis=1), 0, good.argmin(axis=1) + 1)


def singular(chunks):
    """Return the first matrix whose diagonal has a 0, a NaN or an infinity, or -1."""
    with chunks.device:
        good = _proper(abs(chunks.diagonal(axis1=1, axis2=2)))
    wrong = np.flatnonzero(~good.all(axis=1))
    return int(wrong[0]) if wrong.size else -1


def substitute_chunks(chunks, b, passes):
    """Substitute in place, forward (False) and backward (True), for interleaved chunks."""
    ways = np.int32(False in passes), np.int32(True in passes)
    before = chunks, b, np.int32(chunks.shape[1]), np.int32(b.shape[2])
    with chunks.device:
        _per_thread(substitution_text(), "substitute", chunks, before, ways, b.shape[2])


def separate(chunks, batch):
    """Return the lower triangles of the first `batch` matrices."""
    import cupy

    n = chunks.shape[1]
    with chunks.device:
        return cupy.tril(chunks.transpose(0, 3, 1, 2).reshape(-1, n, n)[:batch])


def substitute(lower, b, dtype, passes):
    """Return b after forward (False) or backward (True) substitution, or both in this order."""
    import cupy

    if getattr(b, "device", None) != lower.device:
        raise InvalidInput(
            f"b must be on the GPU of lower, {lower.device}. Got {getattr(b, 'device', type(b))}."
        )
    with lower.device:
        x = cupy.empty(b.shape, dtype)
        if b.size:
            lower, b = lower.astype(dtype, copy=False), b.astype(dtype, copy=False)
            b = b.reshape(*b.shape[:2], -1)
            (_, n, columns), ways = b.shape, (int(False in passes), int(True in passes))
            entries = *_view(lower), *_view(b), x, n, columns, *ways
            # reciprocals of the diagonal, and twice four rows of four right-hand sides
            _per_matrix("solve", lower, entries, _padded(n) + 32)
        return x
