/* Arrays into the narrow formats and back, in one pass over memory.

   What geomxp/precision/casts.py does on a CPU, with the same bits. Arrays are m by n with
   contiguous columns that begin ld entries apart; one without gaps is also a single column. */

#include "quantize.cuh"

#define THREADS 256

/* Each thread takes every so many rows i of every so many columns j. */
#define FOR_EACH(i, m, j, n)                                                                   \
    for (long long j = blockIdx.y; j < n; j += gridDim.y)                                      \
        for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < m;               \
             i += gridDim.x * (long long)THREADS)

/* *largest <- the larger of itself and the bits of max|x|, beyond infinity's where there is a
   NaN. Magnitudes are in the order of their bits. */
template <class Bits>
__device__ void find_largest(const Bits *x, long long m, long long n, long long ld, Bits *largest)
{
    __shared__ Bits of_block;
    const Bits sign = (Bits)1 << (8 * sizeof(Bits) - 1);
    if (threadIdx.x == 0) {
        of_block = 0;
    }
    __syncthreads();
    Bits found = 0;
    FOR_EACH(i, m, j, n) { found = max(found, x[i + j * ld] & ~sign); }
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

extern "C" __global__ void __launch_bounds__(THREADS) magnitude_fp32(
    const unsigned *__restrict__ x, long long m, long long n, long long ld, unsigned *largest)
{
    find_largest(x, m, n, ld, largest);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    magnitude_fp64(const unsigned long long *__restrict__ x, long long m, long long n,
                   long long ld, unsigned long long *largest)
{
    find_largest(x, m, n, ld, largest);
}

/* x·scale in FP32; FP64 is rounded to it first, as on the CPU. */
__device__ float scaled(float x, float scale) { return product_fp32(x, scale); }
__device__ float scaled(double x, double scale) { return rounded_fp32(x * scale); }

/* out <- value for each entry x of an array, with a power of two as scale. */
#define KERNEL(name, Source, Scale, Stored, value)                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Source *__restrict__ source, long long m, long long n, long long ld,        \
             Scale scale, Stored *__restrict__ out, long long ld_out)                          \
    {                                                                                          \
        FOR_EACH(i, m, j, n)                                                                   \
        {                                                                                      \
            const Source x = source[i + j * ld];                                               \
            out[i + j * ld_out] = value;                                                       \
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
extern "C" __global__ void __launch_bounds__(THREADS)
    fp8_to_fp16(const unsigned char *__restrict__ source, long long m, long long n, long long ld,
                unsigned short *__restrict__ out, long long ld_out)
{
    FOR_EACH(i, m, j, n) { out[i + j * ld_out] = fp8_as_fp16(source[i + j * ld]); }
}

/* high + low <- x·scale to FP32's accuracy, both FP16 */
extern "C" __global__ void __launch_bounds__(THREADS)
    fp32_to_planes(const float *__restrict__ source, long long m, long long n, long long ld,
                   float scale, unsigned short *__restrict__ high, long long ld_high,
                   unsigned short *__restrict__ low, long long ld_low)
{
    FOR_EACH(i, m, j, n)
    {
        const float x = scaled(source[i + j * ld], scale);
        const unsigned short top = fp16_bits_saturated(x);
        high[i + j * ld_high] = top;
        low[i + j * ld_low] = fp16_low_bits(x, top);
    }
}
