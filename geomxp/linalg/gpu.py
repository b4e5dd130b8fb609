"""CuPy arrays: cuBLAS and cuSOLVER on views, passes of cuda/combine.cu, and a second stream.

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

from contextlib import contextmanager
from ctypes import addressof
from dataclasses import dataclass

import numpy as np

from ..cuda import module
from ..errors import InvalidInput
from . import formats_gpu, products_gpu
from .blas import LETTERS
from .device import cublas_handle, streams
from .views import Views, by_columns, columns_of, contiguous, leading, operand, order_of

TYPES = {np.dtype(np.float32): "fp32", np.dtype(np.float64): "fp64"}

SIDE, STEP = 32, 8
"""Entries along the side of a block of threads, and its rows of threads, as in cuda/combine.cu."""


def combine(out, a, alpha=1.0, beta=0.0, lower=False, rows=None, columns=None):
    """Out <- α r_i a_ij c_j + β out, in one kernel, for arrays of any types and layouts.

    Parameters
    ----------
    out, a : (m, n) FP64 or FP32 cupy.ndarray
        They may be the same array, but must not overlap otherwise.
    alpha, beta : float
        An array whose factor is 0 is not read. Computed in FP64.
    lower : bool
        Read and write the lower triangle only.
    rows, columns : (m,) and (n,) FP64 cupy.ndarray, optional
        r and c, both or neither; ones if not given.
    """
    if not out.size:
        return
    scaled = rows is not None
    # CuPy does not convert None to a null pointer
    factors = (rows, columns) if scaled else (a, a)
    flags = np.int32(lower), np.int32(scaled)
    with out.device:
        _kernel("combine", a, out)(
            *(_squares(out.shape), (SIDE, STEP)),
            (
                *(a, *_steps(a), out, *_steps(out), *out.shape),
                *(*flags, *factors, np.float64(alpha), np.float64(beta)),
            ),
        )


def info_words(like, count):
    """Return zeroed info words for `factor`, on the GPU of an array."""
    import cupy

    with like.device:
        return cupy.zeros(count, np.int32)


def check_pivot(a, info):
    """Set an info word of cuSOLVER's potrf to n if it is 0 but the last pivot is not finite.

    Parameters
    ----------
    a : (n, n) view
    info : (1,) cupy.ndarray of int32
    """
    if len(a):
        with a.device:
            _kernel("check_pivot", a)((1,), (1,), (a[-1:, -1:], np.int32(len(a)), info))


@contextmanager
def second_stream(like):
    """Run the enclosed operations on a second stream.

    They follow all earlier ones of the current stream, and run concurrently with those that follow
    this block. Memory allocated in the block is reused by this stream only, so no other stream
    overwrites it.

    Yields
    ------
    cupy.cuda.Stream
    """
    import cupy

    with like.device:
        now = cupy.cuda.get_current_stream().record()
        (stream,) = streams(like.device.id, 1)
        stream.wait_event(now)
        with stream:
            yield stream


def synchronize(like):
    """Wait until the current and the second stream of an array's GPU have done all."""
    import cupy

    with like.device:
        streams(like.device.id, 1)[0].synchronize()
        cupy.cuda.get_current_stream().synchronize()


def wait_for(event, like):
    """Make later operations on an array's GPU wait for an event."""
    import cupy

    with like.device:
        cupy.cuda.get_current_stream().wait_event(event)


def _kernel(name, *arrays):
    """Return a kernel of cuda/combine.cu for arrays of some types."""
    return module("combine.cu").get_function("_".join((name, *(TYPES[a.dtype] for a in arrays))))


def _squares(shape):
    """Return the grid of a kernel whose blocks take SIDE by SIDE entries."""
    return tuple(-(-size // SIDE) for size in shape)


def _steps(a):
    """Return how many entries the next row and the next column are away."""
    return tuple(stride // a.itemsize for stride in a.strides)


# BLAS and LAPACK on arrays with contiguous columns; as in `blas`.

LARGEST_INDEX = 2**31 - 1
"""Entries that cuSOLVER's potrf counts in one array, those between its columns included."""

LARGEST_SQUARE = 2048
"""The largest order for which a rank-k update makes the whole product."""


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
    if len(c) <= LARGEST_SQUARE:
        _rank_k_of_small(c if uplo == "L" else c.T, a if trans == "N" else a.T, alpha, beta)
        return
    cublas, letter, real = _library(c)
    alpha, beta = real(alpha), real(beta)
    operation = {"N": cublas.CUBLAS_OP_N, "T": cublas.CUBLAS_OP_T}[trans]
    with c.device:
        getattr(cublas, letter + "syrk")(
            *(cublas_handle(), _triangle(cublas, uplo), operation, len(c), a.shape[trans == "N"]),
            *(addressof(alpha), *_at(a), addressof(beta), *_at(c)),
        )


def _rank_k_of_small(c, a, alpha, beta):
    """Lower triangle of C <- αAA' + βC, from the whole product."""
    import cupy

    with c.device:
        total = cupy.empty(c.shape, c.dtype, order=order_of(c))
        CUPY.gemm(total, a, a.T, alpha, 0.0)
        combine(c, total, beta=beta, lower=True)


def factor(uplo, a, info=None):
    """Overwrite one triangle with the Cholesky factor; return the info word.

    Parameters
    ----------
    uplo : {"L", "U"}
    a : (n, n) view
    info : (1,) cupy.ndarray of int32, optional
        Where the info word is left: also n where the last pivot is not finite. Without it, the CPU
        waits for the GPU to know the word.

    Returns
    -------
    int or None

    Raises
    ------
    InvalidInput
        If the array spans more places than cuSOLVER counts.
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
    place = (_triangle(cublas, uplo), n, a.data.ptr, step)
    with a.device:
        handle = get_cusolver_handle()
        size = getattr(cusolver, letter + "potrf_bufferSize")(handle, *place)
        work, word = cupy.empty(size, a.dtype), cupy.empty(1, np.int32) if info is None else info
        getattr(cusolver, letter + "potrf")(handle, *place, work.data.ptr, size, word.data.ptr)
        if info is None:
            return int(word[0])
        check_pivot(a, info)
    return None


def inverse(lower, unit):
    """Return the inverse of a lower triangle, zeros above the diagonal, Fortran order."""
    import cupy

    with lower.device:
        one = cupy.eye(len(lower), dtype=lower.dtype, order="F")
    return CUPY.trsm(lower, one, False, unit)


@dataclass(frozen=True)
class Scale:
    """α 2^-(e+f) with exponents e and f that are on the GPU, for FP8 panels with entries near 1.

    Parameters
    ----------
    alpha : float
    left, right : (2,) cupy.ndarray of int32
        Of `CupyBackend.exponent_of`.
    """

    alpha: float
    left: object
    right: object

    def own(self):
        """Return it for numbers in their own format, (1,) FP32 cupy.ndarray."""
        return formats_gpu.factors(self.left[:1], self.right[:1], self.alpha)

    def wider(self):
        """Return it for the numbers that `CupyBackend.as_wider` returns."""
        return formats_gpu.factors(self.left[1:], self.right[1:], self.alpha)


def multiply_by_inverse(b, inverse, transposed):
    """B <- B X or B X' for a small X, (n, n), in the arithmetic of B, an (m, n) view."""
    import cupy

    with b.device:
        copy = cupy.empty(b.shape, b.dtype, order=order_of(b))
    combine(copy, b)
    CUPY.gemm(b, copy, inverse.T if transposed else inverse, 1.0, 0.0)


def _multiply_by_lt(c, a, b, form, alpha):
    """C <- C + α A B' by cuBLASLt, for bits of FP8; return whether this GPU can."""
    import cupy

    if not products_gpu.has_units(form, c.device.id):
        return False
    (m, n), k = ((size + 15) // 16 * 16 for size in c.shape), -(-a.shape[1] // 16) * 16
    inside = c.shape == (m, n) and c.data.ptr % 16 == 0 and leading(c) % 4 == 0
    a, b = _by_rows(a, m, k), _by_rows(b, n, k)
    steps = (leading(a.T), leading(b.T), leading(c) if inside else m)
    on_gpu = isinstance(alpha, Scale)
    plan = products_gpu.plan(form, c.device.id, m, n, k, steps, on_gpu)
    if plan is None:
        return False
    alpha = alpha.own() if on_gpu else alpha
    total = c if inside else cupy.zeros((m, n), np.float32, order="F")
    products_gpu.execute(plan, total, a, b, alpha)
    if not inside:
        c += total[: c.shape[0], : c.shape[1]]
    return True


def _by_rows(a, rows, columns):
    """Return bits of FP8 as cuBLASLt takes them: as they are, or a copy with zeros beyond."""
    import cupy

    aligned = a.data.ptr % 16 == 0 and a.strides[0] % 16 == 0
    if a.shape == (rows, columns) and aligned and not by_columns(a):
        return a
    whole = cupy.zeros((rows, columns), a.dtype)
    whole[: a.shape[0], : a.shape[1]] = a
    return whole


def _library(array):
    """Return cuBLAS, its letter for an array's numbers, and ctypes' type of one."""
    from cupy_backends.cuda.libs import cublas

    return cublas, *LETTERS[array.dtype]


def _triangle(cublas, uplo):
    return {"L": cublas.CUBLAS_FILL_MODE_LOWER, "U": cublas.CUBLAS_FILL_MODE_UPPER}[uplo]


def _at(a):
    """Return the address of a view and its leading dimension."""
    return a.data.ptr, leading(a)


class CupyBackend(Views):
    """CuPy arrays on one GPU; see `backend.Backend`."""

    name, on_gpu = "gpu", True

    _gemm, _triangular = staticmethod(gemm), staticmethod(triangular)
    _rank_k, _factor = staticmethod(rank_k), staticmethod(factor)

    @property
    def xp(self):
        """CuPy."""
        import cupy

        return cupy

    def product(self, c, a, b, form, alpha):
        """C <- C + α A B', α a float or a `Scale`; A, B and C by rows or by columns.

        FP8 is multiplied as FP8 where the GPU has units for it, padded with zeros to multiples of
        16; elsewhere as FP16, which holds its numbers.
        """
        if not c.size or not a.size:
            return
        with c.device:
            if c.dtype != np.float32:
                total = self.xp.zeros(c.shape, np.float32, order="F")
                # scaled in FP64: FP32 may not hold what FP64 does
                inner, alpha = (alpha, 1.0) if isinstance(alpha, Scale) else (1.0, alpha)
                self.product(total, a, b, form, inner)
                combine(c, total, alpha=alpha, beta=1.0)
                return
            if not by_columns(c):
                # C' = C' + αBA'
                c, a, b = c.T, b, a
            if form.wider is not None:
                if _multiply_by_lt(c, a, b, form, alpha):
                    return
                known = not isinstance(alpha, Scale)
                alpha = alpha * 4.0**form.wider_shift if known else alpha.wider()
                a, b, form = self.as_wider(a, form), self.as_wider(b, form), form.wider
            (trans_a, a), (trans_b, b) = operand(a), operand(b)
            products_gpu.multiply(c, a, b, form, alpha, trans_a, "NT"[trans_b == "N"])

    def scale_of(self, alpha, a, b):
        """Return α 2^-(a+b), as a `Scale` where an exponent is known to the GPU only."""
        known = isinstance(a, int) and isinstance(b, int)
        return alpha * 2.0 ** -(a + b) if known else Scale(alpha, a, b)

    def exponent_of(self, array, form):
        """Return the exponent that brings an array to the top of a format's range, on its GPU."""
        (array,) = columns_of(array)
        with array.device:
            return formats_gpu.Exponents(1).find(0, array, form)

    def round_into(self, out, array, form, exponent):
        """Out <- the numbers of array·2^exponent in a format; `out` has the array's layout.

        FP8 may have the other layout where its exponent is on the GPU.
        """
        array, out = columns_of(array, out)
        with out.device:
            formats_gpu.round_into(out, array, form, exponent)

    def widen_into(self, out, values, form, exponent):
        """Out <- stored numbers times 2^-exponent."""
        if by_columns(out) != by_columns(values):
            wide = self.empty(out.shape, out.dtype, out, order_of(values))
            self.widen_into(wide, values, form, exponent)
            combine(out, wide)
            return
        out, values = columns_of(out, values)
        with out.device:
            formats_gpu.widen_into(out, values, form, exponent)

    def as_wider(self, values, form):
        """Return the numbers of FP8 as FP16."""
        out = self.empty(values.shape, form.wider.dtype, values, order_of(values))
        values, wide = columns_of(values, out)
        with out.device:
            formats_gpu.fp8_as_fp16_into(wide, values)
        return out

    def assign(self, out, a):
        """Out <- A."""
        combine(out, a)

    def largest(self, array):
        """Return max|a|; the CPU waits."""
        with array.device:
            if contiguous(array):
                (array,) = columns_of(array)
            return formats_gpu.magnitude(array)

    def survey(self, a):
        """Return the diagonal, and max|a| of the lower triangle, in one transfer."""
        n = len(a)
        with a.device:
            found = self.xp.zeros(n + 1)
            if n:
                found[:n] = a.diagonal()
                launch = _kernel("largest_of_lower", a)
                launch(_squares(a.shape), (SIDE, STEP), (a, *_steps(a), n, found[n:]))
            found = found.get()
        return found[:n], float(found[n])

    def copy_lower(self, out, source, rows=None, columns=None):
        """Lower triangle of out <- rows_i a_ij columns_j."""
        with source.device:
            if rows is not None:
                rows, columns = self.xp.asarray(rows), self.xp.asarray(columns)
            combine(out, source, lower=True, rows=rows, columns=columns)

    def add_lower(self, c, total):
        """Lower triangle of C <- C + total."""
        combine(c, total, beta=1.0, lower=True)

    def scale_lower(self, c, beta):
        """Lower triangle of C <- βC."""
        if beta != 1.0:
            combine(c, c, alpha=beta, lower=True)

    def clear_upper(self, a):
        """Set the entries above the diagonal to zero."""
        # no product with zeros, which would keep a NaN
        above = a[:-1, 1:].T
        combine(above, above, alpha=0.0, lower=True)

    def index(self, array):
        """Return the number of the array's GPU."""
        return array.device.id

    def on(self, array):
        """Return the array's device, as a context."""
        return array.device

    def empty(self, shape, dtype, like, order="F"):
        """Return an uninitialized array on the GPU of another one."""
        with like.device:
            return self.xp.empty(shape, dtype, order=order)

    def zeros(self, shape, dtype, like, order="F"):
        """Return zeros on the GPU of another array."""
        with like.device:
            return self.xp.zeros(shape, dtype, order=order)

    def put(self, array, like):
        """Return an array on the GPU of another one, in Fortran order."""
        with like.device:
            return self.xp.asfortranarray(self.xp.asarray(array))

    def get(self, array):
        """Return an array as a NumPy array; the CPU waits."""
        return array.get(order="A")

    def as_columns(self, array):
        """Return an array in Fortran order, on its GPU."""
        with array.device:
            return self.xp.asfortranarray(array)


CUPY = CupyBackend()
