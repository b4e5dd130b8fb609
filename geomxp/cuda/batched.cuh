/* What small factorizations on a GPU are made of: operations on numbers, for the programs of
   geomxp/linalg/batched_programs.py too, and on tiles of four columns in shared memory.

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
template <class Real> BOTH Real inverse_root(Real a) { return rsqrt(a); }
#else
template <class Real> BOTH Real inverse_root(Real a) { return 1 / sqrt(a); }
#endif

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

template <class Real> BOTH bool is_finite(Real x) { return x - x == 0; }
template <class Real> BOTH bool proper(Real pivot) { return pivot > 0 && is_finite(pivot); }

#ifdef __CUDACC__
/* Where entry (0, 0) of a batch's matrices is, and how far apart others are. */
template <class Real> struct View {
    const Real *a;
    long long step, down, across;

    BOTH const Real *at(long long m, int i, int j) const
    {
        return a + m * step + i * down + j * across;
    }
    /* Whether the rows of a column are nearer to each other than the columns of a row. */
    BOTH bool by_columns() const { return down < across; }
};

/* Entry m of info <- value. If it is not 0, info[batch], which the host initializes to 0, <- 1: the
   host copies the other entries only then. */
BOTH void report(long long *info, long long m, long long batch, long long value)
{
    info[m] = value;
    if (value != 0) info[batch] = 1;
}

/* A view as arguments of a kernel, and made of them. */
#define VIEWED(Real, a) const Real *a, long long a##_step, long long a##_down, long long a##_across
#define VIEW(Real, a) (View<Real>{a, a##_step, a##_down, a##_across})
#endif

/* A lower triangle in shared memory, and rows below it: four columns of one length, then the next
   four, which begin four rows lower. Entry (i, k) is a[start_of(k, rows) + i].

            k 0 1 2 3
        i 0   * . . .              .  is never read
          1   * * . .   4 5 6 7
          ...                      neighbouring threads read neighbouring rows of a column, from
          4   * * * *   * . . .    different banks; the rows j to j + 3 that all threads need are
          5   * * * *   * * . .    read from one address by all (a broadcast) */

template <class Real> struct alignas(2 * sizeof(Real)) Pair {
    Real first, second;
};

BOTH int start_of(int k, int rows)
{
    const int first = k / 4 * 4;
    return first * (rows + 1 - first / 2) + (k - first) * (rows - first);
}

/* C <- C - A_ik A_jk' for all columns k left of the four from j on, and the rows i of a thread,
   which are `apart`; `left` rows from j on are in use. */
template <int ROWS, class Real>
BOTH void subtract_left(const Real *a, int rows, int j, const int (&i)[ROWS], int apart, int left,
                        Real (&c)[ROWS][4])
{
    const Real *column = a;
    for (int k = 0; k < j; k += 4) {
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const Pair<Real> *tile = (const Pair<Real> *)(column + j);
            const Pair<Real> one = tile[0], two = tile[1];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (r == 0 || r * apart < left) {
                    const Real x = column[i[r]];
                    c[r][0] = minus(c[r][0], x, one.first);
                    c[r][1] = minus(c[r][1], x, one.second);
                    c[r][2] = minus(c[r][2], x, two.first);
                    c[r][3] = minus(c[r][3], x, two.second);
                }
            }
            column += rows - k;
        }
        column -= 4;
    }
}

/* The tile on the diagonal whose first entry is `corner`, in columns that are `height` apart. */
template <class Real> BOTH void load_tile(const Real *corner, int height, Real (&l)[4][4])
{
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int p = q; p < 4; ++p) {
            l[p][q] = corner[q * height + p];
        }
    }
}

template <class Real> BOTH void store_tile(Real *corner, int height, const Real (&l)[4][4])
{
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int p = q; p < 4; ++p) {
            corner[q * height + p] = l[p][q];
        }
    }
}

/* L <- chol(L), and the reciprocals of its diagonal; return the last pivot before its root. With
   FAST, 1/√ is one instruction of a GPU instead of two operations, each rounded correctly. */
template <bool FAST, class Real> BOTH Real factor_tile(Real (&l)[4][4], Real (&inverse)[4])
{
    Real pivot = 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        pivot = l[q][q];
        if (FAST) {
            inverse[q] = inverse_root(pivot), l[q][q] = times(pivot, inverse[q]);
        } else {
            l[q][q] = root(pivot), inverse[q] = reciprocal(l[q][q]);
        }
#pragma unroll
        for (int p = q + 1; p < 4; ++p) {
            l[p][q] = times(l[p][q], inverse[q]);
#pragma unroll
            for (int t = q + 1; t <= p; ++t) {
                l[p][t] = minus(l[p][t], l[p][q], l[t][q]);
            }
        }
    }
    return pivot;
}

/* c <- c L^-T */
template <class Real>
BOTH void solve_tile(const Real (&l)[4][4], const Real (&inverse)[4], Real (&c)[4])
{
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int t = 0; t < q; ++t) {
            c[q] = minus(c[q], c[t], l[q][t]);
        }
        c[q] = times(c[q], inverse[q]);
    }
}
