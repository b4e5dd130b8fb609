"""The loops of quantization, compiled by numba: one array in, its values in a format out.

All arrays are flat and contiguous; FP16 and BF16 numbers are handled as their bits. Rounding is to
nearest, ties to even. Compiled functions release the interpreter's lock.
"""

import platform

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic

HARDWARE = bool(binding.get_host_cpu_features().get("f16c")) or platform.machine() in (
    *("aarch64", "arm64"),
)
"""Whether the CPU converts FP16 itself; without, LLVM would call a library that may be missing."""

STRIP = 512
_SUMS = {"reassoc", "nsz", "contract"}


@intrinsic
def _round_to_half(context, x):
    def build(context, builder, signature, arguments):
        half = builder.fptrunc(arguments[0], ir.HalfType())
        return builder.bitcast(half, ir.IntType(16))

    return types.uint16(types.float32), build


@intrinsic
def _widen_half(context, bits):
    def build(context, builder, signature, arguments):
        half = builder.bitcast(arguments[0], ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.uint16), build


@njit(nogil=True, cache=True)
def magnitude_fp32(x):
    """Return the bits of max|x| (larger than infinity's where there is a NaN), for FP32."""
    bits = x.view(np.int32)
    largest = np.int32(0)
    for p in range(bits.size):
        largest = max(largest, bits[p] & np.int32(0x7FFFFFFF))
    return largest


@njit(nogil=True, cache=True)
def magnitude_fp64(x):
    """As `magnitude_fp32`, for FP64."""
    bits = x.view(np.int64)
    largest = np.int64(0)
    for p in range(bits.size):
        largest = max(largest, bits[p] & np.int64(0x7FFFFFFFFFFFFFFF))
    return largest


@njit(nogil=True, cache=True, fastmath=_SUMS)
def sum_of_squares(x):
    """Return Σx² in FP64, by strips of FP32 sums where x is FP32."""
    total = 0.0
    for first in range(0, x.size, STRIP):
        part = x[first] * x[first]
        for p in range(first + 1, min(first + STRIP, x.size)):
            part += x[p] * x[p]
        total += part
    return total


@njit(nogil=True, cache=True)
def add(c, product):
    """C <- c + product, for an FP64 c and an FP32 product."""
    for p in range(c.size):
        c[p] += product[p]


if HARDWARE:

    @njit(nogil=True, cache=True)
    def to_fp16(x, scale, out):
        """Out <- the bits of x·scale in FP16."""
        for p in range(x.size):
            out[p] = _round_to_half(np.float32(x[p] * scale))

    @njit(nogil=True, cache=True)
    def from_fp16(x, scale, out):
        """Out <- FP16 bits, widened, times scale."""
        for p in range(x.size):
            out[p] = _widen_half(x[p]) * scale

    @njit(nogil=True, cache=True)
    def split_fp16(x, scale, high, low):
        """High + low <- x·scale to FP32's accuracy, both the bits of FP16."""
        for p in range(x.size):
            value = np.float32(x[p] * scale)
            top = _round_to_half(value)
            high[p] = top
            low[p] = _round_to_half(value - _widen_half(top))

    @njit(nogil=True, cache=True)
    def join_fp16(high, low, scale, out):
        """Out <- (high + low)·scale."""
        for p in range(high.size):
            out[p] = (_widen_half(high[p]) + _widen_half(low[p])) * scale

else:

    def to_fp16(x, scale, out):
        """Out <- the bits of x·scale in FP16."""
        out[:] = (x * scale).astype(np.float16).view(np.uint16)

    def from_fp16(x, scale, out):
        """Out <- FP16 bits, widened, times scale."""
        np.multiply(x.view(np.float16), scale, out=out, dtype=out.dtype)

    def split_fp16(x, scale, high, low):
        """High + low <- x·scale to FP32's accuracy, both the bits of FP16."""
        value = (x * scale).astype(np.float32)
        top = value.astype(np.float16)
        high[:] = top.view(np.uint16)
        low[:] = (value - top).astype(np.float16).view(np.uint16)

    def join_fp16(high, low, scale, out):
        """Out <- (high + low)·scale."""
        both = high.view(np.float16).astype(np.float32) + low.view(np.float16)
        np.multiply(both, scale, out=out)


@njit(nogil=True, cache=True)
def to_bf16(x, scale, out):
    """Out <- the bits of x·scale in BF16."""
    strip = np.empty(STRIP, dtype=np.float32)
    bits = strip.view(np.uint32)
    for first in range(0, x.size, STRIP):
        count = min(STRIP, x.size - first)
        for p in range(count):
            strip[p] = x[first + p] * scale
        for p in range(count):
            b = bits[p]
            odd = (b >> np.uint32(16)) & np.uint32(1)
            out[first + p] = np.uint16((b + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@njit(nogil=True, cache=True)
def from_bf16(x, scale, out):
    """Out <- BF16 bits, widened, times scale."""
    strip = np.empty(STRIP, dtype=np.uint32)
    values = strip.view(np.float32)
    for first in range(0, x.size, STRIP):
        count = min(STRIP, x.size - first)
        for p in range(count):
            strip[p] = np.uint32(x[first + p]) << np.uint32(16)
        for p in range(count):
            out[first + p] = values[p] * scale


@njit(nogil=True, cache=True)
def to_tf32(x, scale, out):
    """Out <- x·scale rounded to 11 significant bits, as FP32."""
    bits = out.view(np.uint32)
    for p in range(x.size):
        out[p] = x[p] * scale
    for p in range(x.size):
        b = bits[p]
        odd = (b >> np.uint32(13)) & np.uint32(1)
        bits[p] = (b + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)


@njit(nogil=True, cache=True)
def to_fp8(x, scale, out):
    """Out <- the bits of x·scale in E4M3; magnitudes above 448 become 448."""
    strip = np.empty(STRIP, dtype=np.float32)
    shifted = np.empty(STRIP, dtype=np.float32)
    bits, small = strip.view(np.uint32), shifted.view(np.uint32)
    for first in range(0, x.size, STRIP):
        count = min(STRIP, x.size - first)
        for p in range(count):
            value = np.float32(x[first + p] * scale)
            strip[p] = min(max(value, np.float32(-448.0)), np.float32(448.0))
            # subnormals are multiples of 2^-9: adding 2^14 leaves no others
            shifted[p] = abs(strip[p]) + np.float32(16384.0)
        for p in range(count):
            b = bits[p]
            a = b & np.uint32(0x7FFFFFFF)
            odd = (a >> np.uint32(20)) & np.uint32(1)
            normal = (a + np.uint32(0x7FFFF) + odd - np.uint32(120 << 23)) >> np.uint32(20)
            subnormal = small[p] - np.uint32(0x46800000)
            magnitude = normal if a >= np.uint32(121 << 23) else subnormal
            out[first + p] = np.uint8(magnitude | ((b >> np.uint32(24)) & np.uint32(0x80)))


@njit(nogil=True, cache=True)
def fp8_as_fp16(x, out):
    """Out <- bits of FP16 numbers that are 2^-8 times the E4M3 numbers x, exactly."""
    for p in range(x.size):
        v = np.uint16(x[p])
        sign = (v & np.uint16(0x80)) << np.uint16(8)
        out[p] = sign | ((v & np.uint16(0x7F)) << np.uint16(7))
