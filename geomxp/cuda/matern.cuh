/* Correlations from tables, and narrow number formats: the arithmetic of one entry.

   Written in what C99 and CUDA C++ have in common, so that a C compiler builds it for the host
   and tests it against geomxp/covariance/pairs_numba.py. Every fma is written out, in the order in
   which that kernel is compiled: compile with contraction off and the bits are the same. */

#ifndef GEOMXP_MATERN_CUH
#define GEOMXP_MATERN_CUH

#if defined(__CUDACC__)
#define LEAF static __device__ __forceinline__
#else
#include <math.h>
#define LEAF static inline
#endif

/* as in geomxp/covariance/table.py and distance.py */
#define SPLIT 5
#define SPLIT_FP32 6
#define EARTH_RADIUS 6371.0
#define FOLD_SCALE 9007199254740992.0 /* 2^53 */
#define FOLD_END 1267650600228229401496703205376.0 /* 2^100 */

LEAF long long bits_fp64(double number)
{
    union { double number; long long bits; } u;
    u.number = number;
    return u.bits;
}

LEAF double number_fp64(long long bits)
{
    union { long long bits; double number; } u;
    u.bits = bits;
    return u.number;
}

LEAF unsigned bits_fp32(float number)
{
    union { float number; unsigned bits; } u;
    u.number = number;
    return u.bits;
}

LEAF float number_fp32(unsigned bits)
{
    union { unsigned bits; float number; } u;
    u.bits = bits;
    return u.number;
}

/* s = |d|²/a². A dimension that is not there has difference 0, which changes no bit. */
LEAF double squared_distance(double d0, double d1, double d2, double inverse)
{
    return fma(d2, d2, fma(d0, d0, d1 * d1)) * inverse;
}

/* The same of the great-circle arc, from that of the chord: arc = 2R asin(chord / 2R). */
LEAF double squared_arc(double s, double inverse)
{
    double half_chord = sqrt(s / inverse) / (2 * EARTH_RADIUS);
    double length = 2 * EARTH_RADIUS * asin(fmin(half_chord, 1.0));
    return length * length * inverse;
}

/* The variable of a folded table, which ends smoothly at s = 1: see `fold` in table.py. */
LEAF double folded(double s)
{
    double far = s < 1.0 ? (1.0 - s) * FOLD_SCALE : FOLD_END;
    return s < 0.5 ? s : far;
}

/* Row of the table for s, and t in [-1, 1) on its interval, from the bits of s.

   Row 0 stands for s = 0, row `top` for s beyond the table. Where s > 0 gets row 0 it is nearer
   to 0 than the table reaches: a missed pair. */
LEAF int interval_fp64(double s, int base, int top, double *t)
{
    long long b = bits_fp64(s);
    int q = (int)(b >> (52 - SPLIT)) - base + 1;
    /* the bits below the interval's number, as a number v in [1, 2); t = 2v - 3 is exact */
    long long below = b & ((1LL << (52 - SPLIT)) - 1);
    *t = fma(2.0, number_fp64(below << SPLIT | 0x3ff0000000000000LL), -3.0);
    return q < 0 ? 0 : q > top ? top : q;
}

LEAF int interval_fp32(float s, int base, int top, float *t)
{
    int b = (int)bits_fp32(s);
    int q = (b >> (23 - SPLIT_FP32)) - base + 1;
    unsigned below = (unsigned)b & ((1u << (23 - SPLIT_FP32)) - 1);
    *t = fmaf(2.0f, number_fp32(below << SPLIT_FP32 | 0x3f800000u), -3.0f);
    return q < 0 ? 0 : q > top ? top : q;
}

/* c₀ + c₁t + … + c₇t⁷ */
LEAF double polynomial_fp64(const double *c, double t)
{
    double value = fma(c[7], t, c[6]);
    value = fma(value, t, c[5]);
    value = fma(value, t, c[4]);
    value = fma(value, t, c[3]);
    value = fma(value, t, c[2]);
    value = fma(value, t, c[1]);
    return fma(value, t, c[0]);
}

/* c₀ + c₁t + c₂t² */
LEAF float polynomial_fp32(const float *c, float t)
{
    return fmaf(fmaf(c[2], t, c[1]), t, c[0]);
}

/* |number| in a format of fewer bits, to nearest with ties to even; the exponent may overflow.

   `least` is FP32's exponent field of the format's smallest normal number: below it, the
   format's numbers stay 2^-mantissa of that number apart. */
LEAF unsigned narrowed(unsigned magnitude, int mantissa, int least)
{
    int exponent = (int)(magnitude >> 23);
    unsigned m = (magnitude & 0x7fffffu) | 0x800000u;
    int normal = exponent > least;
    int shift = 23 - mantissa + (normal ? 0 : least - exponent);
    if (shift > 24) {
        return 0;
    }
    unsigned kept = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    /* a normal number's kept bits begin with a 1, which adds 1 to the exponent field */
    return ((unsigned)(normal ? exponent - least : 0) << mantissa) + kept;
}

/* FP16, which goes to infinity from 65,520 on. */
LEAF unsigned short fp16_bits(float number)
{
#if defined(__CUDA_ARCH__)
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
    return bits;
#else
    unsigned magnitude = bits_fp32(number) & 0x7fffffffu, sign = bits_fp32(number) >> 31 << 15;
    if (magnitude > 0x7f800000u) {
        return 0x7fff;
    }
    unsigned bits = narrowed(magnitude, 10, 127 - 14);
    return (unsigned short)(sign | (bits < 0x7c00u ? bits : 0x7c00u));
#endif
}

/* FP8 in the form E4M3 (no infinity), which stays at 448 beyond it. */
LEAF unsigned char fp8_bits(float number)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(number));
    return (unsigned char)pair;
#else
    unsigned magnitude = bits_fp32(number) & 0x7fffffffu, sign = bits_fp32(number) >> 31 << 7;
    if (magnitude > 0x7f800000u) {
        return 0x7f;
    }
    unsigned bits = narrowed(magnitude, 3, 127 - 6);
    return (unsigned char)(sign | (bits < 0x7eu ? bits : 0x7eu));
#endif
}

#endif
