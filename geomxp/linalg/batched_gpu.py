"""Batched factorizations on a GPU.

There are two ways to factor: a block of threads holds one matrix in shared memory
(`cuda/batched.cu`), or each thread factors one matrix of an interleaved chunk, by a program
translated from the text that numba compiles for the CPU. `batched.variant_for` chooses by the
order. Substitutions use a block for each matrix. All give the bits of the CPU.

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

KERNEL = """
extern "C" __global__ void potrf_{suffix}({real} *a, int n, long long matrices)
{{
    const int lanes = blockDim.x;
    const long long chunk = blockIdx.x;
    if (chunk * lanes < matrices) {{
        potrf(a + chunk * n * n * lanes, n, n, lanes, (int)threadIdx.x);
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
            text = f"for ({name} = {start}; {name} < {stop}; {name} += {(*step, 1)[0]}) {{"
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


def potrf_text(variant=UNTUNED, n=None):
    """Return CUDA C++ with kernels potrf_fp64 and potrf_fp32; if unrolled, for one order n."""
    body, integers, numbers = translated(batched_programs.potrf(variant, n))
    lines = [
        f"int {', '.join(integers)};",
        f"Real {', '.join(numbers)};",
        *("const int width = 1;", f"Real inverse[{n or MOST}];"),
        *body,
    ]
    text = source("batched.cuh") + "template <class Real>\n"
    text += "BOTH void potrf(Real *a, int n, int ld, int lanes, int first)\n{\n"
    text += "\n".join("    " + line for line in lines) + "\n}\n#ifdef __CUDACC__\n"
    kinds = ("fp64", "double"), ("fp32", "float")
    return text + "".join(KERNEL.format(suffix=s, real=r) for s, r in kinds) + "#endif\n"


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


def in_chunks(xp, a, lanes):
    """Return (chunks, n, n, lanes) of a batch's lower triangles; see `batched.interleave`.

    Entries above the diagonal are undefined. `lanes` is a multiple of 32; `xp` is CuPy.
    """
    batch, n, _ = a.shape
    chunks = xp.empty((-(-batch // lanes), n, n, lanes), a.dtype)
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
    import cupy

    (batch, n, _), lanes = a.shape, WARP * variant.chunk
    chunks = in_chunks(cupy, a, lanes)
    kernel = _module(potrf_text(variant, n if variant.unroll else None))
    order, matrices = np.int32(n), np.int64(len(chunks) * lanes)
    kernel = kernel.get_function(f"potrf_{_suffix(a.dtype)}")
    kernel((len(chunks),), (lanes,), (chunks, order, matrices))
    entries = *_view(a), chunks, lower, info, n, lanes, batch
    _kernel("unpack", a.dtype)((-(-batch // WARP),), (MOVERS,), entries)


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
