"""Batched factorizations on a GPU.

There are four ways to factor: each thread factors one matrix of an interleaved chunk, by a program
translated from the text that numba compiles for the CPU; a block of threads holds one matrix in
shared memory (`cuda/batched.cu`); a block holds a panel in registers and reads the panels to its
left again (`cuda/panels.cu`, Algorithm 5 of paper 004); or some lanes of a warp hold the rows of a
matrix in registers (`cuda/rows.cu`). Substitutions use a block or a warp for each matrix, or a
thread for each one of an interleaved chunk. `batched.variant_for` chooses. All give the bits of the
CPU, unless `Variant.fast`.
"""

import re
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from threading import Lock

import numpy as np

from ..cuda import COMPILER_OPTIONS, module, source
from ..errors import InvalidInput
from . import batched_programs
from .batched_programs import LARGEST_ORDER, SUBSTITUTION_COLUMNS, UNTUNED, Variant

WARP = 32
"""Matrices of a chunk, and threads of a block, for each unit of `Variant.chunk`."""

PACKING_THREADS = 256
"""Threads of a block that packs or unpacks 32 matrices."""

MOST_SUBSTITUTING_WARPS = 16
"""Most warps of a block that substitute, each in one matrix."""
CHUNK_THREADS = 128
"""Threads of a block in interleaved chunks of that many matrices or more."""

POTRF_KERNEL = """
extern "C" __global__ void potrf_{suffix}({real} *a, int n, int lanes, long long matrices)
{{
    const long long m = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (m < matrices) {{
        potrf(a + m / lanes * n * n * lanes, n, n, lanes, (int)(m % lanes));
    }}
}}
"""

SUBSTITUTION_KERNEL = """
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

FUNCTION_TEMPLATE = """template <class Real>
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
                called = re.search(r"= (load|minus|times|root|inverse_root|reciprocal)\(", text)
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
    return FUNCTION_TEMPLATE.format(name=name, arguments=arguments, body=text)


def _source(functions, kernel):
    """Return CUDA C++ with functions, and a kernel of them for both types."""
    kinds = ("fp64", "double"), ("fp32", "float")
    kernels = "".join(kernel.format(suffix=suffix, real=real) for suffix, real in kinds)
    return source("batched.cuh") + functions + "#ifdef __CUDACC__\n" + kernels + "#endif\n"


def potrf_text(variant=UNTUNED, n=None):
    """Return CUDA C++ with kernels potrf_fp64 and potrf_fp32; if unrolled, for one order n."""
    room = "const int width = 1;", f"Real inverse[{n or LARGEST_ORDER}];"
    arguments = "Real *a, int n, int ld, int lanes, int first"
    lines = batched_programs.potrf(variant, n)
    return _source(_function("potrf", arguments, lines, room), POTRF_KERNEL)


def substitution_text():
    """Return CUDA C++ with kernels substitute_fp64 and substitute_fp32 for interleaved chunks."""
    arguments = "const Real *a, Real *b, int n, int ld, int columns, int lanes, int first, "
    functions = (
        _function(name, arguments + "int start", batched_programs.substitution_text(back))
        for name, back in (("forward", False), ("backward", True))
    )
    return _source("".join(functions), SUBSTITUTION_KERNEL)


@cache
def _module(text):
    import cupy

    return cupy.RawModule(code=text, options=COMPILER_OPTIONS)


def _kernel(name, dtype, *options):
    """Return a kernel of cuda/batched.cu."""
    return module("batched.cu", *options).get_function(f"{name}_{_suffix(dtype)}")


def _suffix(dtype):
    return "fp32" if dtype == np.float32 else "fp64"


def _view(a):
    """Return an array and its strides in entries."""
    return a, *(step // a.itemsize for step in a.strides)


_attributes = Lock()


def _with_shared(kernel, shared):
    """Return a kernel after it has been allowed `shared` bytes of shared memory."""
    with _attributes:
        # never reduced: the kernel may be kept for other orders too
        most = max(shared, kernel.max_dynamic_shared_size_bytes)
        kernel.max_dynamic_shared_size_bytes = most
        kernel.preferred_shared_memory_carveout = 100
    return kernel


def _triangle(n, itemsize, beside=0):
    """Return threads of a block for one matrix, and bytes of its shared memory.

    It has a lower triangle, as cuda/batched.cu has them, and `beside` more numbers.
    """
    order = _padded(n)
    return (-(-n // WARP) * WARP,), (order * (order + 4 - order // 2) + beside) * itemsize


def _beside(n, what):
    """Return how many numbers the kernel of a task, "potrf" or "solve", keeps beside a triangle.

    A substitution has the reciprocals of the diagonal, and twice four rows of four right-hand
    sides.
    """
    return _padded(n) + 32 if what == "solve" else 0


def excess(n, itemsize, what, limits):
    """Return why a block of threads cannot hold a matrix in shared memory, or None."""
    needed = _triangle(n, itemsize, _beside(n, what))[1]
    if needed <= limits.block_shared:
        return None
    return (
        f"a matrix of order {n} needs {needed} bytes, and a block has at most "
        f"{limits.block_shared} bytes of shared memory on this GPU. Leave `variant` out to use "
        "another kernel."
    )


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
            _kernel("pack", a.dtype)(
                (groups,), (PACKING_THREADS,), (*_view(a), chunks, n, lanes, batch)
            )
    return chunks


def device_name():
    """Return the name of the current GPU."""
    from cupy.cuda import runtime

    return runtime.getDeviceProperties(runtime.getDevice())["name"].decode()


# Search space of the kernels with blocks of threads, and what a GPU can hold of it (Sections VII
# and VIII). Nothing here is timed: `batched.search` times what is left.


@dataclass(frozen=True)
class Limits:
    """What a block of threads may use of a GPU, and what one multiprocessor holds."""

    block_threads: int
    block_matrices: int
    """The third dimension of a block."""
    threads: int
    blocks: int
    block_registers: int
    registers: int
    block_shared: int
    shared: int
    reserved_shared: int
    """Bytes that the system uses of each block's shared memory."""


MOST_THREAD_REGISTERS = 255
"""Of a thread, on every GPU since Kepler's GK110."""

OTHER_REGISTERS = 40
"""Registers of a thread beside those of its entries. ptxas takes up to twice as many if the block
may have them."""

LEAST_RELATIVE_OCCUPANCY = 0.5
"""Least occupancy of a candidate, relative to the best one."""


def limits():
    """Return the limits of the current GPU."""
    from cupy.cuda import runtime

    return _limits(runtime.getDevice())


@cache
def _limits(device):
    from cupy.cuda import runtime

    found = runtime.getDeviceProperties(device)
    return Limits(
        block_threads=found["maxThreadsPerBlock"],
        block_matrices=found["maxThreadsDim"][2],
        threads=found["maxThreadsPerMultiProcessor"],
        blocks=found["maxBlocksPerMultiProcessor"],
        block_registers=found["regsPerBlock"],
        registers=found["regsPerMultiprocessor"],
        block_shared=found["sharedMemPerBlockOptin"],
        shared=found["sharedMemPerMultiprocessor"],
        reserved_shared=found["reservedSharedMemPerBlock"],
    )


def shapes(n):
    """Yield (panel, height, width), the search space of Section VII for an order n.

    Panels have n, n/2, n/3, ... columns. The height of a block is a power of two below n, or the
    first one that is not; its width, likewise, of the panel.
    """
    for panel in sorted({-(-n // parts) for parts in range(1, n + 1)}, reverse=True):
        for height, width in product(_powers(n), _powers(panel)):
            yield panel, height, width


def _powers(most):
    """Return the powers of two below a number, and the first one that is not."""
    return [2**k for k in range(max(most - 1, 0).bit_length() + 1)]


def demand(variant, n, itemsize):
    """Return threads of a block, registers of a thread, and bytes of shared memory of a block.

    Registers are estimated: `OTHER_REGISTERS`, the thread's entries, and a row of those that are
    loaded.
    """
    height, width, matrices = variant.block
    rows, columns = -(-n // height), -(-variant.panel // width)
    # the stripes, and two integers for each matrix
    shared = matrices * (variant.panel * (n | 1) * itemsize + 8)
    if not variant.panel:
        rows, columns, shared = LARGEST_ORDER // WARP, SUBSTITUTION_COLUMNS, 0
    registers = (rows + 1) * columns * itemsize // 4 + OTHER_REGISTERS
    return height * width * matrices, registers, shared


def occupancy(limits, threads, registers, shared):
    """Return the share of a multiprocessor's threads that blocks of this kind can occupy.

    Registers are allocated to warps, in units of 256.
    """
    warps = -(-threads // WARP)
    per_warp = -(-registers * WARP // 256) * 256
    blocks = min(
        limits.blocks,
        limits.threads // (warps * WARP),
        limits.registers // per_warp // warps,
        limits.shared // max(shared + limits.reserved_shared, 1),
    )
    return blocks * warps * WARP / limits.threads


def refusal(variant, n, itemsize, limits):
    """Return why a GPU cannot factor with panels of this kind, or None."""
    height, width, matrices = variant.block if len(variant.block) == 3 else (0, 0, 0)
    powers = all(type(x) is int and x > 0 and x & (x - 1) == 0 for x in (height, width, matrices))
    if not powers:
        return (
            "`block` must be threads along the rows, threads along the columns, and matrices, all "
            f"of them powers of two, for example (32, 1, 4). Got {variant.block}."
        )
    if not 1 <= variant.panel <= n:
        return f"`panel` must be 1 to {n} columns, the order of the matrices. Got {variant.panel}."
    if height >= 2 * n or width >= 2 * variant.panel:
        return (
            f"a block of {height} x {width} threads is larger than a panel of {n} x "
            f"{variant.panel} needs: some threads would have no entry. Halve it."
        )
    threads, registers, shared = demand(variant, n, itemsize)
    if threads % WARP:
        return (
            f"a block must have whole warps of {WARP} threads. Got {threads}: put more matrices "
            "into it, the last number of `block`."
        )
    remedy = "take a narrower panel or more threads"
    return _beyond(limits, threads, matrices, registers, shared, remedy)


def _beyond(limits, threads, matrices, registers, shared, remedy):
    """Return which limit of the GPU a block exceeds, or None; `remedy` is for registers."""
    if threads > limits.block_threads:
        return (
            f"a block may have {limits.block_threads} threads on this GPU. Got {threads}: halve a "
            "number of `block`."
        )
    if matrices > limits.block_matrices:
        return f"a block may have {limits.block_matrices} matrices on this GPU. Got {matrices}."
    most = min(MOST_THREAD_REGISTERS, limits.block_registers // threads)
    if registers > most:
        return (
            f"a thread may have {most} registers in a block of {threads} threads. About "
            f"{registers} are needed: {remedy}."
        )
    if shared > limits.block_shared:
        return (
            f"a block may have {limits.block_shared} bytes of shared memory on this GPU. "
            f"{shared} are needed: take {'fewer matrices' if matrices > 1 else 'a narrower panel'}."
        )
    return None


def loads(variant, n):
    """Return the loads from shared memory for each product of a panel, idle threads included.

    For each column to the left a thread loads its rows and columns, and has all their products.
    """
    height, width, _ = variant.block
    rows, columns = -(-n // height), -(-variant.panel // width)
    return height * width * (rows + columns) / (n * variant.panel)


def panels(n, dtype, limits):
    """Return the variants with panels that are worth timing for an order, by panel width.

    Those within the limits whose occupancy is at least `LEAST_RELATIVE_OCCUPANCY` of the best one.
    A block has the number of matrices with which it occupies most threads. Of each width the
    variants with the fewest loads from shared memory come first.
    """
    itemsize, found = np.dtype(dtype).itemsize, {}
    for panel, height, width in shapes(n):
        fitting = {}
        for matrices in _powers(limits.block_threads // (height * width)):
            variant = Variant(chunk=0, panel=panel, block=(height, width, matrices))
            if refusal(variant, n, itemsize, limits) is None:
                fitting[variant] = occupancy(limits, *demand(variant, n, itemsize))
        if fitting:
            best = max(fitting, key=fitting.get)
            found[best] = fitting[best]
    by_width = {}
    for variant in sorted(_occupying(found), key=lambda v: (loads(v, n), -found[v])):
        by_width.setdefault(variant.panel, []).append(variant)
    return dict(sorted(by_width.items()))


LANE_COUNTS = tuple(2**k for k in range(WARP.bit_length()))
"""Lanes of a warp that may have the rows of a matrix."""

LARGEST_ORDER_IN_REGISTERS = 64
"""Largest order with rows in registers; the unrolled program grows with the order."""

OTHER_REGISTERS_WITH_ROWS = 64
"""Registers of a thread beside the entries of its rows; with fewer, ptxas spills some."""


def rows_demand(variant, n, itemsize):
    """Return threads of a block, registers of a thread, and bytes of shared memory of a block.

    Registers are estimated: `OTHER_REGISTERS_WITH_ROWS`, and the entries of the thread's rows up to
    the diagonal block.
    """
    lanes, _, matrices = variant.block
    entries = sum(min(last, n) for last in range(lanes, n + lanes, lanes))
    # NUMBERS_RESERVED of cuda/rows.cu
    needed = n * (n | 1) if n > 1 else 4
    room = -(-needed // 16) * 16 + lanes % 16
    return (
        lanes * matrices,
        entries * itemsize // 4 + OTHER_REGISTERS_WITH_ROWS,
        matrices * room * itemsize,
    )


def rows_refusal(variant, n, itemsize, limits):
    """Return why a GPU cannot factor with rows in registers in this way, or None."""
    lanes, width, matrices = variant.block
    if lanes not in LANE_COUNTS or width != 1 or matrices < 1 or lanes * matrices % WARP:
        return (
            "with panel=0, `block` must be (lanes, 1, matrices), for example (8, 1, 16): lanes is "
            f"a power of two up to {WARP}, and lanes times matrices is a multiple of {WARP}. Got "
            f"{variant.block}."
        )
    if n > LARGEST_ORDER_IN_REGISTERS:
        return (
            f"rows can be kept in registers up to order {LARGEST_ORDER_IN_REGISTERS}. Got order "
            f"{n}: leave `block` out, or set `panel`."
        )
    if lanes >= 2 * n:
        return (
            f"the lanes of a matrix must be fewer than twice its order. Got {lanes} lanes for "
            f"order {n}: take fewer lanes."
        )
    threads, registers, shared = rows_demand(variant, n, itemsize)
    remedy = "take more lanes" if registers > MOST_THREAD_REGISTERS else "take fewer matrices"
    return _beyond(limits, threads, matrices, registers, shared, remedy)


def rows(n, dtype, limits, lanes=None):
    """Return the variants with rows in registers that are worth timing for an order.

    One for each number of lanes, within the limits; a block has the number of matrices with which
    it occupies most threads. If `lanes` is given, one for each number of matrices in a block
    instead.
    """
    itemsize, found = np.dtype(dtype).itemsize, []
    for count in LANE_COUNTS if lanes is None else (lanes,):
        fitting = {}
        for matrices in _powers(limits.block_matrices):
            variant = Variant(chunk=0, block=(count, 1, matrices))
            if rows_refusal(variant, n, itemsize, limits) is None:
                fitting[variant] = occupancy(limits, *rows_demand(variant, n, itemsize))
        if lanes is not None:
            return list(fitting)
        found += [max(fitting, key=fitting.get)] if fitting else []
    return found


def warps(limits):
    """Return the variants of substitutions by warps that are worth timing: warps of a block."""
    powers = [w for w in _powers(MOST_SUBSTITUTING_WARPS) if w * WARP <= limits.block_threads]
    variants = [Variant(chunk=0, block=(WARP, 1, w)) for w in powers]
    return _occupying({v: occupancy(limits, *demand(v, LARGEST_ORDER, 8)) for v in variants})


def _occupying(found):
    """Return the variants that may occupy at least half as many threads as the best one."""
    least = LEAST_RELATIVE_OCCUPANCY * max(found.values())
    return [variant for variant, share in found.items() if share >= least]


def potrf(a, dtype, overwrite, variant):
    """Return factors, and info or None if all matrices have one; see `batched.potrf`."""
    import cupy

    given, batch = a, len(a)
    with a.device:
        a = a.astype(dtype, copy=False)
        own = (overwrite or a is not given) and a.flags.c_contiguous
        lower = a if own else cupy.empty(a.shape, a.dtype)
        if not a.size:
            return lower, None
        # the last one is nonzero if any is
        info = cupy.zeros(batch + 1, np.int64)
        if variant.chunk:
            _interleaved(a, lower, info, variant)
        else:
            launcher(a, lower, info, variant)()
        return lower, info[:batch].get() if info[batch:].get()[0] else None


def launcher(a, lower, info, variant):
    """Return a function that launches the factorization of matrices that are not interleaved."""
    batch, n, _ = a.shape
    if any(type(x) is not int for x in variant.block):
        # floats hash like equal integers: the cache of `_plan` would accept them
        raise InvalidInput(f"`block` must contain integers of type int. Got {variant.block}.")
    matrices, kernel, block, shared = _plan(variant, n, a.dtype, a.device.id)
    arguments = *_view(a), lower, info, batch if matrices else n
    return partial(kernel, (-(-batch // (matrices or 1)),), block, arguments, shared_mem=shared)


@cache
def _plan(variant, n, dtype, device):
    """Return matrices of a block, the kernel, threads of a block and bytes of its shared memory.

    Matrices are 0 where the kernel has one order for all and a block for each matrix.
    """
    if not variant.panel and not variant.block:
        if reason := excess(n, dtype.itemsize, "potrf", _limits(device)):
            raise InvalidInput(reason)
        kernel = _kernel("factor", dtype, *_options(variant))
        block, shared = _triangle(n, dtype.itemsize)
        return 0, _with_shared(kernel, shared), block, shared
    in_rows = len(variant.block) == 3 and not variant.panel
    refused = rows_refusal if in_rows else refusal
    if reason := refused(variant, n, dtype.itemsize, _limits(device)):
        raise InvalidInput(reason)
    if in_rows:
        source = module("rows.cu", *rows_options(variant, n))
        shared = rows_demand(variant, n, dtype.itemsize)[2]
    else:
        source = module("panels.cu", *panel_options(variant, n))
        shared = variant.block[2] * variant.panel * (n | 1) * dtype.itemsize
    kernel = source.get_function(f"factor_{_suffix(dtype)}")
    return variant.block[2], _with_shared(kernel, shared), variant.block, shared


def _options(variant):
    return ("-DFAST_ROOTS=true",) if variant.fast else ()


def panel_options(variant, n):
    """Return the compiler's options for cuda/panels.cu."""
    names = "ORDER", "PANEL_COLUMNS", "THREADS_DOWN", "THREADS_ACROSS", "MATRICES"
    sizes = n, variant.panel, *variant.block
    defined = (f"-D{name}={size}" for name, size in zip(names, sizes, strict=True))
    return *defined, *_options(variant)


def rows_options(variant, n):
    """Return the compiler's options for cuda/rows.cu."""
    lanes, _, matrices = variant.block
    return f"-DORDER={n}", f"-DLANES={lanes}", f"-DMATRICES={matrices}", *_options(variant)


def _interleaved(a, lower, info, variant):
    """Write factors and info; one thread factors one matrix of an interleaved chunk."""
    batch, n, _ = a.shape
    lanes = -(-batch // WARP) if variant.chunk == "batch" else variant.chunk
    chunks = in_chunks(a, lanes * WARP)
    factor_chunks(chunks, variant)
    entries = *_view(a), chunks, lower, info, n, lanes * WARP, batch
    _kernel("unpack", a.dtype)((-(-batch // WARP),), (PACKING_THREADS,), entries)


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
    threads, matrices = min(lanes, CHUNK_THREADS), count * lanes
    sizes = *before, np.int32(lanes), np.int64(matrices), *after
    kernel((-(-matrices // threads),), (threads,), sizes)


def factor_chunks(chunks, variant):
    """Factor chunks in place; no pivot is checked."""
    if not variant.chunk or variant.panel or variant.block:
        raise InvalidInput(
            "`panel` and `block` are for chunk=0, which is for matrices that are not interleaved. "
            f"Those in chunks take, for example, Variant(). Got {variant}."
        )
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


def substitute(lower, b, dtype, passes, variant):
    """Return b after forward (False) or backward (True) substitution, or both in this order."""
    import cupy

    if getattr(b, "device", None) != lower.device:
        raise InvalidInput(
            f"b must be on the GPU of lower, {lower.device}. Got {getattr(b, 'device', type(b))}."
        )
    block = variant.block
    by_warps = (
        len(block) == 3
        and block[:2] == (WARP, 1)
        and block[2] in range(1, MOST_SUBSTITUTING_WARPS + 1)
    )
    if variant.chunk or variant.panel or variant.fast or (block and not by_warps):
        raise InvalidInput(
            "a substitution on a GPU takes Variant(chunk=0), or Variant(chunk=0, block=(32, 1, m)) "
            f"for m warps of a block, 1 to {MOST_SUBSTITUTING_WARPS}. Got {variant}."
        )
    with lower.device:
        x = cupy.empty(b.shape, dtype)
        if b.size:
            lower, b = lower.astype(dtype, copy=False), b.astype(dtype, copy=False)
            b = b.reshape(*b.shape[:2], -1)
            (_, n, columns), ways = b.shape, (int(False in passes), int(True in passes))
            entries = *_view(lower), *_view(b), x, n, columns, *ways
            if by_warps:
                kernel = _kernel("solve_by_warps", dtype)
                kernel((-(-len(b) // block[2]),), block, (*entries, len(b)))
            else:
                if reason := excess(n, dtype.itemsize, "solve", _limits(lower.device.id)):
                    raise InvalidInput(reason)
                block, shared = _triangle(n, dtype.itemsize, _beside(n, "solve"))
                kernel = _with_shared(_kernel("solve", dtype), shared)
                kernel((len(b),), block, entries, shared_mem=shared)
        return x
