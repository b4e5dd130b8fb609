/* Arrays into the narrow formats and back, in one pass over memory.

   What geomxp/linalg/formats.py does on a CPU, with the same bits. Arrays are m by n with
   contiguous columns that begin ld entries apart; one without gaps is also a single column. */

#include "quantize.cuh"

#define THREADS 256

/* Each thread takes every so many rows i of every so many columns j. */
#define FOR_EACH(i, m, j, n)                                                                   \
    for (long long j = blockIdx.y; j < n; j += gridDim.y)                                      \
        for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < m;               \
             i += gridDim.x * (long long)THREADS)

/* The bits of max|x|: FP32's or FP64's, beyond infinity's where there is a NaN. Bits of
   magnitudes, as integers, have the same order. `done` counts the blocks that have reported. Both
   are 0 at the start. */
struct Largest {
    unsigned long long bits, done;
};

__device__ int exponent_of(unsigned bits, int top)
{
    return bits && bits < INFINITY_FP32 ? exponent_for(binary_exponent_fp32(bits), top) : 0;
}

__device__ int exponent_of(unsigned long long bits, int top)
{
    return bits && bits < INFINITY_FP64 ? exponent_for(binary_exponent_fp64(bits), top) : 0;
}

/* Finds the largest magnitude, and from it two exponents: that of the array in its own format, 0
   unless `own`, and that of its numbers in FP16, which is less by `shift`. */
template <class Bits>
__device__ void find_exponent(const Bits *x, long long m, long long n, long long ld, int top,
                              int own, int shift, Largest *largest, int *exponents)
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
        atomicMax(&largest->bits, (unsigned long long)of_block);
        __threadfence();
        /* the last block sees what all have reported */
        if (atomicAdd(&largest->done, 1ull) == (unsigned long long)gridDim.x * gridDim.y - 1) {
            const int exponent = exponent_of((Bits)atomicMax(&largest->bits, 0ull), top);
            exponents[0] = own ? exponent : 0;
            exponents[1] = exponent - shift;
        }
    }
}

#define FIND_EXPONENT(name, Bits)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Bits *__restrict__ x, long long m, long long n, long long ld, int top,      \
             int own, int shift, Largest *largest, int *exponents)                             \
    {                                                                                          \
        find_exponent(x, m, n, ld, top, own, shift, largest, exponents);                       \
    }
FIND_EXPONENT(exponent_fp32, unsigned)
FIND_EXPONENT(exponent_fp64, unsigned long long)

/* alpha_j <- factor 2^-(left_j + right_j) */
extern "C" __global__ void __launch_bounds__(THREADS)
    factors(const int *__restrict__ left, const int *__restrict__ right, long long count,
            float factor, float *__restrict__ alpha)
{
    const long long j = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (j < count) {
        alpha[j] = product_fp32(factor, rounded_fp32(power_of_two(-(left[j] + right[j]))));
    }
}

/* The same for rows of words, (rows, 2): alpha_(j, w) for w of 0 and 1 and pairs j of rows; count is
   twice that of the pairs. */
extern "C" __global__ void __launch_bounds__(THREADS)
    factors_of_pairs(const int *__restrict__ words, const int *__restrict__ pairs, long long count,
                     float factor, float *__restrict__ alpha)
{
    const long long j = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (j < count) {
        const int *pair = pairs + j / 2 * 2, word = j % 2;
        const int exponent = words[2 * pair[0] + word] + words[2 * pair[1] + word];
        alpha[j] = product_fp32(factor, rounded_fp32(power_of_two(-exponent)));
    }
}

/* x·scale in FP32; FP64 is rounded to it first, as on the CPU. */
__device__ float scaled(float x, float scale) { return product_fp32(x, scale); }
__device__ float scaled(double x, double scale) { return rounded_fp32(x * scale); }

__device__ float as_scale(double power, float) { return rounded_fp32(power); }
__device__ double as_scale(double power, double) { return power; }

/* out <- value for each entry x of an array, with a power of two as scale. */
#define KERNEL(name, Source, Scale, given, scale_, Stored, value)                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Source *__restrict__ source, long long m, long long n, long long ld,        \
             given, Stored *__restrict__ out, long long ld_out)                                \
    {                                                                                          \
        const Scale scale = scale_;                                                            \
        FOR_EACH(i, m, j, n)                                                                   \
        {                                                                                      \
            const Source x = source[i + j * ld];                                               \
            out[i + j * ld_out] = value;                                                       \
        }                                                                                      \
    }

#define BY_VALUE(name, Source, Scale, Stored, value)                                           \
    KERNEL(name, Source, Scale, Scale given, given, Stored, value)

/* exponents found on the GPU: times 2^exponent into a format, times 2^-exponent back */
#define BY_POINTER(name, Source, Scale, sign, Stored, value)                                   \
    KERNEL(name##_by_pointer, Source, Scale, const int *exponent,                              \
           as_scale(power_of_two(sign *exponent), (Scale)0), Stored, value)

#define BOTH(name, Source, Scale, sign, Stored, value)                                         \
    BY_VALUE(name, Source, Scale, Stored, value)                                               \
    BY_POINTER(name, Source, Scale, sign, Stored, value)

/* into a format; those with FP32's range have no exponents */
BY_VALUE(fp64_to_fp64, double, double, double, x * scale)
BY_VALUE(fp32_to_fp64, float, float, double, widened_fp64(scaled(x, scale)))
#define INTO_NARROW_FORMATS(source, Source)                                                    \
    BY_VALUE(source##_to_fp32, Source, Source, float, scaled(x, scale))                        \
    BY_VALUE(source##_to_tf32, Source, Source, float, tf32_number(scaled(x, scale)))           \
    BY_VALUE(source##_to_bf16, Source, Source, unsigned short, bf16_bits(scaled(x, scale)))    \
    BOTH(source##_to_fp16, Source, Source, +, unsigned short,                                  \
         fp16_bits_saturated(scaled(x, scale)))                                                \
    BOTH(source##_to_fp8, Source, Source, +, unsigned char, fp8_bits(scaled(x, scale)))
INTO_NARROW_FORMATS(fp64, double)
INTO_NARROW_FORMATS(fp32, float)

/* and back */
#define TO_FP32(form) product_fp32(form##_number(x), scale)
#define TO_FP64(form) widened_fp64(form##_number(x)) * scale
BY_VALUE(bf16_to_fp32, unsigned short, float, float, TO_FP32(bf16))
BY_VALUE(bf16_to_fp64, unsigned short, double, double, TO_FP64(bf16))
BOTH(fp16_to_fp32, unsigned short, float, -, float, TO_FP32(fp16))
BOTH(fp16_to_fp64, unsigned short, double, -, double, TO_FP64(fp16))
BOTH(fp8_to_fp32, unsigned char, float, -, float, TO_FP32(fp8))
BOTH(fp8_to_fp64, unsigned char, double, -, double, TO_FP64(fp8))

/* FP32's accuracy in two FP16 numbers: high + low = x 2^exponent, and back. Infinities become
   infinities with a NaN, so that products show them. */
__device__ unsigned short plane_bits(float x)
{
    const bool infinite = (bits_fp32(x) & 0x7fffffffu) == INFINITY_FP32;
    return infinite ? fp16_bits(x) : fp16_bits_saturated(x);
}

#define INTO_PLANES(name, Source, given, scale_)                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Source *__restrict__ source, long long m, long long n, long long ld,        \
             given, unsigned short *__restrict__ high, long long ld_high,                      \
             unsigned short *__restrict__ low, long long ld_low)                               \
    {                                                                                          \
        const Source scale = scale_;                                                           \
        FOR_EACH(i, m, j, n)                                                                   \
        {                                                                                      \
            const float x = scaled(source[i + j * ld], scale);                                 \
            const unsigned short top = plane_bits(x);                                          \
            high[i + j * ld_high] = top;                                                       \
            low[i + j * ld_low] = plane_bits(difference_fp32(x, fp16_number(top)));            \
        }                                                                                      \
    }
#define FROM_PLANES(name, Out, Scale, given, scale_, value)                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const unsigned short *__restrict__ high, long long m, long long n,                \
             long long ld_high, given, const unsigned short *__restrict__ low,                 \
             long long ld_low, Out *__restrict__ out, long long ld)                            \
    {                                                                                          \
        const Scale scale = scale_;                                                            \
        FOR_EACH(i, m, j, n)                                                                   \
        {                                                                                      \
            const float x =                                                                    \
                sum_fp32(fp16_number(high[i + j * ld_high]), fp16_number(low[i + j * ld_low]));\
            out[i + j * ld] = value;                                                           \
        }                                                                                      \
    }
#define PLANES(type, Real, value)                                                              \
    INTO_PLANES(type##_to_planes, Real, Real given, given)                                     \
    INTO_PLANES(type##_to_planes_by_pointer, Real, const int *exponent,                        \
                as_scale(power_of_two(*exponent), (Real)0))                                    \
    FROM_PLANES(planes_to_##type, Real, Real, Real given, given, value)                        \
    FROM_PLANES(planes_to_##type##_by_pointer, Real, Real, const int *exponent,                \
                as_scale(power_of_two(-*exponent), (Real)0), value)
PLANES(fp32, float, product_fp32(x, scale))
PLANES(fp64, double, widened_fp64(x) * scale)

/* FP32 or FP64 by columns to FP8 by rows, by squares of 32 in shared memory: both are accessed
   along their contiguous direction. */
#define SQUARE_SIDE 32
template <class Source>
__device__ void to_fp8_by_rows(const Source *source, long long m, long long n, long long ld,
                               Source scale, unsigned char *out, long long ld_out)
{
    __shared__ unsigned char square[SQUARE_SIDE][SQUARE_SIDE + 4];
    const int near = threadIdx.x % SQUARE_SIDE, first = threadIdx.x / SQUARE_SIDE;
    for (long long left = blockIdx.y * (long long)SQUARE_SIDE; left < n;
         left += gridDim.y * SQUARE_SIDE) {
        for (long long top = blockIdx.x * (long long)SQUARE_SIDE; top < m;
             top += gridDim.x * SQUARE_SIDE) {
            for (int j = first; j < SQUARE_SIDE; j += THREADS / SQUARE_SIDE) {
                if (top + near < m && left + j < n) {
                    const Source x = source[top + near + (left + j) * ld];
                    square[near][j] = fp8_bits(scaled(x, scale));
                }
            }
            __syncthreads();
            for (int i = first; i < SQUARE_SIDE; i += THREADS / SQUARE_SIDE) {
                if (top + i < m && left + near < n) {
                    out[(top + i) * ld_out + left + near] = square[i][near];
                }
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fp32_to_fp8_by_rows(const float *__restrict__ source, long long m, long long n, long long ld,
                        const int *exponent, unsigned char *__restrict__ out, long long ld_out)
{
    to_fp8_by_rows(source, m, n, ld, rounded_fp32(power_of_two(*exponent)), out, ld_out);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fp64_to_fp8_by_rows(const double *__restrict__ source, long long m, long long n, long long ld,
                        const int *exponent, unsigned char *__restrict__ out, long long ld_out)
{
    to_fp8_by_rows(source, m, n, ld, power_of_two(*exponent), out, ld_out);
}

/* numbers of FP16 that are 2^-8 times those of E4M3; the scale has no part in it */
extern "C" __global__ void __launch_bounds__(THREADS)
    fp8_to_fp16(const unsigned char *__restrict__ source, long long m, long long n, long long ld,
                unsigned short *__restrict__ out, long long ld_out)
{
    FOR_EACH(i, m, j, n) { out[i + j * ld_out] = fp8_as_fp16(source[i + j * ld]); }
}
