/* Numbers into the narrow formats and back: the arithmetic of one entry.

   In what C99 and CUDA C++ have in common, as matern.cuh, whose rounding to FP16 and FP8 is also
   used here. CuPy compiles with -ftz=true, under which FP32's arithmetic loses subnormal
   numbers; PTX that is written out keeps them, as the CPU does. */

#ifndef GEOMXP_QUANTIZE_CUH
#define GEOMXP_QUANTIZE_CUH

#include "matern.cuh"

#define INFINITY_FP32 0x7f800000u
#define INFINITY_FP64 0x7ff0000000000000ull

/* as in geomxp/linalg/formats.py */
#define LARGEST_EXPONENT 120

LEAF float product_fp32(float x, float y)
{
#if defined(__CUDA_ARCH__)
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(y));
    return product;
#else
    return x * y;
#endif
}

LEAF float sum_fp32(float x, float y)
{
#if defined(__CUDA_ARCH__)
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(x), "f"(y));
    return sum;
#else
    return x + y;
#endif
}

LEAF float rounded_fp32(double x)
{
#if defined(__CUDA_ARCH__)
    float number;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(number) : "d"(x));
    return number;
#else
    return (float)x;
#endif
}

LEAF float difference_fp32(float x, float y)
{
#if defined(__CUDA_ARCH__)
    float difference;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(x), "f"(y));
    return difference;
#else
    return x - y;
#endif
}

LEAF double widened_fp64(float x)
{
#if defined(__CUDA_ARCH__)
    double number;
    asm("cvt.f64.f32 %0, %1;" : "=d"(number) : "f"(x));
    return number;
#else
    return x;
#endif
}

/* The bits of an FP32 number without its last `dropped`, to nearest with ties to even. */
LEAF unsigned shortened(float number, int dropped)
{
    unsigned bits = bits_fp32(number), odd = (bits >> dropped) & 1u;
    if ((bits & 0x7fffffffu) > INFINITY_FP32) {
        /* a NaN stays one, also where only its last bits say so */
        return (bits | 0x400000u) >> dropped;
    }
    return (bits + ((1u << (dropped - 1)) - 1u) + odd) >> dropped;
}

/* TF32: FP32 with 11 significant bits. */
LEAF float tf32_number(float number) { return number_fp32(shortened(number, 13) << 13); }

/* BF16: the upper half of FP32. */
LEAF unsigned short bf16_bits(float number) { return (unsigned short)shortened(number, 16); }

LEAF float bf16_number(unsigned short bits) { return number_fp32((unsigned)bits << 16); }

/* FP16 that stays at 65,504 beyond it; a NaN stays one. */
LEAF unsigned short fp16_bits_saturated(float number)
{
    const unsigned largest = 0x477fe000u, sign = bits_fp32(number) & 0x80000000u;
    unsigned magnitude = bits_fp32(number) & 0x7fffffffu;
    return fp16_bits(magnitude > largest && magnitude <= INFINITY_FP32
                         ? number_fp32(sign | largest)
                         : number);
}

LEAF float fp16_number(unsigned short bits)
{
#if defined(__CUDA_ARCH__)
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
#else
    unsigned sign = (bits & 0x8000u) << 16, below = (bits & 0x7fffu) << 13;
    if ((bits & 0x7c00u) == 0x7c00u) {
        return number_fp32(sign | INFINITY_FP32 | (bits & 0x3ffu) << 13);
    }
    /* FP32's exponents are 112 larger */
    return number_fp32(sign | bits_fp32(number_fp32(below) * 0x1p112f));
#endif
}

/* 2^-8 times an E4M3 number, exactly, as the bits of FP16: its exponents are 8 larger. */
LEAF unsigned short fp8_as_fp16(unsigned char bits)
{
    return (unsigned short)((bits & 0x80u) << 8 | (bits & 0x7fu) << 7);
}

LEAF float fp8_number(unsigned char bits)
{
    if ((bits & 0x7fu) == 0x7fu) {
        return number_fp32(0x7fc00000u);
    }
    return product_fp32(fp16_number(fp8_as_fp16(bits)), 256.0f);
}

/* frexp's exponent from the bits of a positive number; for all subnormal numbers, that of the
   largest of them, which `exponent_for` clips to the same value as theirs. */
LEAF int binary_exponent_fp32(unsigned bits) { return (int)(bits >> 23) - 126; }

LEAF int binary_exponent_fp64(unsigned long long bits) { return (int)(bits >> 52) - 1022; }

/* Format.exponent_for, from frexp's exponent of the largest magnitude; top is 0 for formats that
   have none. */
LEAF int exponent_for(int binary, int top)
{
    const int exponent = top - binary;
    if (top == 0) {
        return 0;
    }
    return exponent < -LARGEST_EXPONENT  ? -LARGEST_EXPONENT
           : exponent > LARGEST_EXPONENT ? LARGEST_EXPONENT
                                         : exponent;
}

/* 2^exponent, for exponents of FP64's normal numbers. */
LEAF double power_of_two(int exponent) { return number_fp64((long long)(exponent + 1023) << 52); }

#endif
