/* Small factorizations on a GPU by panels: Algorithm 5 of paper 004.

   A panel of columns stands in the registers of a block's threads; the panels left of it come from
   the device's memory, one after the other, through shared memory, which holds one panel only:

       for each panel:   c <- A(panel)                                       registers
                         for each panel to its left:
                             stripe <- L(that panel), rows of c              shared memory
                             c <- c - stripe (its first rows)'
                         c <- the panel's factor
                         L(panel) <- c

   Compiled for one ORDER, for panels of PANEL_COLUMNS, and for one shape of a block: THREADS_DOWN
   along the rows of a panel, THREADS_ACROSS along its columns, and MATRICES of a block, all of them
   powers of two. A thread has every THREADS_DOWN-th row and every THREADS_ACROSS-th column.

   The same products are subtracted from an entry in the same order as in
   geomxp/linalg/batched_programs.py: the bits are the same, unless FAST_ROOTS. */

#include "batched.cuh"

#define ROWS_PER_THREAD ((ORDER + THREADS_DOWN - 1) / THREADS_DOWN)
#define COLUMNS_PER_THREAD ((PANEL_COLUMNS + THREADS_ACROSS - 1) / THREADS_ACROSS)
#define MATRIX_THREADS (THREADS_DOWN * THREADS_ACROSS)
#define STRIDE (ORDER | 1) /* of a column of the stripe; odd: rows and columns have all banks */
#define LOADS_AHEAD 4 /* loads that a thread waits for at one time */
#ifndef FAST_ROOTS
#define FAST_ROOTS false /* whether 1/sqrt is one instruction, see batched.cuh */
#endif

extern __shared__ double2 memory[];

/* Wait for the threads of a matrix; its warp, if they are in one. */
static __device__ void wait()
{
    if (MATRIX_THREADS > 32) __syncthreads();
    else __syncwarp();
}

/* Stripe <- the columns from `left` on of matrix m, at most PANEL_COLUMNS, from row `top` on: zeros
   above the diagonal, and a unit matrix if m is not in the batch. Return the first row with a NaN
   or an infinity, or ORDER. */
template <class Real>
static __device__ int stage(const View<Real> &view, long long m, bool exists, int top, int left,
                            Real *stripe)
{
    const int thread = threadIdx.x + THREADS_DOWN * threadIdx.y;
    const int height = ORDER - top, width = min(PANEL_COLUMNS, ORDER - left);
    const bool by_columns = view.by_columns();
    int broken = ORDER;
    /* threads along what is contiguous */
#pragma unroll 1
    for (int start = thread; start < height * width; start += LOADS_AHEAD * MATRIX_THREADS) {
        Real entry[LOADS_AHEAD];
#pragma unroll
        for (int u = 0; u < LOADS_AHEAD; ++u) {
            const int at = start + u * MATRIX_THREADS;
            const int i = top + (by_columns ? at % height : at / width);
            const int j = left + (by_columns ? at / height : at % width);
            const bool loaded = exists && at < height * width && j <= i;
            entry[u] = loaded ? *view.at(m, i, j) : (Real)(i == j);
        }
#pragma unroll
        for (int u = 0; u < LOADS_AHEAD; ++u) {
            const int at = start + u * MATRIX_THREADS;
            if (at >= height * width) break;
            const int i = by_columns ? at % height : at / width;
            const int j = by_columns ? at / height : at % width;
            stripe[j * STRIDE + i] = entry[u];
            if (!is_finite(entry[u])) broken = min(broken, top + i);
        }
    }
    return broken;
}

/* C <- C - a column of the stripe times its first rows. */
template <class Real>
BOTH void subtract(const Real *column, int height, int width,
                   Real (&c)[ROWS_PER_THREAD][COLUMNS_PER_THREAD])
{
    Real y[COLUMNS_PER_THREAD];
#pragma unroll
    for (int q = 0; q < COLUMNS_PER_THREAD; ++q) {
        const int j = threadIdx.y + THREADS_ACROSS * q;
        y[q] = j < width ? column[j] : (Real)0;
    }
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; ++r) {
        const int i = threadIdx.x + THREADS_DOWN * r;
        if (i < height) {
            const Real x = column[i];
#pragma unroll
            for (int q = 0; q < COLUMNS_PER_THREAD; ++q) {
                c[r][q] = minus(c[r][q], x, y[q]);
            }
        }
    }
}

/* C <- its Cholesky factor and the rows below it; the first row with a pivot that is not positive
   and finite goes to `failed`. Columns are exchanged in the stripe. */
template <class Real>
static __device__ void factor_panel(Real *stripe, int height, int width, int top, int *failed,
                                    Real (&c)[ROWS_PER_THREAD][COLUMNS_PER_THREAD])
{
#pragma unroll
    for (int q = 0; q < COLUMNS_PER_THREAD; ++q) {
#pragma unroll 1
        for (int owner = 0; owner < THREADS_ACROSS; ++owner) {
            const int k = owner + THREADS_ACROSS * q;
            if (k >= width) break;
            const bool owns = (int)threadIdx.y == owner;
            Real *column = stripe + k * STRIDE, y[COLUMNS_PER_THREAD];
            if (owns) {
#pragma unroll
                for (int r = 0; r < ROWS_PER_THREAD; ++r) {
                    const int i = threadIdx.x + THREADS_DOWN * r;
                    if (i < height) column[i] = c[r][q];
                }
            }
            wait();
            /* l_kk <- √a_kk, by each thread for itself */
            const Real a = column[k], by = FAST_ROOTS ? inverse_root(a) : (Real)0;
            const Real pivot = FAST_ROOTS ? times(a, by) : root(a);
            const Real inverse = FAST_ROOTS ? by : reciprocal(pivot);
            /* c <- c - l_ik l_jk, for the columns right of k */
#pragma unroll
            for (int t = q; t < COLUMNS_PER_THREAD; ++t) {
                const int j = threadIdx.y + THREADS_ACROSS * t;
                y[t] = j > k && j < width ? times(column[j], inverse) : (Real)0;
            }
#pragma unroll
            for (int r = 0; r < ROWS_PER_THREAD; ++r) {
                const int i = threadIdx.x + THREADS_DOWN * r;
                if (i >= height || i < k) continue;
                const Real x = i == k ? pivot : times(column[i], inverse);
                if (owns) c[r][q] = x;
                if (owns && i == k && !proper(pivot)) atomicMin(failed, top + k);
#pragma unroll
                for (int t = q; t < COLUMNS_PER_THREAD; ++t) {
                    if ((int)threadIdx.y + THREADS_ACROSS * t > k)
                        c[r][t] = minus(c[r][t], x, y[t]);
                }
            }
        }
    }
}

/* Matrix m of `lower` <- the Cholesky factor of view's, or NaN where there is none; info as in
   geomxp/linalg/batched.py. `lower` may be view's memory. */
template <class Real>
static __device__ void factor(const View<Real> &view, Real *lower, long long *info,
                              long long batch)
{
    __shared__ int first_failed[MATRICES];
    __shared__ int first_broken[MATRICES];
    const int thread = threadIdx.x + THREADS_DOWN * threadIdx.y;
    const long long m = blockIdx.x * (long long)MATRICES + threadIdx.z;
    const bool exists = m < batch;
    const View<Real> done = {lower, ORDER * ORDER, ORDER, 1};
    int *failed = first_failed + threadIdx.z, *broken = first_broken + threadIdx.z;
    Real *stripe = (Real *)memory + threadIdx.z * PANEL_COLUMNS * STRIDE;
    if (thread == 0) *failed = *broken = ORDER;
    wait();
    for (int top = 0; top < ORDER; top += PANEL_COLUMNS) {
        const int height = ORDER - top, width = min(PANEL_COLUMNS, height);
        Real c[ROWS_PER_THREAD][COLUMNS_PER_THREAD];
        const int seen = stage(view, m, exists, top, top, stripe);
        if (seen < ORDER) atomicMin(broken, seen);
        wait();
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r) {
#pragma unroll
            for (int q = 0; q < COLUMNS_PER_THREAD; ++q) {
                const int i = threadIdx.x + THREADS_DOWN * r, j = threadIdx.y + THREADS_ACROSS * q;
                c[r][q] = i < height && j < width ? stripe[j * STRIDE + i] : (Real)0;
            }
        }
        for (int left = 0; left < top; left += PANEL_COLUMNS) {
            wait();
            stage(done, m, exists, top, left, stripe);
            wait();
            for (int k = 0; k < PANEL_COLUMNS; ++k) {
                subtract(stripe + k * STRIDE, height, width, c);
            }
        }
        wait();
        factor_panel(stripe, height, width, top, failed, c);
        wait();
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r) {
#pragma unroll
            for (int q = 0; q < COLUMNS_PER_THREAD; ++q) {
                const int i = threadIdx.x + THREADS_DOWN * r, j = threadIdx.y + THREADS_ACROSS * q;
                if (i < height && j < width) stripe[j * STRIDE + i] = c[r][q];
            }
        }
        wait();
        for (int at = thread; exists && at < ORDER * width; at += MATRIX_THREADS) {
            const int i = at / width, j = at % width;
            const Real entry = i < top + j ? (Real)0 : stripe[j * STRIDE + i - top];
            lower[(m * ORDER + i) * ORDER + top + j] = entry;
        }
        wait();
    }
    if (!exists) return;
    if (thread == 0) {
        report(info, m, batch, *broken < ORDER ? -1 - *broken : *failed < ORDER ? *failed + 1 : 0);
    }
    for (int at = thread; *failed < ORDER && at < ORDER * ORDER; at += MATRIX_THREADS) {
        if (at % ORDER <= at / ORDER) lower[m * ORDER * ORDER + at] = root((Real)-1);
    }
}

/* One block at least: ptxas spills nothing to make room for more. */
#define KERNEL(Real, suffix)                                                                   \
    extern "C" __global__ void __launch_bounds__(MATRIX_THREADS * MATRICES, 1)                 \
        factor_##suffix(VIEWED(Real, a), Real *lower, long long *info, long long batch)        \
    {                                                                                          \
        factor(VIEW(Real, a), lower, info, batch);                                             \
    }

KERNEL(double, fp64)
KERNEL(float, fp32)
