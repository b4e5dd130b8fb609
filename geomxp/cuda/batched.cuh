/* What the programs of geomxp/linalg/batched_programs.py are made of, for one matrix per thread.

   Plain C++ on a host, so that the arithmetic can be tested there. Each fma is written out; FP32
   is in PTX on a device, as CuPy lets NVRTC flush subnormal numbers. */

#ifdef __CUDACC__
#define BOTH __device__ __forceinline__
#else
#include <cmath>
using std::fma;
using std::sqrt;
#define BOTH static inline
#endif

template <class Real> BOTH Real load(const Real *a, int at) { return a[at]; }
template <class Real> BOTH void store(Real *a, int at, Real value) { a[at] = value; }
template <class Real> BOTH Real minus(Real c, Real a, Real b) { return fma(-a, b, c); }
template <class Real> BOTH Real times(Real a, Real b) { return a * b; }
template <class Real> BOTH Real root(Real a) { return sqrt(a); }
template <class Real> BOTH Real reciprocal(Real a) { return (Real)1 / a; }

#ifdef __CUDACC__
template <> BOTH float minus(float c, float a, float b)
{
    float d;
    asm("{ .reg .f32 t; neg.f32 t, %1; fma.rn.f32 %0, t, %2, %3; }"
        : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}
template <> BOTH float times(float a, float b)
{
    float d;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}
template <> BOTH float root(float a)
{
    float d;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}
template <> BOTH float reciprocal(float a)
{
    float d;
    asm("rcp.rn.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}
#endif
