"""Laws of the emulated multiprocessor on small kernels, and the project's CUDA sources."""

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cuda_emulator import host_kernels
from cuda_emulator.host_kernels import HostKernel, KernelError
from geomxp import cuda
from geomxp.linalg import batched_gpu
from geomxp.linalg.batched import Variant

SEEDS = range(1, 9)


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


def kernel(body, parameters="int *out", before="", bounds="", options=cuda.COMPILER_OPTIONS):
    text = f'{before}\nextern "C" __global__ void {bounds} k({parameters}) {{\n{body}\n}}\n'
    return HostKernel(text, "k", options)


def run(
    body, count=64, block=64, grid=1, *, dtype=np.int32, shared=0, order=0, limit=48 << 10, **text
):
    """Return `out`, initially filled with 7, after a kernel has run."""
    out = np.full(count, 7, dtype)
    grid, block = ((*n, 1, 1)[:3] if isinstance(n, tuple) else (n, 1, 1) for n in (grid, block))
    kernel(body, **text).launch(
        grid, block, shared, [address(out)], order=order, shared_limit=limit
    )
    return out


# --- threads and blocks


def test_each_thread_of_each_block_runs_once_and_knows_its_place():
    body = """
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += block;
    """
    for order in (0, *SEEDS):
        out = run(body, 24 * 70, (7, 5, 2), (2, 3, 4), order=order)
        np.testing.assert_array_equal(out, 7 + np.repeat(np.arange(24), 70))


def test_a_seed_gives_the_blocks_an_order():
    body = "out[blockIdx.x] = atomicAdd(&out[100], 1);"
    natural = np.arange(100) + 7
    np.testing.assert_array_equal(run(body, 101, 1, 100)[:100], natural)
    orders = [run(body, 101, 1, 100, order=seed)[:100] for seed in SEEDS]
    assert all((np.sort(order) == natural).all() for order in orders)
    assert len({order.tobytes() for order in orders}) == len(SEEDS)
    np.testing.assert_array_equal(run(body, 101, 1, 100, order=1)[:100], orders[0])


@pytest.mark.parametrize("options", [(), ("-DEMULATOR_UCONTEXT",)], ids=["assembly", "ucontext"])
@pytest.mark.parametrize("block", [1, 31, 32, 33, 1024])
def test_a_block_barrier_separates_what_is_written_from_what_is_read(block, options):
    body = """
    for (int turn = 0; turn < 3; ++turn) {
        places[threadIdx.x] = threadIdx.x + turn;
        __syncthreads();
        out[threadIdx.x] = places[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
    }
    """
    for order in (0, *SEEDS):
        out = run(
            body,
            block,
            block,
            shared=4 * block,
            order=order,
            before="extern __shared__ int places[];",
            options=(*cuda.COMPILER_OPTIONS, *options),
        )
        np.testing.assert_array_equal(out, np.arange(block)[::-1] + 2)


@pytest.mark.parametrize("barrier", ["__syncthreads()", "__syncwarp()"])
def test_some_seed_exposes_a_missing_barrier(barrier):
    body = """
    __shared__ int places[32];
    places[threadIdx.x] = threadIdx.x;
    {};
    out[threadIdx.x] = places[threadIdx.x / 2];
    """
    whole = [run(body.format(barrier), 32, 32, order=seed) for seed in SEEDS]
    lacking = [run(body.format(""), 32, 32, order=seed) for seed in SEEDS]
    assert all((out == np.arange(32) // 2).all() for out in whole)
    assert any((out != np.arange(32) // 2).any() for out in lacking)
    # in the natural order, lower lanes run first
    np.testing.assert_array_equal(run(body.format(""), 32, 32), np.arange(32) // 2)


def test_named_barriers_join_some_warps_of_a_block():
    body = """
    __shared__ int places[128];
    const int half = threadIdx.x / 64, other = threadIdx.x ^ 32;
    places[threadIdx.x] = threadIdx.x;
    asm volatile("bar.sync %0, %1;" : : "r"(1 + half), "r"(64) : "memory");
    out[threadIdx.x] = places[other];
    """
    for order in (0, *SEEDS):
        np.testing.assert_array_equal(run(body, 128, 128, order=order), np.arange(128) ^ 32)


# --- warps


@pytest.mark.parametrize(
    ("call", "source"),
    [
        ("__shfl_sync(~0u, v, 5)", lambda lane: 5),
        ("__shfl_sync(~0u, v, 3, 8)", lambda lane: lane // 8 * 8 + 3),
        ("__shfl_up_sync(~0u, v, 3)", lambda lane: lane - 3 if lane >= 3 else lane),
        ("__shfl_up_sync(~0u, v, 1, 4)", lambda lane: lane - 1 if lane % 4 else lane),
        ("__shfl_down_sync(~0u, v, 16)", lambda lane: lane + 16 if lane < 16 else lane),
        ("__shfl_down_sync(~0u, v, 2, 16)", lambda lane: lane + 2 if lane % 16 < 14 else lane),
        ("__shfl_xor_sync(~0u, v, 9)", lambda lane: lane ^ 9),
        ("__shfl_xor_sync(~0u, v, 16, 16)", lambda lane: lane if lane < 16 else lane - 16),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_shuffles_exchange_values(call, source, dtype):
    kind = {np.float32: "float", np.float64: "double", np.int64: "long long"}[dtype]
    body = f"{kind} v = out[threadIdx.x] * threadIdx.x; out[threadIdx.x] = {call};"
    expected = [7 * (warp + source(lane)) for warp in (0, 32) for lane in range(32)]
    for order in (0, 1, 2):
        out = run(body, dtype=dtype, parameters=f"{kind} *out", order=order)
        np.testing.assert_array_equal(out, expected)


def test_parts_of_a_warp_exchange_on_their_own():
    body = """
    int v = threadIdx.x;
    if (threadIdx.x % 2) {
        for (int k = 0; k < 3; ++k) v += __shfl_xor_sync(0xaaaaaaaau, v, 2);
    } else {
        v += __shfl_xor_sync(0x55555555u, v, 4);
    }
    out[threadIdx.x] = v;
    """
    lane = np.arange(32)
    expected = np.where(lane % 2, 4 * (lane + (lane ^ 2)), lane + (lane ^ 4))
    for order in (0, *SEEDS):
        np.testing.assert_array_equal(run(body, 32, 32, order=order), expected)


def test_votes():
    body = """
    out[3 * threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 3 == 0);
    out[3 * threadIdx.x + 1] = __any_sync(~0u, threadIdx.x == 35);
    out[3 * threadIdx.x + 2] = __all_sync(~0u, threadIdx.x != 35);
    """
    out = run(body, 192).reshape(2, 32, 3)
    for warp in range(2):
        ballot = sum(1 << k for k in range(32) if (32 * warp + k) % 3 == 0)
        expected = np.array([ballot, warp, 1 - warp], np.uint32).astype(np.int32)
        np.testing.assert_array_equal(out[warp], np.broadcast_to(expected, (32, 3)))


def test_a_lane_that_takes_no_part_gives_nan():
    body = "out[threadIdx.x] = __shfl_down_sync(~0u, (double)threadIdx.x, 1);"
    out = run(body, 20, 20, dtype=np.float64, parameters="double *out")
    np.testing.assert_array_equal(out, [*range(1, 20), np.nan])


# --- barriers that cannot be passed


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "if (threadIdx.x < 48) __syncthreads();",
            r"of 64 threads 48 wait at __syncthreads in \S+:3, first \(0, 0, 0\); "
            r"16 have exited, first \(48, 0, 0\)",
        ),
        (
            "if (threadIdx.x % 32 < 16) __syncwarp(0xfffff);\nelse __syncwarp(0xfff);",
            r"\(16, 0, 0\): __syncwarp in .*:4: lane 16 is not in its mask 0x00000fff",
        ),
        (
            "if (threadIdx.x < 32) __syncthreads();\n"
            "else if (threadIdx.x < 40) __syncwarp(0xffff);\n"
            "else __syncwarp(0xffffff00);",
            "32 wait at __syncthreads .*; 8 wait at __syncwarp with mask 0x0000ffff .*; 24 have",
        ),
        (
            "if (threadIdx.x % 2) __syncthreads();\nelse __syncthreads();",
            r"lanes of one warp wait at __syncthreads in \S+:4 and \S+:3",
        ),
        ("if (threadIdx.x % 32 < 9) __syncwarp();", "18 wait at __syncwarp with mask 0xffffffff"),
        (
            "if (threadIdx.x % 2) __syncwarp();\nelse __shfl_sync(~0u, 1, 0);",
            "32 wait at __shfl_sync .*32 wait at __syncwarp",
        ),
        ('asm("bar.sync %0, %1;" : : "r"(1), "r"(48));', "48 threads are not whole warps"),
        (
            "if (threadIdx.x < 32) __syncthreads();\n"
            'else asm("bar.sync %0, %1;" : : "r"(0), "r"(32));',
            "expects 32 threads, and those that wait there expect 64",
        ),
    ],
)
def test_divergent_barriers_are_errors(body, told):
    with pytest.raises(KernelError, match=rf"(?s)^k, block \(0, 0, 0\).*{told}"):
        run(body)
    for order in SEEDS:
        with pytest.raises(KernelError, match=r"^k, block \(0, 0, 0\)"):
            run(body, order=order)


def test_a_failed_launch_leaves_nothing_behind():
    broken = kernel("if (threadIdx.x) __syncthreads(); out[threadIdx.x] = 1;")
    out = np.zeros(64, np.int32)
    for _ in range(3):
        with pytest.raises(KernelError, match="divergent"):
            broken.launch((1, 1, 1), (64, 1, 1), 0, [address(out)])
        broken.launch((1, 1, 1), (1, 1, 1), 0, [address(out)])
        assert out.sum() == 1


# --- shared memory


def test_fresh_shared_memory_is_nan_in_every_block():
    body = """
    __shared__ double own[2];
    for (int k = 0; k < 2; ++k) {
        out[4 * blockIdx.x + k] = own[k];
        out[4 * blockIdx.x + 2 + k] = dynamic[k];
        own[k] = dynamic[k] = 1.0;
    }
    """
    before = "extern __shared__ double dynamic[];"
    out = run(body, 12, 1, 3, dtype=float, shared=16, before=before, parameters="double *out")
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("dynamic[25] = 1", r"byte 100 of the dynamic shared memory \(100 bytes\)"),
        ("dynamic[27 + threadIdx.x % 8] = 1", "byte 108 of the dynamic shared memory"),
        ("dynamic[-2] = 1", "byte -5 of the dynamic shared memory"),
        ("pointer[6] = 1", r"byte 24 of own \(24 bytes\)"),
        ("pointer[-1] = 1", "byte -1 of own"),
        ("*(short *)(pointer + 6) = 0", "byte 24 of own"),
    ],
)
def test_writes_out_of_shared_memory_are_errors(statement, told):
    body = f"""
    extern __shared__ int dynamic[];
    __shared__ int own[6];
    int *volatile pointer = own;
    dynamic[threadIdx.x % 25] = pointer[threadIdx.x % 6] = 0;
    if (blockIdx.x == 2) {statement};
    """
    with pytest.raises(KernelError, match=rf"block \(2, 0, 0\): shared .* out of bounds: {told}"):
        run(body, grid=3, shared=100)


def test_shared_memory_is_limited():
    body = "__shared__ char own[1024]; own[0] = 0; out[0] = own[0];"
    for shared, limit in ((47 << 10, 48 << 10), (232448 - 1024, 232448)):
        run(body, shared=shared, limit=limit)
        with pytest.raises(KernelError, match="own brings shared memory to"):
            run(body, shared=shared + 1, limit=limit)
    for shared, limit in ((49153, 49152), (2000, 1000), (232449, 10**6)):
        with pytest.raises(KernelError, match=f"{shared} bytes of dynamic shared memory"):
            run(body, shared=shared, limit=limit)


def test_instances_of_a_template_have_shared_variables_of_their_own():
    before = """
    template <class T> __device__ T shared_sum(T value)
    {
        __shared__ T sum;
        if (threadIdx.x == 0) sum = 0;
        __syncthreads();
        atomicAdd(&sum, value);
        __syncthreads();
        return sum;
    }
    """
    body = """
    double half = shared_sum(0.5);
    int whole = shared_sum((int)threadIdx.x);
    out[threadIdx.x] = whole + (int)half;
    """
    assert (run(body, before=before) == 63 * 32 + 32).all()


# --- faults of a thread


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("*(volatile int *)nullptr = 1", "illegal address (nil)"),
        ("*(volatile double *)(out + 1) = 1", "misaligned address 0x"),
        ("int a[4] = {1}; out[0] = a[out[0]]", "index 7 out of the bounds of an array"),
        ("out[0] = 1 << (out[0] + 30)", "shift by 37 bits"),
        ("out[0] = 1 / (out[0] - 7)", "integer division of 1 by 0"),
        ("out[0] = (int)(out[0] * 1e9)", "conversion of a number that the type cannot hold"),
        ("out[0] = deep(out[0])", "stack overflow"),
    ],
)
def test_faults_name_block_and_thread(statement, told):
    before = """
    __device__ int deep(int n) { volatile char a[5000]; a[n] = 1; return deep(n + 1) + a[n]; }
    """
    body = f"__syncthreads();\nif (blockIdx.x == 1 && threadIdx.x == 3) {{ {statement}; }}"
    for order in (0, 5):
        with pytest.raises(KernelError) as caught:
            run(body, grid=2, before=before, order=order)
        assert "k, block (1, 0, 0), thread (3, 0, 0): " + told in str(caught.value)


# --- launches


def test_arguments_are_compared_with_the_signature():
    before = "struct Pair { double a, b; };"
    parameters = "const double *__restrict__ x, long long n, float a, Pair pair, unsigned char *y"
    some = kernel("", parameters, before)
    right = [("pointer", 8), ("integer", 8), ("real", 4), ("struct", 16), ("pointer", 8)]
    some.check(right)
    assert [(p.kind, p.size) for p in some.parameters] == right
    assert [p.declaration for p in some.parameters[:2]] == ["const double *x", "long long n"]
    for wrong in (right[:-1], [*right, ("real", 4)]):
        with pytest.raises(KernelError, match=f"{len(wrong)} arguments for 5 parameters"):
            some.check(wrong)
    for position, wrong, told in (
        (0, ("integer", 8), r"1 is of kind integer \(8 .*`const double .x` is of kind pointer"),
        (1, ("integer", 4), r"2 is of kind integer \(4 .*`long long n` is of kind integer \(8"),
        (2, ("real", 8), r"3 is of kind real \(8 bytes\); .*`float a` is of kind real \(4 bytes"),
        (3, ("struct", 8), r"4 is of kind struct \(8 .*`Pair pair` is of kind struct \(16"),
    ):
        with pytest.raises(KernelError, match=told):
            some.check([*right[:position], wrong, *right[position + 1 :]])


def test_arguments_are_bytes_or_objects_of_ctypes():
    some = kernel(
        "*out = a + b + p.a;",
        "double *out, float a, int b, Pair p",
        "struct Pair { double a, b; };",
    )
    out = np.zeros(1)
    pair = np.array([0.25, 0.0])
    arguments = [address(out), np.float32(0.5).tobytes(), ctypes.c_int(2), memoryview(pair)]
    some.launch((1, 1, 1), (1, 1, 1), 0, arguments)
    assert out == 2.75
    with pytest.raises(KernelError, match=r"\[8, 4, 4, 4\] bytes"):
        some.launch((1, 1, 1), (1, 1, 1), 0, [*arguments[:3], ctypes.c_int(1)])


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 65536), (1, 1, 1)),
        ((2**31, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 1, 1), (32, 33, 1)),
        ((1, 1, 1), (1, 1, 65)),
        ((1, 1), (1, 1, 1)),
    ],
)
def test_grids_and_blocks_are_limited(grid, block):
    with pytest.raises(KernelError, match=r"^k: "):
        kernel("").launch(grid, block, 0, [ctypes.c_void_p()])


@pytest.mark.parametrize("bounds", ["__launch_bounds__(2 * (64))", "__launch_bounds__(128, 4)"])
def test_launch_bounds_are_kept(bounds):
    run("", block=128, bounds=bounds)
    with pytest.raises(
        KernelError, match="129 threads in a block; the limit is 128 by __launch_bounds__"
    ):
        run("", block=129, bounds=bounds)


def test_kernels_may_be_launched_from_several_threads():
    some = kernel("__syncthreads(); atomicAdd(out, 1);")
    outs = np.zeros((8, 1), np.int32)
    with ThreadPoolExecutor(8) as pool:
        for out in outs:
            pool.submit(some.launch, (50, 1, 1), (64, 1, 1), 0, [address(out)])
    assert (outs == 3200).all()


# --- arithmetic


def test_products_are_rounded_before_they_are_added_to_anything():
    body = "out[1] = out[0] * out[0] - 1.0; out[2] = fma(out[0], out[0], -1.0);"
    a = 1 + 2.0**-30
    out = np.array([a, 0, 0])
    kernel(body, "double *out").launch((1, 1, 1), (1, 1, 1), 0, [address(out)])
    assert out[1] == 2.0**-29
    assert out[2] == 2.0**-29 + 2.0**-60


def test_min_and_max_prefer_numbers_to_nan():
    body = """
    const double none = out[0];
    out[1] = min(none, 2.0), out[2] = max(2.0, none), out[3] = max(-1, 2LL), out[4] = max(1u, -1);
    """
    out = np.full(5, np.nan)
    kernel(body, "double *out").launch((1, 1, 1), (1, 1, 1), 0, [address(out)])
    np.testing.assert_array_equal(out[1:], [2, 2, 2, 2**32 - 1])


# --- compilation


def test_errors_of_the_compiler_name_the_line_of_the_source():
    broken = cuda.source("quantize.cu").replace("Bits found = 0;", "Bits found = ;")
    line = 1 + Path(cuda.__file__).with_name("quantize.cu").read_text().splitlines().index(
        "    Bits found = 0;"
    )
    with pytest.raises(KernelError, match=rf"quantize\.cu:{line}:\d+: error"):
        HostKernel(broken, "fp8_to_fp16", cuda.COMPILER_OPTIONS)


def test_what_is_not_known_is_an_error():
    with pytest.raises(KernelError, match=r'no such extern "C" kernel; it has k'):
        HostKernel('extern "C" __global__ void k() {}', "other", ())
    with pytest.raises(KernelError, match="option '--use_fast_math'"):
        kernel("", options=("--use_fast_math",))
    with pytest.raises(KernelError, match=r"PTX instruction 'ex2\.approx\.f32'"):
        kernel('float a = 1, b; asm("ex2.approx.f32 %0, %1;" : "=f"(b) : "f"(a));')
    with pytest.raises(KernelError, match="cannot parse this inline PTX"):
        kernel('asm goto("bra %l0;" : : : : end); end: ;')
    with pytest.raises(KernelError, match="__shared__ variables one by one"):
        kernel("__shared__ int a, b;")
    with pytest.raises(KernelError, match="__shared__ variables in functions"):
        kernel("", before="__shared__ int a;")
    with pytest.raises(KernelError, match="does not compile"):
        kernel("undeclared(out);")


@pytest.mark.slow
def test_a_source_is_compiled_once(tmp_path):
    code = """
    import os, sys
    from cuda_emulator.host_kernels import HostKernel
    text = ''.join(f'extern "C" __global__ void k{n}() {{}} ' for n in range(3))
    for n in range(3):
        HostKernel(text, f"k{n}", ()).launch((1, 1, 1), (1, 1, 1), 0, [])
    """
    environment = {
        **os.environ,
        "GEOMXP_EMULATOR_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-c", "\n".join(line[4:] for line in code.splitlines())]
    together = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in together] == [0, 0]
    (library,) = (tmp_path / "cache").iterdir()
    written = library.stat().st_mtime_ns
    subprocess.run(command, env=environment, check=True)
    assert library.stat().st_mtime_ns == written


@pytest.mark.slow
def test_address_sanitizer_finds_an_access_outside_of_an_array(tmp_path):
    found = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    if not Path(found.stdout.strip()).is_absolute():
        pytest.skip("g++ has no libasan.so")
    code = """
    import ctypes, sys
    from cuda_emulator.host_kernels import HostKernel
    text = '#line 1 "sums.cu"\\nextern "C" __global__ void k(double *x, int n) {\\n'
    text += '__syncthreads();\\nx[threadIdx.x] += x[threadIdx.x + n];\\n}\\n'
    memory = ctypes.create_string_buffer(512 * 8)
    arguments = [ctypes.c_void_p(ctypes.addressof(memory)), ctypes.c_int(int(sys.argv[1]))]
    HostKernel(text, "k", ()).launch((3, 1, 1), (32, 1, 1), 0, arguments)
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "GEOMXP_EMULATOR_CACHE": str(tmp_path),
        "GEOMXP_EMULATOR_ASAN": "1",
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    command = [sys.executable, "-c", "\n".join(line[4:] for line in code.splitlines())]
    inside, outside = (
        subprocess.run([*command, n], env=environment, capture_output=True, text=True, check=False)
        for n in ("480", "481")
    )
    assert inside.returncode == 0, inside.stderr
    assert outside.returncode != 0
    assert "heap-buffer-overflow" in outside.stderr
    assert "sums.cu:3" in outside.stderr


# --- the project's sources

SOURCES = {
    "matern": (cuda.source("matern.cu"), "covariances_fp64"),
    "quantize": (cuda.source("quantize.cu"), "fp8_to_fp16"),
    **{
        f"vecchia-{team}": (cuda.source("vecchia.cu"), "likelihood", f"-DTEAM={team}")
        for team in (8, 16, 32, 64)
    },
    "potrf": (batched_gpu.potrf_text(), "potrf_fp32"),
    "batched": (cuda.source("batched.cu"), "factor_fp64"),
    **{
        f"panels-{panel}": (
            cuda.source("panels.cu"),
            "factor_fp64",
            *batched_gpu.panel_options(Variant(chunk=0, panel=panel, block=block), 33),
        )
        for panel, block in ((1, (1, 1, 32)), (11, (16, 4, 1)))
    },
    "rows": (
        cuda.source("rows.cu"),
        "factor_fp64",
        *batched_gpu.rows_options(Variant(chunk=0, block=(16, 1, 2)), 33),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_sources_compile_without_warnings(name):
    text, function, *options = SOURCES[name]
    HostKernel(text, function, (*cuda.COMPILER_OPTIONS, *options, "-Werror=all-warnings"))


def test_all_kernels_of_a_source_are_found():
    kernels = host_kernels._library(cuda.source("quantize.cu"), cuda.COMPILER_OPTIONS).kernels
    formats = ("fp32", "tf32", "bf16", "fp16", "fp8")
    expected = {f"{source}_to_{form}" for source in ("fp64", "fp32") for form in formats}
    expected |= {f"{form}_to_{out}" for form in formats[2:] for out in ("fp32", "fp64")}
    expected |= {"fp64_to_fp64", "fp32_to_fp64", "fp8_to_fp16"}
    scaled = {f"{source}_to_{form}" for source in ("fp64", "fp32") for form in ("fp16", "fp8")}
    scaled |= {f"{form}_to_{out}" for form in ("fp16", "fp8") for out in ("fp32", "fp64")}
    expected |= {f"{name}_by_pointer" for name in scaled}
    expected |= {"factors", "factors_of_pairs"}
    expected |= {f"{source}_to_fp8_by_rows" for source in ("fp64", "fp32")}
    planes = {f"{form}_to_planes" for form in ("fp64", "fp32")}
    planes |= {f"planes_to_{form}" for form in ("fp64", "fp32")}
    expected |= planes | {f"{name}_by_pointer" for name in planes}
    assert set(kernels) == expected | {"exponent_fp32", "exponent_fp64"}


def test_conversions_to_fp16_are_those_of_numpy():
    numbers = np.random.default_rng(1).standard_normal((300, 7)).astype(np.float32)
    numbers *= np.exp2(np.random.default_rng(2).integers(-30, 18, numbers.shape)).astype(np.float32)
    numbers = np.asfortranarray(numbers)
    out = np.zeros((310, 7), np.uint16, order="F")
    arguments = [address(numbers), *map(ctypes.c_int64, (300, 7, 300)), ctypes.c_float(0.5)]
    to_fp16 = HostKernel(cuda.source("quantize.cu"), "fp32_to_fp16", cuda.COMPILER_OPTIONS)
    to_fp16.launch((2, 3, 1), (256, 1, 1), 0, [*arguments, address(out), ctypes.c_int64(310)])
    expected = np.clip(numbers * np.float32(0.5), -65504, 65504).astype(np.float16)
    np.testing.assert_array_equal(out[:300].view(np.float16), expected)
    assert not out[300:].any()


def test_the_largest_magnitude_does_not_depend_on_the_order():
    numbers = np.random.default_rng(3).standard_normal((70, 70))
    largest = HostKernel(cuda.source("combine.cu"), "largest_of_lower_fp64", cuda.COMPILER_OPTIONS)
    for order in (0, *SEEDS):
        out = np.zeros(1)
        arguments = [address(numbers), *map(ctypes.c_int64, (70, 1, 70)), address(out)]
        largest.launch((3, 3, 1), (32, 8, 1), 0, arguments, order=order)
        assert out == np.abs(np.tril(numbers)).max()


def test_factors_of_interleaved_matrices():
    n, lanes = 10, 32
    a = np.random.default_rng(4).standard_normal((lanes, n, n))
    a = a @ a.transpose(0, 2, 1) + n * np.eye(n)
    chunk = np.ascontiguousarray(a.transpose(1, 2, 0))
    potrf = HostKernel(batched_gpu.potrf_text(), "potrf_fp64", cuda.COMPILER_OPTIONS)
    arguments = [address(chunk), *map(ctypes.c_int, (n, lanes)), ctypes.c_int64(lanes)]
    potrf.launch((1, 1, 1), (lanes, 1, 1), 0, arguments)
    factors = np.tril(chunk.transpose(2, 0, 1))
    np.testing.assert_allclose(factors, np.linalg.cholesky(a), rtol=1e-12, atol=1e-12)
