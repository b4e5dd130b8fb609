"""CuPy arrays: kernels of cuda/quantize.cu and combine.cu, cuBLAS and cuSOLVER.

The CPU must wait for the GPU to know an exponent. To leave it on the GPU, let `Exponents` find it
and pass the array that `Exponents.find` returns wherever an exponent is expected:

    exponents = Exponents(1)
    exponent = exponents.find(0, array, FP16)
    CUPY.round_into(values, array, FP16, exponent)
    alpha = factors(exponent, other_exponent, -1.0)

`exponents.fetch()`, at the end, has the largest magnitudes, which tell whether all arrays were
finite. Exponents and bits are those of the CPU's casts.

Only NVIDIA GPUs are supported; this code has never run on an AMD GPU. CuPy's ROCm build gives
the names used here to hipBLAS (cublas gemm, trsm, syrk: hipblasDgemm, hipblasDtrsm, hipblasDsyrk
and so on) and rocSOLVER (cusolver potrf: rocsolver_dpotrf, whose workspace is empty). These have no
counterpart there, as of CuPy's cupy_hipblas.h:

- gemmEx with cuBLAS 11's compute types, `Format.cuda_compute`: refused. With a data type in their
  place, CUDA_R_32F, it goes to hipblasGemmEx, for FP16 and FP32 but neither BF16 nor TF32.
  `products_gpu.multiply` would have to call it so, and widen BF16 to FP32.
- cuBLASLt is not bound at all; hipBLASLt has a C interface of nearly the same shape under names of
  its own. FP8 would be multiplied as FP16, which holds its numbers.
- cuda/quantize.cu is compiled by hipRTC: PTX is guarded by __CUDA_ARCH__, which is not defined
  there, so that plain C replaces it; `__shfl_down_sync` and its 32 lanes do not fit a wavefront of
  64.
"""

from ctypes import addressof, c_double
from functools import cache, partial
from numbers import Real

import numpy as np

from ..cuda import module
from ..errors import InvalidInput
from . import products_gpu
from .blas import BLAS_TYPES
from .device import cublas_handle
from .views import Backend, by_columns, columns_of, contiguous, layout, leading, order_of

THREADS = 256
"""Threads of a block, as in cuda/quantize.cu."""

SQUARE_SIDE, SQUARE_THREAD_ROWS = 32, 8
"""Entries along the side of a block's square, and the block's rows of threads, as in
cuda/combine.cu; cuda/quantize.cu transposes in squares of the same side."""

MOST_BLOCKS_DOWN = 65535
"""Blocks that CUDA allows in a grid's second dimension."""

TYPE_NAMES = {np.dtype(np.float32): "fp32", np.dtype(np.float64): "fp64"}

LARGEST_INDEX = 2**31 - 1
"""Entries that cuSOLVER's potrf counts in one array, those between its columns included."""

LARGEST_WHOLE_PRODUCT_ORDER = 2048
"""The largest order for which a rank-k update makes the whole product."""


# Exponents and casts


class Exponents:
    """Exponents of `count` arrays, computed and kept on the current GPU; one transfer fetches all.

    `on_gpu` is a (count, 2) int32 array: of each array the exponent in its own format, and in the
    `wider` one (FP16 for FP8) if it has one. `more`, (more,) int32, are other words that are
    fetched with them, zeros at first.
    """

    def __init__(self, count, more=0):
        import cupy

        self._words = cupy.zeros(6 * count + more, np.int32)
        self._largest = self._words[: 4 * count].view(np.uint64).reshape(count, 2)
        self.on_gpu = self._words[4 * count : 6 * count].reshape(count, 2)
        self.more = self._words[6 * count :]

    def find(self, number, array, form, own=True, scale=True):
        """Find the exponent of array `number`, each once; return it: (2,) int32, a row of `on_gpu`.

        The FP32 or FP64 array is copied if its columns are not contiguous. Without a format, or for
        one without exponents, only the largest magnitude is found. `own` says whether the format is
        the array's own or that of its cast. Without `scale` the exponent is 0.
        """
        import cupy

        row, largest = self.on_gpu[number], self._largest[number]
        top = 0 if form is None or not scale else form.top or 0
        shift = 0 if form is None else form.wider_shift
        with array.device:
            if layout(array) != "F":
                array = cupy.asfortranarray(array)
            settings = np.int32(top), np.int32(own), np.int32(shift)
            _launch(f"exponent_{TYPE_NAMES[array.dtype]}", [array], settings, (largest, row))
        return row

    def fetch(self):
        """Return the results as NumPy arrays; the CPU waits for the current stream.

        The bits of the largest magnitudes, (count,) uint64, for `magnitude_of`; `on_gpu`; `more`.
        """
        words, count = self._words.get(), len(self.on_gpu)
        largest = words[: 4 * count].view(np.uint64)[::2]
        return largest, words[4 * count : 6 * count].reshape(count, 2), words[6 * count :]

    def forget(self, numbers):
        """Allow some arrays to be measured again, and set the other words to zero."""
        import cupy

        self.more[...] = 0
        if len(numbers):
            numbers = cupy.asarray(np.asarray(numbers))
            self._largest[numbers] = 0
            self.on_gpu[numbers] = 0


def magnitude_of(bits, dtype):
    """Return the number whose bits `Exponents.fetch` returns, for an FP32 or FP64 array."""
    dtype = np.dtype(dtype)
    return float(np.array(bits, f"u{dtype.itemsize}").view(dtype))


def factors(left, right, factor=1.0):
    """Return factor · 2^-(left + right), (n,) FP32, which scales products of `Exponents`' arrays.

    `left` and `right`, (n,) int32, are contiguous.
    """
    import cupy

    with left.device:
        alpha = cupy.empty(left.size, np.float32)
        if left.size:
            launch = module("quantize.cu").get_function("factors")
            grid = (-(-left.size // THREADS),)
            launch(grid, (THREADS,), (left, right, left.size, np.float32(factor), alpha))
    return alpha


def factors_of_pairs(words, pairs, factor=1.0):
    """Return factor · 2^-(a + b) for pairs of rows of `Exponents.on_gpu`, (n, 2) FP32.

    `pairs`, (n, 2) int32 on the GPU, has the numbers of two rows; the first column is for the
    arrays' own exponents, the second for those of their `wider` formats.
    """
    import cupy

    with words.device:
        alpha = cupy.empty(pairs.shape, np.float32)
        if alpha.size:
            launch = module("quantize.cu").get_function("factors_of_pairs")
            grid = (-(-alpha.size // THREADS),)
            launch(grid, (THREADS,), (words, pairs, alpha.size, np.float32(factor), alpha))
    return alpha


def _transpose_into(out, array, form, exponent):
    """Out <- the numbers of array·2^exponent in FP8, out in C order."""
    (m, n), most = array.shape, _most_blocks(array.device.id)
    if layout(out) != "C" or form.name != "fp8":
        raise ValueError("only FP8 can be stored by rows")
    across = min(-(-m // SQUARE_SIDE), most)
    down = min(-(-n // SQUARE_SIDE), -(-most // across), MOST_BLOCKS_DOWN)
    with array.device:
        launch = module("quantize.cu").get_function(f"{TYPE_NAMES[array.dtype]}_to_fp8_by_rows")
        arguments = array, m, n, _step(array), exponent, out, _step(out.T)
        launch((across, down), (THREADS,), arguments)


def _launch(kernel, arrays, scale=(), result=()):
    """Start a kernel over the entries of arrays of one shape, in the order of the columns.

    Its arguments are the first array, the scale, the other arrays, and the results.
    """
    (m, n), index = arrays[0].shape, arrays[0].device.id
    if not m * n:
        return
    if all(array.flags.f_contiguous for array in arrays):
        m, n, steps = m * n, 1, [m * n] * len(arrays)
    else:
        steps = [_step(array) for array in arrays]
    across = min(-(-m // THREADS), _most_blocks(index))
    down = min(n, -(-_most_blocks(index) // across), MOST_BLOCKS_DOWN)
    source, *targets = zip(arrays, steps, strict=True)
    arguments = (source[0], m, n, source[1], *scale, *(x for pair in targets for x in pair))
    with arrays[0].device:
        launch = module("quantize.cu").get_function(kernel)
        launch((across, down), (THREADS,), (*arguments, *result))


def _is_number(exponent):
    """Return whether an exponent is known to the CPU."""
    return isinstance(exponent, (int, np.integer))


def _step(array):
    """Return the distance between columns, in entries."""
    if layout(array) != "F":
        raise ValueError("columns are not contiguous")
    return leading(array)


@cache
def _most_blocks(index):
    """Return how many blocks fill a GPU: 2048 threads to each of its processors."""
    from cupy.cuda import runtime

    return (
        2048 // THREADS * runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index)
    )


# Kernels of cuda/combine.cu


def combine(out, a, alpha=1.0, beta=0.0, lower=False, rows=None, columns=None):
    """Out <- α r_i a_ij c_j + β out, in one kernel, for FP64 or FP32 arrays of any layouts.

    Computed in FP64; an array whose factor is 0 is not read. The arrays may be the same one, but
    must not overlap otherwise. With `lower`, the lower triangle is read and written only. `rows`
    and `columns`, FP64, are both given or neither.
    """
    if not out.size:
        return
    scaled = rows is not None
    # CuPy does not convert None to a null pointer
    factors = (rows, columns) if scaled else (a, a)
    flags = np.int32(lower), np.int32(scaled)
    with out.device:
        _kernel("combine", a, out)(
            *(_squares(out.shape), (SQUARE_SIDE, SQUARE_THREAD_ROWS)),
            (
                *(a, *_steps(a), out, *_steps(out), *out.shape),
                *(*flags, *factors, np.float64(alpha), np.float64(beta)),
            ),
        )


def _kernel(name, *arrays):
    """Return a kernel of cuda/combine.cu for arrays of some types."""
    return module("combine.cu").get_function(
        "_".join((name, *(TYPE_NAMES[a.dtype] for a in arrays)))
    )


def _squares(shape):
    """Return the grid of a kernel whose blocks take SQUARE_SIDE by SQUARE_SIDE entries."""
    return tuple(-(-size // SQUARE_SIDE) for size in shape)


def _steps(a):
    """Return how many entries the next row and the next column are away."""
    return tuple(stride // a.itemsize for stride in a.strides)


# BLAS and LAPACK on arrays with contiguous columns; as in `blas`


def gemm(c, a, b, alpha, beta, trans_a, trans_b):
    """C <- α op(A) op(B) + βC, all FP64 or all FP32."""
    cublas, letter, real = _library(c)
    (m, n), k = c.shape, a.shape[trans_a == "N"]
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}
    alpha, beta = real(alpha), real(beta)
    with c.device:
        getattr(cublas, letter + "gemm")(
            *(cublas_handle(), operation[trans_a], operation[trans_b], m, n, k, addressof(alpha)),
            *(*_at(a), *_at(b), addressof(beta), *_at(c)),
        )


def triangular(name, side, uplo, trans, diag, t, b):
    """B <- B op(T)⁻¹ or op(T)⁻¹ B ("trsm"), B op(T) or op(T) B ("trmm"), for a triangular T."""
    if name == "trmm":
        _multiply(side, uplo, trans, diag, t, b)
        return
    cublas, letter, real = _library(b)
    one = real(1.0)
    letters = (
        {"L": cublas.CUBLAS_SIDE_LEFT, "R": cublas.CUBLAS_SIDE_RIGHT}[side],
        _triangle(cublas, uplo),
        {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}[trans],
        {"N": cublas.CUBLAS_DIAG_NON_UNIT, "U": cublas.CUBLAS_DIAG_UNIT}[diag],
    )
    with b.device:
        getattr(cublas, letter + "trsm")(
            cublas_handle(), *letters, *b.shape, addressof(one), *_at(t), *_at(b)
        )


def _multiply(side, uplo, trans, diag, t, b):
    """B <- B op(T) or op(T) B: CuPy has no trmm, so T is made full and B copied."""
    import cupy

    with b.device:
        n, unit = len(t), diag == "U"
        mask = cupy.tri(n, k=-1 if unit else 0, dtype=bool)
        # no product with zeros, which would keep a NaN above the diagonal
        whole = cupy.where(mask if uplo == "L" else mask.T, t, t.dtype.type(0))
        if unit:
            whole += cupy.eye(n, dtype=t.dtype)
        whole = whole.T if trans == "T" else whole
        source = b.copy(order="F")
        left, right = (whole, source) if side == "L" else (source, whole)
        CUPY.gemm(b, left, right, 1.0, 0.0)


def rank_k(uplo, trans, c, a, alpha, beta):
    """One triangle of C <- α op(A) op(A)' + βC.

    Of a small C the whole product is made and half of it added: at most twice the operations, where
    cuBLAS's syrk is up to 14 times slower than products (paper 000, Figure 4).
    """
    if len(c) <= LARGEST_WHOLE_PRODUCT_ORDER:
        c, a = c if uplo == "L" else c.T, a if trans == "N" else a.T
        total = CUPY.empty(c.shape, c.dtype, c, order_of(c))
        CUPY.gemm(total, a, a.T, alpha, 0.0)
        combine(c, total, beta=beta, lower=True)
        return
    cublas, letter, real = _library(c)
    alpha, beta = real(alpha), real(beta)
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}[trans]
    with c.device:
        getattr(cublas, letter + "syrk")(
            *(cublas_handle(), _triangle(cublas, uplo), operation, len(c), a.shape[trans == "N"]),
            *(addressof(alpha), *_at(a), addressof(beta), *_at(c)),
        )


def can_invert(order):
    """Return whether `inverses` takes blocks of an order: 32·2^p."""
    return order >= SQUARE_SIDE and order & (order - 1) == 0


def inverses(lower, order):
    """Return the inverses of the diagonal blocks of a lower triangle, FP32 or FP64 in any layout.

    Their order is 32·2^p and divides that of the triangle. They are computed in FP64 and returned
    in FP32 and Fortran order, zeros above their diagonals. From order 32 on, all blocks at once:

        [L11    ]⁻¹ = [     L11⁻¹             ]
        [L21 L22]     [-L22⁻¹ L21 L11⁻¹  L22⁻¹]
    """
    import cupy

    n, found = len(lower), []
    with lower.device:
        numbers, whole = lower, cupy.zeros((n, n), order="F")
        if lower.dtype != np.float64 or not by_columns(lower):
            numbers = lower.astype(np.float64, order="F")
        launch = module("combine.cu").get_function("invert_blocks")
        launch((n // SQUARE_SIDE,), (SQUARE_SIDE,), (numbers, leading(numbers), whole, n))
        between, half = cupy.empty(n * order // 4), SQUARE_SIDE
        while half < order:
            product = between.data.ptr, half, half * half
            at = partial(_block, half=half)
            multiply = partial(_multiply_blocks, half=half, count=n // (2 * half))
            multiply(1.0, at(numbers, 1, 0), at(whole, 0, 0), product)
            multiply(-1.0, at(whole, 1, 1), product, at(whole, 1, 0))
            half *= 2
        for first in range(0, n, order):
            some = slice(first, first + order)
            found.append(cupy.empty((order, order), np.float32, order="F"))
            combine(found[-1], whole[some, some])
    return found


def _block(matrix, row, column, half):
    """Return the address of a block of order `half`, the leading dimension, and the stride.

    The stride leads to the same block of the next diagonal block of order 2·half.
    """
    part, step = matrix[row * half :, column * half :], leading(matrix)
    return part.data.ptr, step, 2 * half * (step + 1)


def _multiply_blocks(alpha, a, b, c, half, count):
    """C <- α AB for some `_block`s of FP64 matrices, on the current GPU."""
    from cupy_backends.cuda.libs import cublas

    none, scalars = cublas.CUBLAS_OP_N, (c_double(alpha), c_double(0.0))
    one, zero = map(addressof, scalars)
    sizes = half, half, half
    cublas.dgemmStridedBatched(cublas_handle(), none, none, *sizes, one, *a, *b, zero, *c, count)


def factor(uplo, a, info=None):
    """Overwrite one triangle with the Cholesky factor; return the info word.

    With `info`, (1,) int32, the word is written there instead, and is n where the last pivot is not
    finite; without it, the CPU waits for the GPU. Raises InvalidInput if the array spans more
    entries than cuSOLVER counts.
    """
    import cupy
    from cupy.cuda.device import get_cusolver_handle
    from cupy_backends.cuda.libs import cusolver

    cublas, letter, _ = _library(a)
    n, step = len(a), leading(a)
    if n * step > LARGEST_INDEX:
        raise InvalidInput(
            f"cuSOLVER's potrf takes at most {LARGEST_INDEX:,} entries in an array (order 46,340). "
            f"Got {n:,} columns that are {step:,} apart: use the CPU or smaller leaves."
        )
    triangle = (_triangle(cublas, uplo), n, a.data.ptr, step)
    with a.device:
        handle = get_cusolver_handle()
        size = getattr(cusolver, letter + "potrf_bufferSize")(handle, *triangle)
        work, word = cupy.empty(size, a.dtype), cupy.empty(1, np.int32) if info is None else info
        getattr(cusolver, letter + "potrf")(handle, *triangle, work.data.ptr, size, word.data.ptr)
        if info is None:
            return int(word[0])
        if n:
            _kernel("check_pivot", a)((1,), (1,), (a[-1:, -1:], np.int32(n), info))
    return None


def _library(array):
    """Return cuBLAS, its letter for an array's numbers, and ctypes' type of one."""
    from cupy_backends.cuda.libs import cublas

    return cublas, *BLAS_TYPES[array.dtype]


def _triangle(cublas, uplo):
    return {"L": cublas.CUBLAS_FILL_MODE_LOWER, "U": cublas.CUBLAS_FILL_MODE_UPPER}[uplo]


def _at(a):
    """Return the address of a view and its leading dimension."""
    return a.data.ptr, leading(a)


class CupyBackend(Backend):
    """CuPy arrays on one GPU."""

    name, on_gpu = "gpu", True

    _gemm, _triangular = staticmethod(gemm), staticmethod(triangular)
    _rank_k, _factor = staticmethod(rank_k), staticmethod(factor)

    @property
    def xp(self):
        """CuPy."""
        import cupy

        return cupy

    def product(self, c, a, b, form, alpha, beta=1.0):
        """C <- βC + α A B', α of `scale_of`; β is 1 but for FP32 in planes.

        FP8 is multiplied as FP8 where the GPU has units for it, padded with zeros to multiples of
        16; elsewhere as FP16, which holds its numbers.
        """
        if not c.size or not a.size:
            return
        known = isinstance(alpha, Real)
        with c.device:
            if form.columns:
                products_gpu.multiply_planes(c, a, b, form, alpha, beta, form.columns)
                return
            if c.dtype != np.float32:
                total = self.xp.zeros(c.shape, np.float32, order="F")
                # scaled in FP64: FP32 may not hold what FP64 does
                self.product(total, a, b, form, 1.0 if known else alpha)
                combine(c, total, alpha=alpha if known else 1.0, beta=1.0)
                return
            if not by_columns(c):
                # C' = C' + αBA'
                c, a, b = c.T, b, a
            if form.wider is not None:
                if products_gpu.multiply_fp8(c, a, b, form, alpha if known else alpha[:1]):
                    return
                alpha = alpha * 4.0**form.wider_shift if known else alpha[1:]
                a, b, form = self.as_wider(a, form), self.as_wider(b, form), form.wider
            products_gpu.multiply(c, a, b, form, alpha)

    def scale_of(self, alpha, a, b):
        """Return α 2^-(a+b); of exponents on the GPU (2,) FP32: for the format and its `wider`."""
        known = isinstance(a, int) and isinstance(b, int)
        return super().scale_of(alpha, a, b) if known else factors(a, b, alpha)

    def exponent_of(self, array, form):
        (array,) = columns_of(array)
        with array.device:
            return Exponents(1).find(0, array, form)

    def round_into(self, out, array, form, exponent):
        """Out <- the numbers of array·2^exponent in a format; `out` has the array's layout.

        FP8 may have the other layout where its exponent is on the GPU.
        """
        if form.columns:
            self.split(array, exponent, out)
            return
        array, out = columns_of(array, out)
        target = form.name if form.encode else TYPE_NAMES[form.dtype]
        kernel = f"{TYPE_NAMES[array.dtype]}_to_{target}"
        if _is_number(exponent) or form.top is None:
            exponent = exponent if _is_number(exponent) else 0
            _launch(kernel, [array, out], (array.dtype.type(2.0**exponent),))
        elif layout(out) == "F":
            _launch(f"{kernel}_by_pointer", [array, out], (exponent,))
        else:
            _transpose_into(out, array, form, exponent)

    def widen_into(self, out, values, form, exponent):
        if by_columns(out) != by_columns(values):
            wide = self.empty(out.shape, out.dtype, out, order_of(values))
            self.widen_into(wide, values, form, exponent)
            combine(out, wide)
            return
        out, values = columns_of(out, values)
        kernel = f"{TYPE_NAMES.get(values.dtype, form.name)}_to_{TYPE_NAMES[out.dtype]}"
        if _is_number(exponent):
            # FP32 and FP64 numbers are multiplied in their own type
            real = values.dtype if values.dtype in TYPE_NAMES else out.dtype
            _launch(kernel, [values, out], (real.type(2.0**-exponent),))
        else:
            _launch(f"{kernel}_by_pointer", [values, out], (exponent,))

    def split(self, array, exponent, out=None):
        """Return array·2^exponent as two FP16 planes, in `out` if it is given."""
        (array,) = columns_of(array)
        out = self.empty((*array.shape, 2), np.float16, array) if out is None else out
        known = _is_number(exponent)
        scale = array.dtype.type(2.0**exponent) if known else exponent
        kernel = f"{TYPE_NAMES[array.dtype]}_to_planes{'' if known else '_by_pointer'}"
        _launch(kernel, [array, out[:, :, 0], out[:, :, 1]], (scale,))
        return out

    def join_into(self, out, planes, exponent):
        known = _is_number(exponent)
        scale = out.dtype.type(2.0**-exponent) if known else exponent
        kernel = f"planes_to_{TYPE_NAMES[out.dtype]}{'' if known else '_by_pointer'}"
        _launch(kernel, [planes[:, :, 0], planes[:, :, 1], out], (scale,))

    def as_wider(self, values, form):
        out = self.empty(values.shape, form.wider.dtype, values, order_of(values))
        _launch("fp8_to_fp16", columns_of(values, out))
        return out

    def assign(self, out, a):
        combine(out, a)

    def largest(self, array):
        with array.device:
            if contiguous(array):
                (array,) = columns_of(array)
            exponents = Exponents(1)
            exponents.find(0, array, None)
            return magnitude_of(exponents.fetch()[0][0], array.dtype)

    def survey(self, a):
        n = len(a)
        with a.device:
            numbers = self.xp.zeros(n + 1)
            if n:
                numbers[:n] = a.diagonal()
                launch = _kernel("largest_of_lower", a)
                launch(
                    _squares(a.shape),
                    (SQUARE_SIDE, SQUARE_THREAD_ROWS),
                    (a, *_steps(a), n, numbers[n:]),
                )
            numbers = numbers.get()
        return numbers[:n], float(numbers[n])

    def copy_lower(self, out, source, rows=None, columns=None):
        with source.device:
            if rows is not None:
                rows, columns = self.xp.asarray(rows), self.xp.asarray(columns)
            combine(out, source, lower=True, rows=rows, columns=columns)

    def add_lower(self, c, total, scale=1.0):
        combine(c, total, alpha=scale, beta=1.0, lower=True)

    def scale_lower(self, c, beta):
        if beta != 1.0:
            combine(c, c, alpha=beta, lower=True)

    def clear_upper(self, a):
        # no product with zeros, which would keep a NaN
        above = a[:-1, 1:].T
        combine(above, above, alpha=0.0, lower=True)

    def index(self, array):
        return array.device.id

    def on(self, array):
        return array.device

    def put(self, array, like):
        if hasattr(array, "__cuda_array_interface__") and array.device != like.device:
            # a copy between GPUs would not wait for the work on the first one
            array = self.get(array)
        with like.device:
            return self.xp.asfortranarray(self.xp.asarray(array))

    def get(self, array):
        return array.get(order="A")


CUPY = CupyBackend()
