/* Covariances of pairs of places, straight into the format in which a tile is kept.

   A block of threads takes one panel of the tile after the other:

           PANEL_COLUMNS
            +---------+
            |  |      |   neighbouring threads have neighbouring rows, so that a column is
     PANEL  |  | j -> |   written in whole lines of memory; each thread goes along its rows
      ROWS  |  |      |
            +---------+

   Each panel has its own sum of squares and its own count of missed pairs, so that the sums do
   not depend on how many blocks there are. The table's last rows, which the far pairs need,
   stand in shared memory; the others are read where they are. */

#include "matern.cuh"

#define THREADS 256
#define ROWS_PER_THREAD 2
#define PANEL_ROWS 512
#define PANEL_COLUMNS 32

/* One row of a table: its coefficients in registers, and its chunks of 16 bytes. */
template <class Real> struct Row;

template <> struct Row<double> {
    typedef double2 Chunk;
    static const int COEFFICIENTS = 8, CHUNKS = 4;
    double c[8];
    static __device__ Chunk chunk(const double *row, int k)
    {
        return make_double2(row[2 * k], row[2 * k + 1]);
    }
    __device__ void put(Chunk v, int k) { c[2 * k] = v.x, c[2 * k + 1] = v.y; }
    __device__ double at(double t) const { return polynomial_fp64(c, t); }
};

template <> struct Row<float> {
    typedef float4 Chunk;
    static const int COEFFICIENTS = 3, CHUNKS = 1;
    float c[3];
    static __device__ Chunk chunk(const float *row, int)
    {
        return make_float4(row[0], row[1], row[2], 0.0f);
    }
    __device__ void put(Chunk v, int) { c[0] = v.x, c[1] = v.y, c[2] = v.z; }
    __device__ float at(float t) const { return polynomial_fp32(c, t); }
};

/* Where chunk k of a row stands in shared memory: the same chunk of 8 rows that follow each
   other is in 8 different groups of banks. */
template <class Real> __device__ int place_of(int row, int k)
{
    const int chunks = Row<Real>::CHUNKS;
    return (row * chunks + ((row >> 1) & (chunks - 1))) ^ k;
}

template <class Real>
__device__ Real from_shared(const typename Row<Real>::Chunk *table, int row, Real t)
{
    Row<Real> found;
#pragma unroll
    for (int k = 0; k < Row<Real>::CHUNKS; ++k) {
        found.put(table[place_of<Real>(row, k)], k);
    }
    return found.at(t);
}

template <class Real> __device__ Real from_memory(const Real *rows, int row, Real t)
{
    Row<Real> found;
#pragma unroll
    for (int k = 0; k < Row<Real>::COEFFICIENTS; ++k) {
        found.c[k] = __ldg(rows + row * Row<Real>::COEFFICIENTS + k);
    }
    return found.at(t);
}

__device__ int interval(double s, int base, int top, double *t)
{
    return interval_fp64(s, base, top, t);
}

__device__ int interval(float s, int base, int top, float *t)
{
    return interval_fp32(s, base, top, t);
}

__device__ void store(double *entry, double value) { *entry = value; }
__device__ void store(float *entry, float value) { *entry = value; }
__device__ void store(unsigned short *entry, float value) { *entry = fp16_bits(value); }
__device__ void store(unsigned char *entry, float value) { *entry = fp8_bits(value); }

/* Write a panel's sum of squares and its missed pairs: warps by halves, then one by one. */
__device__ void finish_panel(double square, int missed, double *squares, int *misses)
{
    __shared__ double warp_square[THREADS / 32];
    __shared__ int warp_missed[THREADS / 32];
    for (int apart = 16; apart; apart /= 2) {
        square += __shfl_down_sync(0xffffffffu, square, apart);
        missed += __shfl_down_sync(0xffffffffu, missed, apart);
    }
    if (threadIdx.x % 32 == 0) {
        warp_square[threadIdx.x / 32] = square;
        warp_missed[threadIdx.x / 32] = missed;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) {
            square += warp_square[warp];
            missed += warp_missed[warp];
        }
        *squares = square;
        *misses = missed;
    }
    __syncthreads();
}

extern __shared__ double2 shared[];

/* x: (d, n) points of the rows.           y: (d, m) points of the columns.
   i0 ≤ i < i1, j0 ≤ j < j1: the tile.     inverse: 1/a².
   mapping: 1 for great-circle distances, 2 for a folded table (`mapping_of` in generate.py).
   rows: (count, 8) FP64 or (count, 3) FP32 polynomials; base: the number of the first interval.
   staged: how many of the last rows stand in shared memory, 1 ≤ staged < count.
   value = variance·p(s), and + noise where i = j: noise[i], or nugget where `each` is 0;
   value·scale is stored, a power of two.
   first: column j starts at row j + first: 0 for a lower triangle, -m for whole columns.
   out: entry (i, j) goes to offset + i + j·stride.
   squares, missed: for each panel, panels down the columns first: the sum of value² of what is
   stored, and how many pairs are closer, yet not 0 apart, than the table reaches. */
#define PARAMETERS(Real, Stored)                                                               \
    const double *__restrict__ x, long long n, const double *__restrict__ y, long long m,      \
        long long d, long long i0, long long i1, long long j0, long long j1, double inverse,   \
        long long mapping, const Real *__restrict__ rows, long long count, long long base,     \
        long long staged, Real variance, Real nugget, const double *__restrict__ noise,        \
        long long each, Real scale, long long first,                                           \
        Stored *__restrict__ out, long long offset, long long stride,                          \
        double *__restrict__ squares, int *__restrict__ missed
#define ARGUMENTS                                                                              \
    x, n, y, m, d, i0, i1, j0, j1, inverse, mapping, rows, count, base, staged, variance,      \
        nugget, noise, each, scale, first, out, offset, stride, squares, missed

/* In space and time: times of rows and columns; 1/b²; polynomials of the decay and the stretch as
   functions of v = (u/b)², how many rows each has, their first interval, and whether there is a
   stretch. Without rows, time is a coordinate: value = variance·p(s + v). */
#define PARAMETERS_IN_TIME(Real)                                                               \
    const double *__restrict__ times, const double *__restrict__ others, double inverse_time,  \
        const Real *__restrict__ decay, const Real *__restrict__ stretch,                      \
        long long count_time, long long base_time, long long stretched

template <class Real, class Stored, bool TIMED>
__device__ void covariances(PARAMETERS(Real, Stored), PARAMETERS_IN_TIME(Real))
{
    typedef typename Row<Real>::Chunk Chunk;
    Chunk *last_rows = (Chunk *)shared;
    const int top = (int)count - 1, from = (int)(count - staged);
    for (int p = threadIdx.x; p < staged * Row<Real>::CHUNKS; p += THREADS) {
        const int row = p / Row<Real>::CHUNKS, k = p % Row<Real>::CHUNKS;
        const Real *table = rows + (from + row) * Row<Real>::COEFFICIENTS;
        last_rows[place_of<Real>(row, k)] = Row<Real>::chunk(table, k);
    }
    __syncthreads();
    const int down = (int)((i1 - i0 + PANEL_ROWS - 1) / PANEL_ROWS);
    const int panels = down * (int)((j1 - j0 + PANEL_COLUMNS - 1) / PANEL_COLUMNS);
    for (int panel = blockIdx.x; panel < panels; panel += gridDim.x) {
        const long long upper = i0 + (long long)(panel % down) * PANEL_ROWS + threadIdx.x;
        const long long left = j0 + (long long)(panel / down) * PANEL_COLUMNS;
        const int columns = (int)min(j1 - left, (long long)PANEL_COLUMNS);
        double place[ROWS_PER_THREAD][3], time[ROWS_PER_THREAD], square = 0;
        int end[ROWS_PER_THREAD], diagonal[ROWS_PER_THREAD], longest = 0, misses = 0;
#pragma unroll
        for (int k = 0; k < ROWS_PER_THREAD; ++k) {
            const long long i = upper + k * THREADS;
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                place[k][a] = a < d && i < i1 ? x[a * n + i] : 0.0;
            }
            time[k] = TIMED && i < i1 ? times[i] : 0.0;
            /* row i has the columns left ≤ j < left + end, as j + first ≤ i */
            end[k] = i < i1 ? (int)max(min(i - first - left + 1, (long long)columns), 0LL) : 0;
            diagonal[k] = (int)max(min(i - left, (long long)PANEL_COLUMNS), -1LL);
            longest = max(longest, end[k]);
        }
        const double *column = y + left;
        Stored *entry = out + (offset + upper + left * stride);
        for (int j = 0; j < longest; ++j, ++column, entry += stride) {
            const double y0 = column[0], y1 = d > 1 ? column[m] : 0.0;
            const double y2 = d > 2 ? column[2 * m] : 0.0;
            double s[ROWS_PER_THREAD];
#pragma unroll
            for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                const double *p = place[k];
                s[k] = squared_distance(p[0] - y0, p[1] - y1, p[2] - y2, inverse);
            }
            if (mapping) {
#pragma unroll
                for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                    s[k] = mapping & 1 ? squared_arc(s[k], inverse) : s[k];
                    s[k] = mapping & 2 ? folded(s[k]) : s[k];
                }
            }
            Real decays[ROWS_PER_THREAD];
            if (TIMED) {
#pragma unroll
                for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                    const double lag = time[k] - others[left + j];
                    const double v = lag * lag * inverse_time;
                    if (!count_time) {
                        s[k] += v;
                        continue;
                    }
                    Real place_in_time;
                    const int late = interval((Real)v, (int)base_time, (int)count_time - 1,
                                              &place_in_time);
                    misses += late == 0 && (Real)v > 0 && j < end[k];
                    if (stretched) {
                        s[k] *= from_memory<Real>(stretch, late, place_in_time);
                    }
                    decays[k] = from_memory<Real>(decay, late, place_in_time);
                }
            }
            int row[ROWS_PER_THREAD], nearest = top;
            Real t[ROWS_PER_THREAD], value[ROWS_PER_THREAD];
#pragma unroll
            for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                row[k] = interval((Real)s[k], (int)base, top, &t[k]);
                value[k] = from_shared<Real>(last_rows, max(row[k] - from, 0), t[k]);
                nearest = min(nearest, row[k]);
            }
            if (nearest < from) {
                /* seldom: a near pair */
#pragma unroll
                for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                    if (row[k] < from && j < end[k]) {
                        value[k] = from_memory<Real>(rows, row[k], t[k]);
                        misses += row[k] == 0 && (Real)s[k] > 0;
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < ROWS_PER_THREAD; ++k) {
                if (j < end[k]) {
                    Real v = value[k] * variance;
                    if (TIMED && count_time) {
                        v *= decays[k];
                    }
                    if (j == diagonal[k]) {
                        v += each ? (Real)noise[upper + k * THREADS] : nugget;
                    }
                    square = fma((double)v, (double)v, square);
                    store(entry + k * THREADS, v * scale);
                }
            }
        }
        finish_panel(square, misses, squares + panel, missed + panel);
    }
}

#define KERNEL(name, Real, Stored)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) name(PARAMETERS(Real, Stored))    \
    {                                                                                          \
        covariances<Real, Stored, false>(ARGUMENTS, 0, 0, 0.0, 0, 0, 0, 0, 0);                 \
    }

KERNEL(covariances_fp64, double, double)
KERNEL(covariances_fp32, float, float)
KERNEL(covariances_fp16, float, unsigned short)
KERNEL(covariances_fp8, float, unsigned char)

#define KERNEL_IN_TIME(name, Real, Stored)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 3)                                   \
        name(PARAMETERS(Real, Stored), PARAMETERS_IN_TIME(Real))                               \
    {                                                                                          \
        covariances<Real, Stored, true>(ARGUMENTS, times, others, inverse_time, decay,         \
                                        stretch, count_time, base_time, stretched);            \
    }

KERNEL_IN_TIME(covariances_in_time_fp64, double, double)
KERNEL_IN_TIME(covariances_in_time_fp32, float, float)
KERNEL_IN_TIME(covariances_in_time_fp16, float, unsigned short)
KERNEL_IN_TIME(covariances_in_time_fp8, float, unsigned char)
