"""Planted faults of GPU code, each with the test that must catch it.

Each fault is planted in a copy of the package, and its test is run there on the emulator:

    python tests/cuda_emulator/planted.py            # all of them
    python tests/cuda_emulator/planted.py event      # those whose name has a word
    python tests/cuda_emulator/planted.py --table    # as the table of README.md
"""

import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROCESSES = multiprocessing.get_context("forkserver")
"""Starts each test in a copy of a process that has imported the libraries (see `_test`)."""


class Fault(NamedTuple):
    """A text of a file of the package, what is put in its place, and the test that must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str


BATCHED = "tests/cuda/test_batched.py::"
COMBINE = "tests/linalg/test_combine.py::"
EXACT = "tests/likelihood/test_exact.py::"
KERNELS = "tests/linalg/test_kernels.py::"
MATERN = "tests/cuda/test_matern_cuda.py::"
MEMORIES = "tests/tiles/test_memories.py::"
ON_GPU = "tests/tiles/test_on_gpu.py::"
QUANTIZE = "tests/linalg/test_quantize_on_gpu.py::"
TILES = "tests/cuda/test_tiles_on_gpu.py::"
TWO_DEVICES = "tests/linalg/test_two_devices.py::"
VECCHIA = "tests/cuda/test_vecchia.py::"
VIEWS = "tests/linalg/test_gpu.py::"
FAILURES = ON_GPU + "test_a_failure_that_is_seen_at_the_end_gives_the_same_promotions_and_bits"
WHERE = QUANTIZE + "test_products_do_not_depend_on_where_the_exponents_are"
INTEGERS = QUANTIZE + "test_gpu_multiplies_small_integers_exactly"
PRODUCTS = VIEWS + "test_gpu_products_of_parts_are_exact_for_small_integers"
POTRF_IS_EXACT = VIEWS + "test_gpu_potrf_is_as_exact_as_numpys_and_writes_the_lower_triangle_only"
IN_ANY_ORDER = VIEWS + "test_gpu_potrf_has_the_same_bits_in_whatever_order_two_streams_are_executed"
OUT_OF_CORE = TILES + "test_out_of_core_a_gpu_has_the_bits_of_one_memory_in_any_order"

FAULTS = (
    Fault(
        "the panels of a tile are rounded down",
        "covariance/generate.py",
        "return (-(-rows // PANEL_ROWS))",
        "return (rows // PANEL_ROWS)",
        MATERN + "test_a_block_stands_at_its_place_in_the_whole_matrix",
    ),
    Fault(
        "pairs that a table does not reach are not computed again",
        "covariance/generate.py",
        "return squares, int(missed.sum()) > 0 and not end",
        "return squares, False",
        MATERN + "test_gpu_counts_missed_pairs_and_extends_the_table[fp64-0.21]",
    ),
    Fault(
        "shared memory has no room for the last row of a table",
        "covariance/generate.py",
        "shared_mem=staged * row_bytes",
        "shared_mem=(staged - 1) * row_bytes",
        MATERN + "test_gpu_writes_the_bits_of_the_cpu[2-True-float32]",
    ),
    Fault(
        "a shared copy is handed out before it is made",
        "linalg/device.py",
        "        cupy.cuda.get_current_stream().wait_event(made)\n",
        "        pass\n",
        TILES + "test_a_copy_that_streams_share_is_there_for_all_of_them",
    ),
    Fault(
        "small arrays are cut from the memory of matrices",
        "linalg/device.py",
        "with cupy.cuda.using_allocator(None):",
        "if True:",
        EXACT + "test_small_arrays_that_stay_on_a_gpu_cost_no_room_for_a_matrix",
    ),
    Fault(
        "a tile is factored before its rows are written",
        "cuda/batched.cu",
        "        __syncthreads();\n        /* L_jj <- chol(A_jj)",
        "        /* L_jj <- chol(A_jj)",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "a tile is overwritten while other threads factor it",
        "cuda/batched.cu",
        "        __syncthreads();\n        if (i == j) {",
        "        if (i == j) {",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "the stride of a column is too short",
        "cuda/batched.cuh",
        "column += rows - k;",
        "column += rows - k - 4;",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "the failing pivot that is reported is not the first",
        "cuda/batched.cu",
        "atomicMin(&failed, i)",
        "failed = i",
        BATCHED + "test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu[float32]",
    ),
    Fault(
        "the leading minor that fails is named off by one",
        "cuda/batched.cu",
        "failed < n ? failed + 1 : 0",
        "failed < n ? failed : 0",
        BATCHED + "test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu[float32]",
    ),
    Fault(
        "a NaN is reported as a pivot that is not positive",
        "cuda/batched.cu",
        "if (seen < n) atomicMin(&broken, seen);",
        "",
        BATCHED + "test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu[float64]",
    ),
    Fault(
        "rows of the padding reach other rows",
        "cuda/batched.cu",
        "= i < n ? c[g] : (Real)0;",
        "= c[g];",
        BATCHED + "test_an_infinity_goes_no_further_on_a_gpu_than_on_the_cpu[33]",
    ),
    Fault(
        "a substitution starts before the previous one has ended",
        "cuda/batched.cu",
        "    __syncthreads();\n}\n\n/* Matrix m of x",
        "}\n\n/* Matrix m of x",
        BATCHED + "test_a_gpu_substitutes_in_any_number_of_columns[9]",
    ),
    Fault(
        "a tile of entries is read before it is filled",
        "cuda/batched.cu",
        "(Real)(i == j);\n        }\n        __syncthreads();",
        "(Real)(i == j);\n        }",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "a tile of entries is filled again while other warps read it",
        "cuda/batched.cu",
        "start + lane] = entry;\n        }\n        __syncthreads();",
        "start + lane] = entry;\n        }",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float64]",
    ),
    Fault(
        "a panel is factored while other threads read the stripe",
        "cuda/panels.cu",
        "        wait();\n        factor_panel",
        "        factor_panel",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[panels-float64]",
    ),
    Fault(
        "a column of a panel is read before it is written",
        "cuda/panels.cu",
        "            wait();\n            /* l_kk",
        "            /* l_kk",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[panels-float64]",
    ),
    Fault(
        "a panel is read again before it is saved",
        "cuda/panels.cu",
        "top + j] = entry;\n        }\n        wait();",
        "top + j] = entry;\n        }",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[panels-float64]",
    ),
    Fault(
        "threads of a block wait for their warp only",
        "cuda/panels.cu",
        "if (MATRIX_THREADS > 32) __syncthreads();",
        "if (MATRIX_THREADS > 1024) __syncthreads();",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[panels-float64]",
    ),
    Fault(
        "a lane reads a column before the others have written it",
        "cuda/rows.cu",
        "        __syncwarp();\n#pragma unroll\n        for (int j = (K",
        "#pragma unroll\n        for (int j = (K",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[rows-float64]",
    ),
    Fault(
        "rows are stored before all lanes have written them",
        "cuda/rows.cu",
        "    __syncwarp();\n    if (!exists) return;",
        "    if (!exists) return;",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[rows-float64]",
    ),
    Fault(
        "the host does not learn of a matrix without a factor",
        "cuda/batched.cuh",
        "    if (value != 0) info[batch] = 1;",
        "",
        BATCHED + "test_a_gpu_names_the_matrices_without_a_factor_as_the_cpu[float64]",
    ),
    Fault(
        "a shuffle takes the entry of another row",
        "cuda/batched.cu",
        "inverse[own]), from);",
        "inverse[own]), step);",
        BATCHED + "test_warps_substitute_with_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "warps without a matrix substitute",
        "cuda/batched.cu",
        "    if (m >= batch) return;\n    Real inverse",
        "    Real inverse",
        BATCHED + "test_warps_substitute_with_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "the last matrices of a batch have no block",
        "linalg/batched_gpu.py",
        "(-(-batch // (matrices or 1)),)",
        "(max(batch // (matrices or 1), 1),)",
        BATCHED + "test_blocks_have_the_bits_of_the_cpu_in_batches_of_any_number[panels-float64]",
    ),
    Fault(
        "panels are summed before all warps have written",
        "cuda/matern.cu",
        "warp_missed[threadIdx.x / 32] = missed;\n    }\n    __syncthreads();",
        "warp_missed[threadIdx.x / 32] = missed;\n    }",
        MATERN + "test_gpu_writes_the_bits_of_the_cpu[1-True-float32]",
    ),
    Fault(
        "warps overwrite sums that are still read",
        "cuda/matern.cu",
        "*misses = missed;\n    }\n    __syncthreads();",
        "*misses = missed;\n    }",
        MATERN + "test_gpu_sums_the_squares_of_each_panel_for_itself",
    ),
    Fault(
        "an offset of entries has 32 bits",
        "cuda/matern.cu",
        "Stored *__restrict__ out, long long offset,",
        "Stored *__restrict__ out, int offset,",
        MATERN + "test_a_block_stands_at_its_place_in_the_whole_matrix",
    ),
    Fault(
        "warps report before the maximum of a block is initialized",
        "cuda/quantize.cu",
        "of_block = 0;\n    }\n    __syncthreads();",
        "of_block = 0;\n    }",
        QUANTIZE + "test_gpu_finds_the_largest_magnitude_in_every_warp[float32]",
    ),
    Fault(
        "the maximum of a block is read before all warps have reported",
        "cuda/quantize.cu",
        "atomicMax(&of_block, found);\n    }\n    __syncthreads();",
        "atomicMax(&of_block, found);\n    }",
        QUANTIZE + "test_gpu_finds_the_largest_magnitude_in_every_warp[float32]",
    ),
    Fault(
        "a leading dimension has 32 bits",
        "cuda/quantize.cu",
        "             given, Stored *__restrict__ out, long long ld_out)",
        "             given, Stored *__restrict__ out, int ld_out)",
        INTEGERS + "[fp32-fp16-(37, 29, 21)]",
    ),
    Fault(
        "a square of FP8 is stored before all threads have loaded it",
        "cuda/quantize.cu",
        "                }\n            }\n            __syncthreads();\n            for (int i",
        "                }\n            }\n            for (int i",
        QUANTIZE + "test_bits_do_not_depend_on_where_the_exponent_is[fp8-(301, 77)-float32]",
    ),
    Fault(
        "the factor of a product has the inverse of its power of two",
        "cuda/quantize.cu",
        "power_of_two(-(left[j] + right[j]))",
        "power_of_two(left[j] + right[j])",
        WHERE + "[fp16-fp16-(37, 29, 21)-1.0-True]",
    ),
    Fault(
        "the exponent of FP8 is taken for that of its numbers as FP16",
        "cuda/quantize.cu",
        "exponents[1] = exponent - shift;",
        "exponents[1] = exponent;",
        WHERE + "[fp16-fp8-(37, 29, 21)-1.0-True]",
    ),
    Fault(
        "a block that is not the last finds the exponent",
        "cuda/quantize.cu",
        "(unsigned long long)gridDim.x * gridDim.y - 1)",
        "0)",
        QUANTIZE + "test_an_exponent_that_a_gpu_finds_is_that_of_the_cpu[fp16-float32]",
    ),
    Fault(
        "exponents are not cut off",
        "cuda/quantize.cuh",
        "exponent > LARGEST_EXPONENT ? LARGEST_EXPONENT",
        "exponent > 2 * LARGEST_EXPONENT ? LARGEST_EXPONENT",
        QUANTIZE + "test_an_exponent_that_a_gpu_finds_is_that_of_the_cpu[fp16-float32]",
    ),
    Fault(
        "rows of a table are staged off by one",
        "cuda/vecchia.cu",
        "table.count + table.from + row) * 4",
        "table.count + table.from + row + 1) * 4",
        VECCHIA + "test_a_gpus_bits_do_not_depend_on_what_stands_in_shared_memory",
    ),
    Fault(
        "a block is generated before its places are gathered",
        "cuda/vecchia.cuh",
        "places.columns[c * places.n + j] : 0.0;\n        }\n    }\n    TOGETHER();",
        "places.columns[c * places.n + j] : 0.0;\n        }\n    }",
        VECCHIA + "test_a_gpus_table_grows_where_places_are_closer_than_it_reaches",
    ),
    Fault(
        "all teams have the same barrier",
        "cuda/vecchia.cuh",
        '"r"(1 + (int)threadIdx.x / TEAM)',
        '"r"(1)',
        VECCHIA + "test_a_gpu_evaluates_as_the_cpu[128-plane-False]",
    ),
    Fault(
        "the grid leaves out the last chunk of a batch",
        "linalg/batched_gpu.py",
        "kernel((-(-matrices // threads),)",
        "kernel((max(matrices // threads - 1, 1),)",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "the arguments of a kernel are exchanged",
        "linalg/batched_gpu.py",
        "np.int32(lanes), np.int64(matrices), *after",
        "np.int64(matrices), np.int32(lanes), *after",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float32]",
    ),
    Fault(
        "strides are counted in bytes",
        "linalg/batched_gpu.py",
        "step // a.itemsize",
        "step",
        BATCHED + "test_matrices_may_have_any_layout[float32-by_columns]",
    ),
    Fault(
        "shared memory has no room for the padding",
        "linalg/batched_gpu.py",
        "order * (order + 4 - order // 2)",
        "n * (n + 4 - n // 2)",
        BATCHED + "test_a_gpu_has_the_bits_of_the_cpu[float64]",
    ),
    Fault(
        "substitutions run on the current GPU",
        "linalg/batched_gpu.py",
        "    with lower.device:\n        x = cupy.empty",
        "    if True:\n        x = cupy.empty",
        TWO_DEVICES + "test_batches_stay_on_the_gpu_of_their_operands[float32]",
    ),
    Fault(
        "an FP32 product is computed in TF32",
        "linalg/products_gpu.py",
        "leading(c), form.cuda_compute, cublas.CUBLAS_GEMM_DEFAULT",
        "leading(c), 77 if form.cuda_type == 0 else 68, cublas.CUBLAS_GEMM_DEFAULT",
        QUANTIZE + "test_gpu_products_have_the_error_of_their_sums[fp32-(37, 29, 21)]",
    ),
    Fault(
        "BF16 is passed to cuBLAS as FP16",
        "linalg/formats.py",
        "cuda_type=14",
        "cuda_type=2",
        INTEGERS + "[bf16-bf16-(37, 29, 21)]",
    ),
    Fault(
        "the exponent of an FP8 operand is forgotten",
        "linalg/mixed.py",
        "        return -(2.0 ** -(a.exponent + b.exponent))",
        "        return -(2.0**-a.exponent)",
        INTEGERS + "[fp8-fp8-(48, 32, 64)]",
    ),
    Fault(
        "the workspace of cuBLASLt is too small",
        "linalg/products_gpu.py",
        'workspace = cupy.empty(size, "u1")',
        'workspace = cupy.empty(size // 2, "u1")',
        INTEGERS + "[fp8-fp8-(48, 32, 64)]",
    ),
    Fault(
        "cuBLASLt may return more algorithms than there is room for",
        "linalg/products_gpu.py",
        "c_int(1), byref(chosen)",
        "c_int(2), byref(chosen)",
        INTEGERS + "[fp8-fp8-(48, 32, 64)]",
    ),
    Fault(
        "cuBLASLt multiplies on the default stream",
        "linalg/products_gpu.py",
        "c_void_p(cupy.cuda.get_current_stream().ptr),",
        "c_void_p(0),",
        OUT_OF_CORE + "[all formats-v2]",
    ),
    Fault(
        "FP8 is multiplied as rows where it stands in columns",
        "linalg/mixed.py",
        'return values if values.flags.c_contiguous else values.copy(order="C")',
        "return values",
        INTEGERS + "[fp8-fp8-(48, 32, 64)]",
    ),
    Fault(
        "FP16 is multiplied as columns where it stands in rows",
        "linalg/views.py",
        'return ("N", a) if by_columns(a) else ("T", a.T)',
        'return "N", a',
        WHERE + "[fp8-fp16-(48, 32, 64)-1.0-True]",
    ),
    Fault(
        "a handle of cuBLAS still expects its scalars on the GPU",
        "linalg/products_gpu.py",
        "            cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)\n",
        "            pass\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[by norm, coarse-32]",
    ),
    Fault(
        "β is 1 where the product is to replace C",
        "linalg/products_gpu.py",
        "for value in (beta, 1.0))",
        "for value in (1.0, 1.0))",
        WHERE + "[fp16-fp16-(37, 29, 21)-0.0-True]",
    ),
    Fault(
        "the second product of two planes replaces the first one",
        "linalg/products_gpu.py",
        "            second = one\n",
        "            pass\n",
        QUANTIZE + "test_gpu_multiplies_planes_to_the_accuracy_of_fp32[0.0-256-True]",
    ),
    Fault(
        "a sum of planes begins again with the first columns",
        "linalg/products_gpu.py",
        "plane * x.strides[2] + start * x.strides[1]",
        "plane * x.strides[2]",
        QUANTIZE + "test_gpu_multiplies_planes_to_the_accuracy_of_fp32[1.0-256-False]",
    ),
    Fault(
        "the leading dimensions of a solve are exchanged",
        "linalg/gpu.py",
        "cublas_handle(), *letters, *b.shape, addressof(one), *_at(t), *_at(b)",
        "*(cublas_handle(), *letters, *b.shape, addressof(one), t.data.ptr, leading(b)),\n"
        "            *(b.data.ptr, leading(t)),",
        QUANTIZE + "test_gpu_solves_and_subtracts_in_place_by_columns[float64]",
    ),
    Fault(
        "a triangle is not transposed",
        "linalg/gpu.py",
        '"T": cublas.CUBLAS_OP_T}[trans],\n',
        '"T": cublas.CUBLAS_OP_N}[trans],\n',
        QUANTIZE + "test_gpu_solves_and_subtracts_in_place_by_columns[float64]",
    ),
    Fault(
        "a product is added instead of subtracted",
        "linalg/mixed.py",
        "backend.gemm(c, a, b.T, -1.0, 1.0)",
        "backend.gemm(c, a, b.T, 1.0, 1.0)",
        QUANTIZE + "test_gpu_solves_and_subtracts_in_place_by_columns[float64]",
    ),
    Fault(
        "entries above the diagonal of a tile are not zeroed",
        "linalg/gpu.py",
        "        combine(above, above, alpha=0.0, lower=True)\n",
        "",
        QUANTIZE + "test_gpu_factors_diagonal_tiles_and_leaves_zeros_above[float32]",
    ),
    Fault(
        "a square is stored before all threads have loaded it",
        "cuda/combine.cu",
        "    __syncthreads();\n"
        "    for (int s = 0; s < SQUARE_SIDE; s += SQUARE_THREAD_ROWS) {\n        ALONG(down <=",
        "    for (int s = 0; s < SQUARE_SIDE; s += SQUARE_THREAD_ROWS) {\n        ALONG(down <=",
        COMBINE + "test_out_is_alpha_r_a_c_plus_beta_out[columns-rows-float32-float32]",
    ),
    Fault(
        "β is left out of the sum",
        "cuda/combine.cu",
        "x + beta * widened(*place)",
        "x + widened(*place)",
        COMBINE + "test_what_has_a_factor_of_zero_is_not_read",
    ),
    Fault(
        "pivots that are not finite are not noticed",
        "cuda/combine.cu",
        "x - x != 0.0",
        "x != x && x == x",
        COMBINE + "test_an_info_word_also_says_that_a_pivot_is_not_finite[nan-float64]",
    ),
    Fault(
        "the info words are not looked at",
        "linalg/recursive.py",
        "        if self._words is not None:\n            for t, info",
        "        if False:\n            for t, info",
        VIEWS + "test_gpu_potrf_names_the_leading_minor_that_is_not_positive[columns--1.0-float64]",
    ),
    Fault(
        "nothing waits for the block that the second stream factors",
        "linalg/recursive.py",
        "            self._current().wait_event(self._moment)\n",
        "            pass\n",
        IN_ANY_ORDER + "[('fp16', 'fp32')]",
    ),
    Fault(
        "a block is factored beside before its update is done",
        "linalg/recursive.py",
        "            stream.wait_event(now)\n",
        "",
        IN_ANY_ORDER + "[('fp16', 'fp32')]",
    ),
    Fault(
        "the block that is done is updated again",
        "linalg/recursive.py",
        "    if t is done:\n        return\n",
        "",
        POTRF_IS_EXACT + "[('fp8', 'fp16', 'fp32')-columns-203]",
    ),
    Fault(
        "FP8 as FP16 keeps its factor of 2^16, with exponents on the GPU",
        "linalg/gpu.py",
        "if known else alpha[1:]",
        "if known else alpha[:1]",
        VIEWS + "test_a_gpu_without_units_for_fp8_factors_as_one_with_them",
    ),
    Fault(
        "the info of potrf is not read",
        "linalg/gpu.py",
        "return int(word[0])",
        "return 0",
        KERNELS + "test_gpu_kernels_are_the_cpu_kernels",
    ),
    Fault(
        "32-bit indices are checked without the leading dimension",
        "linalg/gpu.py",
        "if n * step > LARGEST_INDEX:",
        "if n * n > LARGEST_INDEX:",
        VIEWS + "test_gpu_potrf_counts_the_places_between_columns",
    ),
    Fault(
        "the workspace of potrf is too small",
        "linalg/gpu.py",
        "cupy.empty(size, a.dtype)",
        "cupy.empty(size // 2, a.dtype)",
        KERNELS + "test_an_inverse_from_a_gpu_is_that_of_the_cpu_and_in_columns",
    ),
    Fault(
        "left and right are exchanged",
        "linalg/gpu.py",
        '{"L": cublas.CUBLAS_SIDE_LEFT, "R": cublas.CUBLAS_SIDE_RIGHT}',
        '{"R": cublas.CUBLAS_SIDE_LEFT, "L": cublas.CUBLAS_SIDE_RIGHT}',
        VIEWS + "test_gpu_trsm_and_trmm_are_as_exact_as_numpys" + "[('fp64',)-columns-N-RUT-trsm]",
    ),
    Fault(
        "upper and lower are exchanged",
        "linalg/gpu.py",
        '{"L": cublas.CUBLAS_FILL_MODE_LOWER, "U": cublas.CUBLAS_FILL_MODE_UPPER}',
        '{"U": cublas.CUBLAS_FILL_MODE_LOWER, "L": cublas.CUBLAS_FILL_MODE_UPPER}',
        KERNELS + "test_an_inverse_from_a_gpu_is_that_of_the_cpu_and_in_columns",
    ),
    Fault(
        "operands are not exchanged for a transposed product",
        "linalg/gpu.py",
        "                c, a, b = c.T, b, a\n            if form",
        "                c = c.T\n            if form",
        PRODUCTS + "[fp16-float32-CCF-(37, 29, 21)]",
    ),
    Fault(
        "FP8 operands are not padded with zeros",
        "linalg/products_gpu.py",
        "whole = cupy.zeros((rows, columns), a.dtype)",
        "whole = cupy.empty((rows, columns), a.dtype)",
        PRODUCTS + "[fp8-float32-CFF-(1, 1, 1)]",
    ),
    Fault(
        "FP8 as FP16 keeps its factor of 2^16",
        "linalg/gpu.py",
        "alpha = alpha * 4.0**form.wider_shift if known",
        "alpha = alpha if known",
        VIEWS + "test_a_gpu_without_units_for_fp8_has_the_same_products[float32-columns]",
    ),
    Fault(
        "an evaluation overwrites a factor in memory that is kept",
        "likelihood/exact.py",
        "return dense_factor(model, observations, self.device, workspace)",
        "return dense_factor(model, observations, self.device, self._space())",
        MEMORIES + "test_a_factor_on_a_gpu_is_kept_while_others_are_computed[{}]",
    ),
    Fault(
        "an evaluation overwrites tiles that are kept",
        "likelihood/exact.py",
        "observations, rule, tile, placement, workspace, order)",
        "observations, rule, tile, placement, self._space(), order)",
        MEMORIES
        + "test_a_factor_on_a_gpu_is_kept_while_others_are_computed"
        + "[{'tile': 64, 'device_memory': '2MB'}]",
    ),
    Fault(
        "arrays without gaps are assumed",
        "linalg/gpu.py",
        "steps = [_step(array) for array in arrays]",
        "steps = [m] * len(arrays)",
        PRODUCTS + "[fp16-float32-CFF-(37, 29, 21)]",
    ),
    Fault(
        "the largest magnitude of a tile that was given up stays",
        "linalg/gpu.py",
        "            self._largest[numbers] = 0\n",
        "            pass\n",
        QUANTIZE + "test_an_array_that_is_forgotten_can_be_looked_at_again",
    ),
    Fault(
        "a tile is generated on the current GPU",
        "tiles/assemble.py",
        "        with cupy.cuda.Device(self.index):\n            out",
        "        if True:\n            out",
        TWO_DEVICES + "test_a_careful_tile_is_rounded_where_it_was_generated[fp64-False]",
    ),
    Fault(
        "tiles of a promoted block row are not computed again",
        "tiles/cholesky.py",
        "        store.forget(k, j)",
        "        pass",
        ON_GPU + "test_a_failure_that_is_seen_at_the_end_gives_the_same_promotions_and_bits[fp8]",
    ),
    Fault(
        "the CPU does not wait for an array",
        "linalg/gpu.py",
        'array.get(order="A")',
        'array.get(order="A", blocking=False)',
        KERNELS + "test_an_inverse_from_a_gpu_is_that_of_the_cpu_and_in_columns",
    ),
    Fault(
        "a lane does not wait for what it reads",
        "tiles/out_of_core.py",
        "self.memory.wait(moments + [",
        "self.memory.wait([",
        OUT_OF_CORE + "[fp64-v3]",
    ),
    Fault(
        "a lane does not wait for the readers of a slot",
        "tiles/out_of_core.py",
        " + [self.device.done[number] for number in step.after])",
        ")",
        OUT_OF_CORE + "[fp64-v1]",
    ),
    Fault(
        "an accumulator goes out before it is computed",
        "tiles/out_of_core.py",
        "self._slot, count, [memory.mark()])",
        "self._slot, count)",
        OUT_OF_CORE + "[fp64-sync]",
    ),
    Fault(
        "copies do not wait for events",
        "tiles/memories.py",
        "        for event in waits:\n            stream.wait_event(event)\n        begin",
        "        begin",
        OUT_OF_CORE + "[fp64-v1]",
    ),
    Fault(
        "copies go to the default stream",
        "tiles/memories.py",
        "runtime.memcpyDefault, stream.ptr)",
        "runtime.memcpyDefault, 0)",
        OUT_OF_CORE + "[fp64-v1]",
    ),
    Fault(
        "a promoted tile keeps the slot that it has outgrown",
        "tiles/memories.py",
        "if slot is None or len(slot) < count:",
        "if slot is None:",
        MEMORIES + "test_promoted_tiles_have_room_beside_the_others",
    ),
    Fault(
        "a column is solved with casts and inverses that are not made yet",
        "tiles/on_gpu.py",
        "            self._prepare(k)\n            self.factored[k] = stream.record()\n",
        "            self.factored[k] = stream.record()\n            self._prepare(k)\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[fp8-32]",
    ),
    Fault(
        "casts and inverses of a column are dropped while they are read",
        "tiles/on_gpu.py",
        "            self.triangles.pop(row, None)\n",
        "            self.triangles.clear()\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[fp8-32]",
    ),
    Fault(
        "panels of a solve are scaled beyond the range of FP16",
        "linalg/mixed.py",
        "LARGEST_FACTOR_ENTRY = 2.0**0.5",
        "LARGEST_FACTOR_ENTRY = 2.0**-6",
        ON_GPU + "test_a_factor_by_norms_is_as_near_on_a_gpu_as_on_the_cpu",
    ),
    Fault(
        "streams do not wait for what was put on the GPU before",
        "tiles/on_gpu.py",
        "            stream.wait_event(start)\n",
        "            pass\n",
        ON_GPU + "test_a_run_begins_after_what_was_put_on_the_gpu_before",
    ),
    Fault(
        "a tile does not wait for the row that it is multiplied with",
        "tiles/on_gpu.py",
        "            stream.wait_event(self.row_done[k])\n",
        "            pass\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[by norm-32]",
    ),
    Fault(
        "a solve does not wait for the diagonal tile",
        "tiles/on_gpu.py",
        "                stream.wait_event(self.factored[k])\n",
        "                pass\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[by norm-32]",
    ),
    Fault(
        "casts are dropped while other streams read them",
        "tiles/on_gpu.py",
        "                    owner.wait_event(event)\n",
        "                    pass\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[by norm, coarse-32]",
    ),
    Fault(
        "the streams are not waited for at the end",
        "tiles/on_gpu.py",
        "            self.current.wait_event(stream.record())\n",
        "            pass\n",
        ON_GPU + "test_the_bits_are_those_of_a_wait_after_each_tile[by norm-32]",
    ),
    Fault(
        "the info words of diagonal tiles are not looked at",
        "tiles/on_gpu.py",
        "if i == k and infos[k]:",
        "if False:",
        FAILURES + "[by norm]",
    ),
    Fault(
        "tiles after a failure are kept",
        "tiles/on_gpu.py",
        "                self._give_up(tiles[position:])\n",
        "                self._give_up(tiles[position : position + 1])\n",
        FAILURES + "[by norm]",
    ),
    Fault(
        "tiles that are not finite are not looked at",
        "tiles/on_gpu.py",
        "                check(largest[place], tile.form)\n",
        "",
        ON_GPU + "test_a_tile_that_is_not_finite_is_an_error[where3]",
    ),
    Fault(
        "casts are not made again after a failure",
        "tiles/on_gpu.py",
        "                self._cast(i, k, tile)\n",
        "",
        ON_GPU + "test_each_run_after_a_failure_is_one_more_wait[layered]",
    ),
    Fault(
        "missed pairs are not checked at the end",
        "tiles/on_gpu.py",
        "if not (missed and self.originals.extend()):",
        "if True:",
        ON_GPU + "test_tables_that_do_not_reach_all_pairs_are_extended[False]",
    ),
    Fault(
        "memory is freed while an interrupted factorization uses it",
        "tiles/on_gpu.py",
        "                    run.synchronize()\n",
        "",
        ON_GPU + "test_after_an_error_nothing_is_left_and_the_rest_can_be_done",
    ),
    Fault(
        "a copy in does not wait for the copy out",
        "tiles/out_of_core.py",
        "            waits.append(store.events[read.tile])",
        "            pass",
        OUT_OF_CORE + "[fp64-v1]",
    ),
    Fault(
        "a copy in does not wait for the steps that used its slot",
        "tiles/out_of_core.py",
        "self._wait_for(read.after)",
        "self._wait_for(read.after) and []",
        OUT_OF_CORE + "[fp64-v2]",
    ),
    Fault(
        "a copy out does not wait for the computation",
        "tiles/out_of_core.py",
        "step.slot, count, [moment])",
        "step.slot, count, [])",
        OUT_OF_CORE + "[fp64-v2]",
    ),
    Fault(
        "a slot is reused before its copy out is done",
        "tiles/out_of_core.py",
        "self.done[step.number] = end",
        "self.done[step.number] = moment",
        OUT_OF_CORE + "[fp64-v1]",
    ),
    Fault(
        "a tile is read before its copy in is done",
        "tiles/out_of_core.py",
        "self.ready[read.tile] = header, end",
        "self.ready[read.tile] = header, begin",
        OUT_OF_CORE + "[fp64-v2]",
    ),
    Fault(
        "a final tile in another format is not stored",
        "tiles/on_gpu.py",
        "        CUPY.round_into(values, array, form, exponent)\n",
        "        pass\n",
        OUT_OF_CORE + "[all formats-v1]",
    ),
    Fault(
        "a tile that stands by rows is read by columns",
        "tiles/out_of_core.py",
        "absent.shape, absent.dtype, absent.order)",
        "absent.shape, absent.dtype)",
        OUT_OF_CORE + "[all formats-v1]",
    ),
    Fault(
        "sums are not set to zero",
        "vecchia/gpu.py",
        "sums, missed = cupy.zeros((parts, summed + 1)),",
        "sums, missed = cupy.empty((parts, summed + 1)),",
        VECCHIA + "test_a_gpus_bits_do_not_depend_on_what_stands_in_shared_memory",
    ),
    Fault(
        "a grid leaves out the last sums",
        "vecchia/gpu.py",
        "added = cupy.empty((-(-count // FOLDED_ROWS), length))",
        "added = cupy.empty((count // FOLDED_ROWS or 1, length))",
        VECCHIA + "test_a_gpu_evaluates_as_the_cpu[30-plane-False]",
    ),
)


def plant(fault, folder):
    """Copy the package to a folder and plant a fault there.

    Raises
    ------
    ValueError
        If the text is not there exactly once.
    """
    shutil.copytree(ROOT / "geomxp", folder / "geomxp", symlinks=True, copy_function=_link)
    (folder / "data").symlink_to(ROOT / "data")
    path = folder / "geomxp" / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {text.count(fault.old)} places in {fault.file}")
    # removes the link only: the package keeps its file
    path.unlink()
    path.write_text(text.replace(fault.old, fault.new))


def _link(source, target):
    """Make a hard link, or a copy on another file system: compiled code is tens of megabytes."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def caught(fault):
    """Return whether a fault's test fails with it, and the end of pytest's output.

    A missing wait changes the result in some orders of execution only: up to ten are tried.
    """
    with tempfile.TemporaryDirectory() as folder:
        plant(fault, Path(folder))
        output, result = Path(folder) / "output", Path(folder) / "result"
        for seed in range(10):
            result.write_text("no test ran")
            output.write_text("")
            run = PROCESSES.Process(target=_test, args=(fault.test, folder, seed))
            run.start()
            run.join()
            # not from the exit status: another thread's start may have taken it
            found = result.read_text()
            if found not in ("passed", "failed"):
                raise RuntimeError(f"{fault.name}: {found}\n{output.read_text()}")
            if found == "failed":
                break
        return found == "failed", output.read_text()[-2000:]


def _test(test, folder, seed):
    """Run a test on the package in a folder, in this process; write its output and result there."""
    with open(Path(folder) / "output", "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(ROOT)
    # pytest collects garbage ten times at its end: not what the libraries have made
    gc.freeze()
    # this process is perhaps a copy of that of clusters.py, which has the package without the fault
    for name in [name for name in sys.modules if name.partition(".")[0] == "geomxp"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    # without PYTHONSAFEPATH a process that the test starts would find the package in ROOT
    os.environ |= {"PYTHONPATH": folder, "PYTHONSAFEPATH": "1", "GEOMXP_EMULATOR_SEED": str(seed)}
    options = ("-x", "-q", "--gpu=emulated", "--tb=native", "-p", "no:cacheprovider")
    # Hypothesis is there already
    options += ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    status = pytest.main([*options, test])
    tested = Path(sys.modules["geomxp"].__file__)
    if not tested.is_relative_to(folder):
        raise ImportError(f"{tested} was tested, without the fault")
    # 1: tests failed; anything else is a mistake of ours
    words = {0: "passed", 1: "failed"}
    (Path(folder) / "result").write_text(words.get(status, f"pytest ended with {status}"))


def table():
    """Return the faults as a table in Markdown."""
    lines = ["| fault | file | caught by |", "|---|---|---|"]
    lines += [f"| {f.name} | `{f.file}` | `{f.test}` |" for f in FAULTS]
    return "\n".join(lines)


def main(arguments):
    """Plant faults and report; return the number that nobody caught."""
    if arguments == ["--table"]:
        print(table())
        return 0
    missed = 0
    for fault in FAULTS:
        if all(word in fault.name for word in arguments):
            found, output = caught(fault)
            print(f"{'caught' if found else 'MISSED'}: {fault.name}", flush=True)
            missed += not found
            if not found:
                print(output)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
