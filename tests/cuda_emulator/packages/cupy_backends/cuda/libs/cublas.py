"""cuBLAS by addresses, with CuPy's argument lists; and cuBLASLt, which loads with it."""

import ctypes
from ctypes import c_double, c_float

import ml_dtypes
import numpy as np
import scipy.linalg.blas
from cuda_emulator import machine
from cuda_emulator.machine import operand

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT = 0, 1
CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER = 0, 1
CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT = 0, 1
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE = 0, 1

INVALID_VALUE, NOT_SUPPORTED = 7, 15

TYPES = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    14: np.dtype(ml_dtypes.bfloat16),
    28: np.dtype(ml_dtypes.float8_e4m3fn),
}
"""cudaDataType."""

COMPUTE = {
    68: {(0, 0, 0), (2, 2, 0), (2, 2, 2), (14, 14, 0), (14, 14, 14)},
    77: {(0, 0, 0)},
    70: {(1, 1, 1)},
    79: {(1, 1, 1)},
}
"""Types of A, B and C that cublasGemmEx takes, by cublasComputeType_t: CUBLAS_COMPUTE_32F,
_32F_FAST_TF32, _64F and _64F_EMULATED_FIXEDPOINT."""

INT = 2**31 - 1


class CUBLASError(RuntimeError):
    """An error of cuBLAS."""

    def __init__(self, status):
        super().__init__(f"CUBLAS status {status}")
        self.status = status


def _integers(*values):
    """Raise OverflowError, as CuPy's binding does, for sizes that do not fit into a C int."""
    for value in values:
        if not 0 <= value <= INT:
            raise OverflowError(f"value too large to convert to int: {value}")


_modes = {}
"""The pointer mode of each handle; CUBLAS_POINTER_MODE_HOST if it is not here."""


def create():
    """Return a new handle for the current device."""
    machine.count("handles created")
    return machine.new_handle("cublas", machine.current_device())


def destroy(handle):
    """Forget a handle's mode."""
    _modes.pop(handle, None)


def getPointerMode(handle):
    """Return where a handle's calls find their scalars."""
    machine.check_handle(handle, "cublas")
    return _modes.get(handle, CUBLAS_POINTER_MODE_HOST)


def setPointerMode(handle, mode):
    """Say where a handle's calls find their scalars."""
    machine.check_handle(handle, "cublas")
    _modes[handle] = mode


def _scalars(on_device, kind, *addresses):
    """Return a function for each scalar, and their allocations.

    Those of the host are read when the call is made, those of a device when it is executed.
    """
    if not on_device:
        if any(machine._allocation_at(address, 1) for address in addresses):
            machine.fault("cuBLAS: a scalar of the host is in the memory of a device")
        values = [kind.from_address(address).value for address in addresses]
        return [lambda value=value: value for value in values], []
    found = [operand(address, 1, 1, 1, np.dtype(kind), "a scalar") for address in addresses]
    return [lambda array=array: array()[0, 0] for array, _ in found], [
        a for _, x in found for a in x
    ]


def _shape(transposed, rows, columns):
    return (columns, rows) if transposed else (rows, columns)


def _product(transa, transb, alpha, beta, wide):
    """Return C <- α op(A) op(B) + βC in one arithmetic; C is not read for β = 0.

    The scalars are functions, called when the product is executed.
    """

    def work(a, b, c):
        one, two = (a.T if transa else a).astype(wide), (b.T if transb else b).astype(wide)
        total, factor = wide(alpha()) * (one @ two), wide(beta())
        c[...] = (total if factor == 0 else total + factor * c.astype(wide)).astype(c.dtype)

    return work


def _gemm(name, real, dtype):
    def gemm(handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        machine.check_handle(handle, "cublas")
        _integers(m, n, k, lda, ldb, ldc)
        scalars, more = _scalars(_modes.get(handle), real, alpha, beta)
        found, used = operand(c, m, n, ldc, dtype, "C")
        operands = (
            operand(a, *_shape(transa, m, k), lda, dtype, "A"),
            operand(b, *_shape(transb, k, n), ldb, dtype, "B"),
            (found, used + more),
        )
        work = _product(transa, transb, *scalars, dtype)
        machine.library_call(name, work, operands, output=2)

    return gemm


sgemm, dgemm = _gemm("sgemm", c_float, np.float32), _gemm("dgemm", c_double, np.float64)


def dgemmStridedBatched(
    handle, transa, transb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,
    stride_c, count,
):  # fmt: skip
    """cublasDgemmStridedBatched: one call for products of matrices at equal distances."""
    machine.check_handle(handle, "cublas")
    _integers(m, n, k, lda, ldb, ldc, count)
    scalars = _scalars(_modes.get(handle), c_double, alpha, beta)[0]
    product, kind = _product(transa, transb, *scalars, np.float64), np.dtype(np.float64)
    operands = []
    for j in range(count):
        for start, rows, columns, step, apart, name in (
            (a, *_shape(transa, m, k), lda, stride_a, "A"),
            (b, *_shape(transb, k, n), ldb, stride_b, "B"),
            (c, m, n, ldc, stride_c, "C"),
        ):
            operands.append(operand(start + 8 * j * apart, rows, columns, step, kind, name))

    def work(*matrices):
        for j in range(0, len(matrices), 3):
            product(*matrices[j : j + 3])

    machine.library_call("dgemmStridedBatched", work, operands, output=range(2, 3 * count, 3))


def tf32(array):
    """Return FP32 numbers with the 10 bits after the point that tensor cores read."""
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def gemmEx(
    handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,
    compute, algorithm,
):  # fmt: skip
    """cublasGemmEx: FP16 and BF16 are multiplied exactly and summed in FP32."""
    machine.check_handle(handle, "cublas")
    _integers(m, n, k, lda, ldb, ldc)
    if (atype, btype, ctype) not in COMPUTE.get(compute, ()):
        raise CUBLASError(NOT_SUPPORTED)
    real, wide = (c_double, np.float64) if compute in (70, 79) else (c_float, np.float32)
    scalars, more = _scalars(_modes.get(handle), real, alpha, beta)
    found, used = operand(c, m, n, ldc, TYPES[ctype], "C")
    operands = (
        operand(a, *_shape(transa, m, k), lda, TYPES[atype], "A"),
        operand(b, *_shape(transb, k, n), ldb, TYPES[btype], "B"),
        (found, used + more),
    )
    product = _product(transa, transb, *scalars, wide)

    def work(a, b, c):
        if compute == 77:
            a, b = tf32(np.array(a, order="F")), tf32(np.array(b, order="F"))
        product(a, b, c)

    machine.library_call("gemmEx", work, operands, output=2, about=compute)


def _trsm(name, real, dtype):
    def trsm(handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb):
        machine.check_handle(handle, "cublas")
        _integers(m, n, lda, ldb)
        order = n if side == CUBLAS_SIDE_RIGHT else m
        (scale,), more = _scalars(_modes.get(handle), real, alpha)
        solve = getattr(scipy.linalg.blas, name)

        def work(a, b):
            if not b.size:
                return
            b[...] = solve(
                scale(), np.array(a, order="F"), np.array(b, order="F"), side=side,
                lower=uplo == CUBLAS_FILL_MODE_LOWER, trans_a=trans, diag=diag,
            )  # fmt: skip

        found, used = operand(b, m, n, ldb, dtype, "B")
        operands = operand(a, order, order, lda, dtype, "A"), (found, used + more)
        machine.library_call(name, work, operands, output=1)

    return trsm


strsm, dtrsm = _trsm("strsm", c_float, np.float32), _trsm("dtrsm", c_double, np.float64)


def _syrk(name, real, dtype):
    def syrk(handle, uplo, trans, n, k, alpha, a, lda, beta, c, ldc):
        machine.check_handle(handle, "cublas")
        _integers(n, k, lda, ldc)
        (alpha, beta), more = _scalars(_modes.get(handle), real, alpha, beta)

        def work(a, c):
            a, factor = a.T if trans else a, dtype(beta())
            total = dtype(alpha()) * (a @ a.T)
            total = total if factor == 0 else total + factor * c
            lower = np.tri(n, dtype=bool)
            np.copyto(c, total, where=lower if uplo == CUBLAS_FILL_MODE_LOWER else lower.T)

        found, used = operand(c, n, n, ldc, dtype, "C")
        operands = operand(a, *_shape(trans, n, k), lda, dtype, "A"), (found, used + more)
        machine.library_call(name, work, operands, output=1)

    return syrk


ssyrk, dsyrk = _syrk("ssyrk", c_float, np.float32), _syrk("dsyrk", c_double, np.float64)


def setStream(handle, stream):
    """Do nothing: CuPy's calls take the current stream."""


ATTRIBUTES = {
    "desc": {0: 4, 1: 4, 2: 4, 3: 4, 4: 4, 25: 1},
    "preference": {1: 8, 5: 4, 6: 4, 7: 4, 8: 4},
}
"""Bytes of the attributes of cuBLASLt's products and preferences."""


class CublasLt:
    """cuBLASLt's C interface, as ctypes calls it: FP8 products on Hopper.

    Descriptors are numbers; an algorithm is valid only for the descriptors it was chosen for.
    """

    WORKSPACE = 4096

    def __init__(self):
        self._made = {}

    def _new(self, out, value):
        number = 0x10000 + len(self._made)
        self._made[number] = value
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = number
        return 0

    def _found(self, descriptor, kind):
        found = self._made.get(descriptor.value)
        if found is None or found["kind"] != kind:
            machine.fault(f"cuBLASLt: {descriptor} is not a {kind}")
        return found

    def cublasLtMatmulDescCreate(self, out, compute, scale):
        return self._new(out, {"kind": "desc", "types": (compute.value, scale.value)})

    def cublasLtMatmulPreferenceCreate(self, out):
        return self._new(out, {"kind": "preference"})

    def cublasLtMatrixLayoutCreate(self, out, dtype, rows, columns, leading):
        shape = (dtype.value, rows.value, columns.value, leading.value)
        return self._new(out, {"kind": "layout", "shape": shape})

    def _set(self, descriptor, kind, attribute, value, size):
        if ATTRIBUTES[kind].get(attribute.value) != size.value:
            return INVALID_VALUE
        address = ctypes.cast(value, ctypes.c_void_p)
        bits = ctypes.string_at(address, size.value)
        self._found(descriptor, kind)[attribute.value] = int.from_bytes(bits, "little")
        return 0

    def cublasLtMatmulDescSetAttribute(self, descriptor, attribute, value, size):
        return self._set(descriptor, "desc", attribute, value, size)

    def cublasLtMatmulPreferenceSetAttribute(self, descriptor, attribute, value, size):
        return self._set(descriptor, "preference", attribute, value, size)

    def _supported(self, desc, a, b, c):
        """Whether Hopper has a kernel: A'B of FP8, 16 bytes at a time, into FP32."""
        (kind, *sizes_a), (other, *sizes_b), (target, m, n, ldc) = (x["shape"] for x in (a, b, c))
        aligned = not any(size % 16 for size in (*sizes_a, *sizes_b, m, n)) and ldc % 4 == 0
        fits = sizes_a[0] == sizes_b[0] and (sizes_a[1], sizes_b[1]) == (m, n)
        transposed = desc.get(3) == CUBLAS_OP_T and desc.get(4, 0) == CUBLAS_OP_N
        types = (kind, other, target) == (28, 28, 0) and desc["types"] == (68, 0)
        return int(machine.CAPABILITY) >= 89 and aligned and fits and transposed and types

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle, desc, a, b, c, d, preference, requested, results, count
    ):
        machine.check_handle(handle.value, "cublas")
        layouts = [self._found(x, "layout") for x in (a, b, c)]
        preference = self._found(preference, "preference")
        if not self._supported(self._found(desc, "desc"), *layouts):
            return NOT_SUPPORTED
        if preference.get(1, 0) < self.WORKSPACE:
            return NOT_SUPPORTED
        # byref() keeps its object
        if ctypes.sizeof(results._obj) < 96 * requested.value:
            machine.fault("cuBLASLt: the array of results is smaller than the number requested")
        found = ctypes.cast(results, ctypes.c_void_p).value
        algorithm = (ctypes.c_uint64 * 8).from_address(found)
        alignment = min(preference.get(k, 256) for k in (5, 6, 7, 8))
        algorithm[:5] = (desc.value, a.value, b.value, c.value, alignment)
        ctypes.c_size_t.from_address(found + 64).value = self.WORKSPACE
        ctypes.c_int.from_address(found + 72).value = 0
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = 1
        return 0

    def cublasLtMatmul(
        self, handle, desc, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d,
        algorithm, workspace, size, stream,
    ):  # fmt: skip
        machine.check_handle(handle.value, "cublas")
        where = ctypes.cast(algorithm, ctypes.c_void_p).value
        *chosen, alignment = (ctypes.c_uint64 * 5).from_address(where)
        if chosen != [x.value for x in (desc, layout_a, layout_b, layout_c)]:
            machine.fault("cuBLASLt: the algorithm was chosen for other descriptors")
        if (c.value, layout_c.value) != (d.value, layout_d.value):
            machine.fault("cuBLASLt: the emulator multiplies in place only")
        if size.value < self.WORKSPACE:
            return INVALID_VALUE
        if any(x.value % alignment for x in (a, b, c)) or workspace.value % 16:
            machine.fault(f"cuBLASLt: operands must be aligned to {alignment} bytes")
        parts = []
        for address, layout, name in ((a, layout_a, "A"), (b, layout_b, "B"), (c, layout_c, "C")):
            kind, rows, columns, leading = self._found(layout, "layout")["shape"]
            parts.append(operand(address.value, rows, columns, leading, TYPES[kind], name))
        parts.append(operand(workspace.value, size.value, 1, size.value, np.uint8, "workspace"))
        addresses = (ctypes.cast(x, ctypes.c_void_p).value for x in (alpha, beta))
        on_device = self._found(desc, "desc").get(2, CUBLAS_POINTER_MODE_HOST)
        scalars, more = _scalars(on_device, c_float, *addresses)
        parts[-1][1].extend(more)
        product = _product(True, False, *scalars, np.float32)
        queue = machine.queue_of(stream.value)
        if queue is not machine.current_queue():
            machine.fault("cuBLASLt: called on a stream that is not the current one")
        machine.library_call("cublasLtMatmul", lambda a, b, c, _: product(a, b, c), parts, output=2)
        return 0


class Cublas:
    """Functions of cuBLAS's C interface that CuPy does not bind."""

    def cublasSetEmulationStrategy(self, handle, strategy):
        machine.check_handle(handle.value, "cublas")
        return 0

    def _trmm(self, name, real, dtype, handle, side, uplo, trans, diag, m, n, alpha, *places):
        machine.check_handle(handle.value, "cublas")
        a, lda, b, ldb, c, ldc = (x.value for x in places)
        letters = {"side": side.value, "lower": uplo.value == CUBLAS_FILL_MODE_LOWER}
        letters |= {"trans_a": trans.value, "diag": diag.value}
        scale = real.from_address(ctypes.cast(alpha, ctypes.c_void_p).value).value
        multiply, m, n = getattr(scipy.linalg.blas, name), m.value, n.value
        order = n if side.value == CUBLAS_SIDE_RIGHT else m

        def work(a, b, c):
            c[...] = multiply(scale, np.array(a, order="F"), np.array(b, order="F"), **letters)

        operands = (
            operand(a, order, order, lda, dtype, "A"),
            operand(b, m, n, ldb, dtype, "B"),
            operand(c, m, n, ldc, dtype, "C"),
        )
        machine.library_call(name, work, operands, output=2, in_place=(1,))
        return 0

    def cublasDtrmm_v2(self, *arguments):
        return self._trmm("dtrmm", c_double, np.float64, *arguments)

    def cublasStrmm_v2(self, *arguments):
        return self._trmm("strmm", c_float, np.float32, *arguments)


LIBRARIES = {"libcublasLt.so.13": CublasLt(), "libcublas.so": Cublas()}
"""Libraries that ctypes.CDLL returns, by their names."""

_CDLL = ctypes.CDLL


def _loaded(name=None, *arguments, **options):
    """Replacement of ctypes.CDLL."""
    return LIBRARIES.get(name) or _CDLL(name, *arguments, **options)


def load():
    """Make ctypes.CDLL find the emulated libraries."""
    ctypes.CDLL = _loaded


def unload():
    """Undo `load`."""
    ctypes.CDLL = _CDLL


load()
