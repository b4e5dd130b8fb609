/* out <- alpha r_i a_ij c_j + beta out_ij: copies, conversions and sums of matrices in one pass.

   Matrices may have any layout: entry (i, j) is i*down + j*across entries after entry (0, 0). A
   block of threads brings 32 by 32 entries from the one to the other through shared memory, so that
   both are accessed along their contiguous direction. */

#include "quantize.cuh"

#define SQUARE_SIDE 32
#define SQUARE_THREAD_ROWS 8

__device__ double widened(float x) { return widened_fp64(x); }
__device__ double widened(double x) { return x; }
__device__ void put(float *out, double x) { *out = rounded_fp32(x); }
__device__ void put(double *out, double x) { *out = x; }

/* The row and the column, in a block's square, of the entry that a thread handles in step s. */
#define ALONG(across, s, i, j)                                                                 \
    const int i = across ? threadIdx.x : s + threadIdx.y;                                      \
    const int j = across ? s + threadIdx.y : threadIdx.x

/* `a` is not read if alpha is 0, nor `out` if beta is 0. With `lower`, only entries on and below
   the diagonal are read or written. `rows` and `columns` are read only if `scaled`. */
template <class In, class Out>
__device__ void combine(const In *a, long long down_a, long long across_a, Out *out,
                        long long down, long long across, long long m, long long n, int lower,
                        int scaled, const double *rows, const double *columns, double alpha,
                        double beta)
{
    __shared__ double square[SQUARE_SIDE][SQUARE_SIDE + 1];
    const long long top = blockIdx.x * (long long)SQUARE_SIDE;
    const long long left = blockIdx.y * (long long)SQUARE_SIDE;
    if (lower && top + SQUARE_SIDE <= left) {
        return;
    }
    if (alpha != 0.0) {
        for (int s = 0; s < SQUARE_SIDE; s += SQUARE_THREAD_ROWS) {
            ALONG(down_a <= across_a, s, i, j);
            const long long row = top + i, column = left + j;
            if (row < m && column < n && (!lower || row >= column)) {
                const double x = widened(a[row * down_a + column * across_a]);
                square[i][j] = alpha * (scaled ? x * rows[row] * columns[column] : x);
            }
        }
    }
    __syncthreads();
    for (int s = 0; s < SQUARE_SIDE; s += SQUARE_THREAD_ROWS) {
        ALONG(down <= across, s, i, j);
        const long long row = top + i, column = left + j;
        if (row < m && column < n && (!lower || row >= column)) {
            Out *place = out + row * down + column * across;
            const double x = alpha != 0.0 ? square[i][j] : 0.0;
            put(place, beta != 0.0 ? x + beta * widened(*place) : x);
        }
    }
}

#define COMBINE(name, In, Out)                                                                 \
    extern "C" __global__ void __launch_bounds__(SQUARE_SIDE *SQUARE_THREAD_ROWS)              \
        name(const In *a, long long down_a, long long across_a, Out *out, long long down,      \
             long long across, long long m, long long n, int lower, int scaled,                \
             const double *rows, const double *columns, double alpha, double beta)             \
    {                                                                                          \
        combine(a, down_a, across_a, out, down, across, m, n, lower, scaled, rows, columns,    \
                alpha, beta);                                                                  \
    }
COMBINE(combine_fp32_fp32, float, float)
COMBINE(combine_fp32_fp64, float, double)
COMBINE(combine_fp64_fp32, double, float)
COMBINE(combine_fp64_fp64, double, double)

/* *largest <- the larger of itself and the bits of max|a_ij| of the lower triangle as FP64, beyond
   infinity's where there is a NaN. Bits of magnitudes, as integers, have the same order. */
template <class In>
__device__ void largest_of_lower(const In *a, long long down, long long across, long long n,
                                 unsigned long long *largest)
{
    __shared__ unsigned long long of_block;
    const long long top = blockIdx.x * (long long)SQUARE_SIDE;
    const long long left = blockIdx.y * (long long)SQUARE_SIDE;
    if (top + SQUARE_SIDE <= left) {
        return;
    }
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        of_block = 0;
    }
    __syncthreads();
    unsigned long long found = 0;
    for (int s = 0; s < SQUARE_SIDE; s += SQUARE_THREAD_ROWS) {
        ALONG(down <= across, s, i, j);
        const long long row = top + i, column = left + j;
        if (row < n && row >= column) {
            const double x = widened(a[row * down + column * across]);
            found = max(found, __double_as_longlong(x) & 0x7fffffffffffffffULL);
        }
    }
    for (int apart = 16; apart; apart /= 2) {
        found = max(found, __shfl_down_sync(0xffffffffu, found, apart));
    }
    if (threadIdx.x == 0) {
        atomicMax(&of_block, found);
    }
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        atomicMax(largest, of_block);
    }
}

#define LARGEST_OF_LOWER(name, In)                                                             \
    extern "C" __global__ void __launch_bounds__(SQUARE_SIDE *SQUARE_THREAD_ROWS)              \
        name(const In *a, long long down, long long across, long long n,                       \
             unsigned long long *largest)                                                      \
    {                                                                                          \
        largest_of_lower(a, down, across, n, largest);                                         \
    }
LARGEST_OF_LOWER(largest_of_lower_fp32, float)
LARGEST_OF_LOWER(largest_of_lower_fp64, double)

/* The inverses of the diagonal blocks of order 32 of a lower triangle, zeros above the diagonal: one
   block of threads each, thread j for column j. The matrices are by columns. */
extern "C" __global__ void __launch_bounds__(SQUARE_SIDE)
    invert_blocks(const double *a, long long ld, double *out, long long ld_out)
{
    __shared__ double lower[SQUARE_SIDE][SQUARE_SIDE + 1];
    const long long first = blockIdx.x * (long long)SQUARE_SIDE;
    const int j = threadIdx.x;
    for (int k = 0; k < SQUARE_SIDE; k++) {
        lower[j][k] = a[first + j + (first + k) * ld];
    }
    __syncthreads();
    double x[SQUARE_SIDE];
#pragma unroll
    for (int i = 0; i < SQUARE_SIDE; i++) {
        double sum = i == j ? 1.0 : 0.0;
#pragma unroll
        for (int k = 0; k < i; k++) {
            sum -= lower[i][k] * x[k];
        }
        x[i] = i < j ? 0.0 : sum / lower[i][i];
        out[first + i + (first + j) * ld_out] = x[i];
    }
}

/* Set *info, cuSOLVER's info word of potrf, to n if it is 0 but the last pivot is not finite. */
#define CHECK_PIVOT(name, Real)                                                                \
    extern "C" __global__ void name(const Real *last, int n, int *info)                        \
    {                                                                                          \
        const double x = widened(*last);                                                       \
        if (*info == 0 && x - x != 0.0) {                                                      \
            *info = n;                                                                         \
        }                                                                                      \
    }
CHECK_PIVOT(check_pivot_fp32, float)
CHECK_PIVOT(check_pivot_fp64, double)
