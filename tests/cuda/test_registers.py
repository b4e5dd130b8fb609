"""Registers, stack and spills of the kernels, as `ptxas -v` of NVRTC counts them, without a GPU."""

import re
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from compilers import compiled

from geomxp import cuda
from geomxp.linalg import batched, batched_gpu
from geomxp.linalg.batched_gpu import (
    Limits,
    panel_options,
    potrf_text,
    rows_options,
    substitution_text,
)
from geomxp.linalg.batched_programs import LOOKING, Variant
from geomxp.vecchia import gpu

ARCHITECTURES = (80, 90)
REGISTERS = 2**16
"""Of a multiprocessor."""

HOPPER = Limits(1024, 64, 2048, 32, REGISTERS, REGISTERS, 232_448, 233_472, 1024)
"""Of compute capability 9.0."""

WIDEST = batched_gpu.CHUNK_THREADS
"""Threads of a block on the widest chunk that a search tries."""


class Used(NamedTuple):
    """What a thread uses, in registers and bytes, and a block, in barriers."""

    stack: int
    stored: int
    loaded: int
    registers: int
    barriers: int


@cache
def used(text, architecture, *options):
    """What ptxas says of each kernel of a source."""
    code, log, _ = compiled(text, architecture, "--ptxas-options=-v", *options)
    assert code == 0, log
    found = re.findall(
        r"Function properties for (\w+)\n"
        r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
        r".*Used (\d+) registers, used (\d+) barriers",
        log,
    )
    assert len(found) == log.count("Compiling entry function") > 0, log
    return {name: Used(*map(int, numbers)) for name, *numbers in found}


def assert_in_registers(kernels, threads):
    """No kernel spills or has a stack, and blocks of so many threads have their registers."""
    for name, kernel in kernels.items():
        assert kernel[:3] == (0, 0, 0), (name, kernel)
        assert kernel.registers <= min(255, REGISTERS // threads), (name, kernel)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_with_a_block_for_each_matrix_spill_nothing(architecture):
    kernels = used(cuda.source("batched.cu"), architecture)
    assert len(kernels) == 10
    by_warps = {name: k for name, k in kernels.items() if "by_warps" in name}
    others = {name: k for name, k in kernels.items() if name not in by_warps}
    # as many blocks of order 128 as a multiprocessor's shared memory holds in FP32
    assert_in_registers(others, 6 * batched.LARGEST_ORDER)
    assert all(kernel.barriers == 1 for kernel in others.values())
    assert_in_registers(by_warps, 32 * batched_gpu.MOST_SUBSTITUTING_WARPS)
    assert all(kernel.barriers == 0 for kernel in by_warps.values())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("n", "panel", "block"),
    [
        (9, 3, (4, 1, 8)),
        (33, 11, (8, 4, 1)),
        (64, 8, (16, 2, 1)),
        (64, 64, (16, 16, 1)),
        (128, 4, (32, 1, 1)),
        (128, 16, (32, 4, 1)),
    ],
)
def test_panels_stay_in_registers(architecture, n, panel, block):
    variant = Variant(chunk=0, panel=panel, block=block)
    assert variant in batched_gpu.panels(n, np.float64, HOPPER)[panel]
    kernels = used(cuda.source("panels.cu"), architecture, *panel_options(variant, n))
    assert set(kernels) == {"factor_fp64", "factor_fp32"}
    height, width, matrices = block
    assert_in_registers(kernels, height * width * matrices)
    # the threads of a matrix that are in one warp wait for each other only
    assert all(k.barriers == (height * width > 32) for k in kernels.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "architecture", "dtype"),
    [
        *product((5, 32), ARCHITECTURES, (np.float64, np.float32)),
        # the largest of each type
        (48, 90, np.float64),
        (64, 90, np.float32),
    ],
)
def test_rows_stay_in_registers(architecture, n, dtype):
    # of the two kernels the one of this type: that of the other may be too large, and take minutes
    text, suffix = cuda.source("rows.cu"), batched_gpu._suffix(dtype)
    text, others = re.subn(rf"^KERNEL\(\w+, (?!{suffix}\)).*\n", "", text, flags=re.M)
    assert others == 1
    variants = batched_gpu.rows(n, dtype, HOPPER)
    assert variants
    # ptxas takes seconds for a large one: of these the one with the most rows for each thread
    for variant in variants if n == 5 else [min(variants, key=lambda one: one.block[0])]:
        of_type = used(text, architecture, *rows_options(variant, n))
        assert set(of_type) == {f"factor_{suffix}"}
        assert_in_registers(of_type, variant.block[0] * variant.block[2])
        assert all(kernel.barriers == 0 for kernel in of_type.values())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("variant", "n"),
    [
        (Variant(), None),
        *(
            (Variant(looking, 4, unroll=True), batched.LARGEST_UNROLLED_ORDER["gpu"])
            for looking in LOOKING
        ),
    ],
    ids=str,
)
def test_kernels_with_a_thread_for_each_matrix_spill_nothing(architecture, variant, n):
    kernels = used(potrf_text(variant, n), architecture)
    assert set(kernels) == {"potrf_fp64", "potrf_fp32"}
    assert_in_registers(kernels, WIDEST)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_interleaved_substitutions_spill_nothing(architecture):
    kernels = used(substitution_text(), architecture)
    assert set(kernels) == {"substitute_fp64", "substitute_fp32"}
    assert_in_registers(kernels, batched_gpu.CHUNK_THREADS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("team", "architecture"),
    # the older one for the smallest and the largest team
    [
        *product(sorted(gpu.TEAM_THREADS.values()), (90,)),
        *product((min(gpu.TEAM_THREADS.values()), max(gpu.TEAM_THREADS.values())), (80,)),
    ],
)
def test_kernels_of_vecchias_blocks_spill_nothing(architecture, team):
    kernels = used(cuda.source("vecchia.cu"), architecture, f"-DTEAM={team}")
    assert_in_registers(kernels, gpu.MOST_BLOCK_THREADS)
    for name in set(kernels) - {"fold"}:
        # the number of a team's own barrier is not known before: all sixteen are kept for it
        assert kernels[name].barriers == (16 if team > gpu.WARP else 1)


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spilling(double *a)
{
    double c[64];
    for (int k = 0; k < 64; ++k) c[k] = a[1024 * k + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < 64; ++k) a[1024 * k + threadIdx.x] = c[k] * c[63 - k];
}
"""


def test_a_spill_is_seen():
    found = used(SPILLING, 90)["spilling"]
    assert found.registers <= REGISTERS // 1024
    assert min(found.stack, found.stored, found.loaded) > 0
