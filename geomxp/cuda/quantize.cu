/* Arrays into the narrow formats and back, in one pass over contiguous memory.

   What geomxp/precision/casts.py does on a CPU, with the same bits. */

#include "quantize.cuh"

#define THREADS 256

/* Each thread takes every so many entries p. */
#define FOR_EACH(p, count)                                                                     \
    for (long long p = blockIdx.x * (long long)THREADS + threadIdx.x; p < count;               \
         p += gridDim.x * (long long)THREADS)

/* *largest <- the larger of itself and the bits of max|x|, beyond infinity's where there is a
   NaN. Magnitudes are in the order of their bits. */
template <class Bits> __device__ void find_largest(const Bits *x, long long n, Bits *largest)
{
    __shared__ Bits of_block;
    const Bits sign = (Bits)1 << (8 * sizeof(Bits) - 1);
    if (threadIdx.x == 0) {
        of_block = 0;
    }
    __syncthreads();
    Bits found = 0;
    FOR_EACH(p, n) { found = max(found, x[p] & ~sign); }
    for (int apart = 16; apart; apart /= 2) {
        found = max(found, __shfl_down_sync(0xffffffffu, found, apart));
    }
    if (threadIdx.x % 32 == 0) {
        atomicMax(&of_block, found);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicMax(largest, of_block);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    magnitude_fp32(const unsigned *__restrict__ x, long long n, unsigned *largest)
{
    find_largest(x, n, largest);
}

extern "C" __global__ void __launch_bounds__(THREADS) magnitude_fp64(
    const unsigned long long *__restrict__ x, long long n, unsigned long long *largest)
{
    find_largest(x, n, largest);
}

/* x·scale in FP32; FP64 is rounded to it first, as on the CPU. */
__device__ float scaled(float x, float scale) { return product_fp32(x, scale); }
__device__ float scaled(double x, double scale) { return rounded_fp32(x * scale); }

/* out <- value for each entry x of an array, with a power of two as scale. */
#define KERNEL(name, Source, Scale, Stored, value)                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Source *__restrict__ source, long long n, Scale scale,                      \
             Stored *__restrict__ out)                                                         \
    {                                                                                          \
        FOR_EACH(p, n)                                                                         \
        {                                                                                      \
            const Source x = source[p];                                                        \
            out[p] = value;                                                                    \
        }                                                                                      \
    }

/* into a format */
KERNEL(fp64_to_fp64, double, double, double, x * scale)
KERNEL(fp32_to_fp64, float, float, double, widened_fp64(scaled(x, scale)))
#define INTO_NARROW_FORMATS(source, Source)                                                    \
    KERNEL(source##_to_fp32, Source, Source, float, scaled(x, scale))                          \
    KERNEL(source##_to_tf32, Source, Source, float, tf32_number(scaled(x, scale)))             \
    KERNEL(source##_to_bf16, Source, Source, unsigned short, bf16_bits(scaled(x, scale)))      \
    KERNEL(source##_to_fp16, Source, Source, unsigned short,                                   \
           fp16_bits_saturated(scaled(x, scale)))                                              \
    KERNEL(source##_to_fp8, Source, Source, unsigned char, fp8_bits(scaled(x, scale)))
INTO_NARROW_FORMATS(fp64, double)
INTO_NARROW_FORMATS(fp32, float)

/* and back */
#define FROM_NARROW_FORMAT(form, Bits)                                                         \
    KERNEL(form##_to_fp32, Bits, float, float, product_fp32(form##_number(x), scale))          \
    KERNEL(form##_to_fp64, Bits, double, double, widened_fp64(form##_number(x)) * scale)
FROM_NARROW_FORMAT(bf16, unsigned short)
FROM_NARROW_FORMAT(fp16, unsigned short)
FROM_NARROW_FORMAT(fp8, unsigned char)

/* numbers of FP16 that are 2^-8 times those of E4M3; the scale has no part in it */
extern "C" __global__ void __launch_bounds__(THREADS) fp8_to_fp16(
    const unsigned char *__restrict__ source, long long n, unsigned short *__restrict__ out)
{
    FOR_EACH(p, n) { out[p] = fp8_as_fp16(source[p]); }
}
