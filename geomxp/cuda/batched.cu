/* Small factorizations and substitutions on a GPU, a block of threads for each matrix; and matrices
   interleaved in chunks, and back, for the programs of geomxp/linalg/batched_gpu.py.

   A thread has one row. The lower triangle, padded to a multiple of four rows with those of the
   unit matrix, stands in shared memory; for its layout see batched.cuh.

   The same products are subtracted from an entry in the same order as in
   geomxp/linalg/batched_programs.py: the bits are the same. */

#include "batched.cuh"

#define LARGEST_ORDER 128 /* rows of a matrix, and threads of a block */
#define LOADS_AHEAD 8 /* loads that a thread waits for at one time */
#define SUBSTITUTION_COLUMNS 4 /* right-hand sides that go through a substitution together */
#define PACKING_THREADS 256 /* threads of a block that packs or unpacks 32 matrices */
#define MOST_SUBSTITUTING_WARPS 16 /* of a block whose warps solve for one matrix each */
#define ROWS_PER_LANE (LARGEST_ORDER / 32) /* of such a warp */
#ifndef FAST_ROOTS
#define FAST_ROOTS false /* whether 1/sqrt is one instruction in a factorization, see batched.cuh */
#endif

extern __shared__ double2 memory[];

BOTH int padded(int n) { return (n + 3) / 4 * 4; }

/* 2 more than a multiple of four: pairs are aligned, and the columns' banks differ. */
BOTH int rows_of(int n) { return padded(n) + 2; }

/* Fetch the lower triangle of matrix m; return the first row where this thread saw a NaN or an
   infinity, or n. */
template <class Real>
static __device__ int fetch(const View<Real> &view, long long m, int n, Real *a)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int rows = rows_of(n);
    const bool by_columns = view.by_columns();
    int broken = n;
    /* lanes along what is contiguous, warps across */
    for (int start = 0; start < n; start += 32) {
        const int fast = start + lane;
        const int first = by_columns ? 0 : start, last = by_columns ? min(start + 32, n) : n;
        for (int slow = first + warp; slow < last; slow += LOADS_AHEAD * warps) {
            Real x[LOADS_AHEAD];
#pragma unroll
            for (int u = 0; u < LOADS_AHEAD; ++u) {
                const int next = slow + u * warps;
                const int i = by_columns ? fast : next, j = by_columns ? next : fast;
                x[u] = next < last && fast < n && j <= i ? *view.at(m, i, j) : (Real)0;
            }
#pragma unroll
            for (int u = 0; u < LOADS_AHEAD; ++u) {
                const int next = slow + u * warps;
                const int i = by_columns ? fast : next, j = by_columns ? next : fast;
                if (next < last && fast < n && j <= i) {
                    a[start_of(j, rows) + i] = x[u];
                    if (!is_finite(x[u])) broken = min(broken, i);
                }
            }
        }
    }
    for (int i = n; i < padded(n); ++i) {
        for (int j = threadIdx.x; j <= i; j += blockDim.x) {
            a[start_of(j, rows) + i] = i == j;
        }
    }
    return broken;
}

/* Matrix m of `lower` <- the Cholesky factor of view's, or NaN where there is none; info as in
   geomxp/linalg/batched.py. `lower` may be view's memory. */
template <class Real>
static __device__ void factor(const View<Real> &view, Real *lower, long long *info, int n)
{
    __shared__ int failed;
    __shared__ int broken;
    const int i = threadIdx.x, order = padded(n), rows = rows_of(n);
    const long long m = blockIdx.x;
    Real *a = (Real *)memory;
    if (i == 0) failed = broken = n;
    __syncthreads();
    const int seen = fetch(view, m, n, a);
    if (seen < n) atomicMin(&broken, seen);
    __syncthreads();
    for (int j = 0; j < order; j += 4) {
        const int height = rows - j;
        const int row[1] = {i};
        Real c[1][4], *own = a + start_of(j, rows);
        if (i >= j && i < order) {
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                c[0][q] = own[q * height + i];
            }
            subtract_left(a, rows, j, row, 0, 0, c);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                if (q <= i - j && i < j + 4) own[q * height + i] = c[0][q];
            }
        }
        __syncthreads();
        /* L_jj <- chol(A_jj), by each thread for itself */
        Real l[4][4], inverse[4];
        if (i >= j && i < order) {
            load_tile(own + j, height, l);
            factor_tile<FAST_ROOTS>(l, inverse);
        }
        /* L_ij <- A_ij L_jj^-T */
        if (i >= j + 4 && i < order) {
            solve_tile(l, inverse, c[0]);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                own[q * height + i] = c[0][q];
            }
        }
        __syncthreads();
        if (i == j) {
            store_tile(own + j, height, l);
        }
    }
    __syncthreads();
    if (i < n && !proper(a[start_of(i, rows) + i])) atomicMin(&failed, i);
    __syncthreads();
    if (i == 0) {
        report(info, m, gridDim.x, broken < n ? -1 - broken : failed < n ? failed + 1 : 0);
    }
    for (int r = i / 32; r < n; r += blockDim.x / 32) {
        for (int k = i % 32; k < n; k += 32) {
            const Real entry = k > r ? 0 : failed < n ? root((Real)-1) : a[start_of(k, rows) + r];
            lower[(m * n + r) * n + k] = entry;
        }
    }
}

/* Rows c of all threads <- those of L^-1 c, or of L^-T c; threads exchange four rows in `room`. */
template <bool BACKWARD, class Real>
static __device__ void substitute(const Real *a, const Real *inverse, Real *room, int n,
                                  Real (&c)[SUBSTITUTION_COLUMNS])
{
    const int i = threadIdx.x, order = padded(n), rows = rows_of(n);
    for (int step = 0; step < order; step += 4) {
        const int j = BACKWARD ? order - 4 - step : step;
        /* two buffers in turn, so that no thread overwrites what another one still reads */
        Real *told = room + step % 8 * SUBSTITUTION_COLUMNS, z[4][SUBSTITUTION_COLUMNS];
        if (i >= j && i < j + 4) {
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                /* padding rows may hold other rows' infinities: pass on zeros */
                told[(i - j) * SUBSTITUTION_COLUMNS + g] = i < n ? c[g] : (Real)0;
            }
        }
        __syncthreads();
        if (i >= order || (BACKWARD ? i >= j + 4 : i < j)) continue;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                z[q][g] = told[q * SUBSTITUTION_COLUMNS + g];
            }
        }
        /* z_j <- L_jj^-1 z_j, by each thread for itself; c_i <- c_i - L_ij z_j */
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int q = BACKWARD ? 3 - s : s;
            const Real v = inverse[j + q];
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                z[q][g] = times(z[q][g], v);
            }
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                if (BACKWARD ? p >= q : p <= q) continue;
                const Real l = BACKWARD ? a[start_of(j + p, rows) + j + q]
                                        : a[start_of(j + q, rows) + j + p];
#pragma unroll
                for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                    z[p][g] = minus(z[p][g], l, z[q][g]);
                }
            }
        }
        const bool told_itself = i >= j && i < j + 4;
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int q = BACKWARD ? 3 - s : s;
            const Real l = told_itself ? (Real)0
                           : BACKWARD  ? a[start_of(i, rows) + j + q]
                                       : a[start_of(j + q, rows) + i];
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                if (!told_itself) c[g] = minus(c[g], l, z[q][g]);
                else if (i == j + q) c[g] = z[q][g];
            }
        }
    }
    __syncthreads();
}

/* Matrix m of x <- L^-1 b, L^-T b, or L^-T L^-1 b. */
template <class Real>
static __device__ void solve(const View<Real> &lower, const View<Real> &b, Real *x, int n,
                             int columns, bool forward, bool backward)
{
    const int i = threadIdx.x, order = padded(n), rows = rows_of(n);
    const long long m = blockIdx.x;
    Real *a = (Real *)memory, *inverse = a + start_of(order, rows) + order;
    fetch(lower, m, n, a);
    __syncthreads();
    if (i < order) inverse[i] = reciprocal(a[start_of(i, rows) + i]);
    for (int start = 0; start < columns; start += SUBSTITUTION_COLUMNS) {
        Real c[SUBSTITUTION_COLUMNS];
#pragma unroll
        for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
            c[g] = i < n && start + g < columns ? *b.at(m, i, start + g) : (Real)0;
        }
        if (forward) substitute<false>(a, inverse, inverse + order, n, c);
        if (backward) substitute<true>(a, inverse, inverse + order, n, c);
#pragma unroll
        for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
            if (i < n && start + g < columns) x[(m * n + i) * columns + start + g] = c[g];
        }
    }
}

/* Rows c of the lanes <- those of L^-1 c, or of L^-T c: a lane has every 32nd row, and the entry
   of the solution that is found goes to all of them by a shuffle. */
template <bool BACKWARD, class Real>
static __device__ void substitute_by_shuffles(const View<Real> &lower, long long m, int n,
                                              const Real (&inverse)[ROWS_PER_LANE],
                                              Real (&c)[ROWS_PER_LANE][SUBSTITUTION_COLUMNS])
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int s = 0; s < ROWS_PER_LANE; ++s) {
        const int own = BACKWARD ? ROWS_PER_LANE - 1 - s : s;
        const int found = min(n - 32 * own, 32);
        for (int step = 0; step < found; ++step) {
            const int from = BACKWARD ? found - 1 - step : step, k = 32 * own + from;
            Real z[SUBSTITUTION_COLUMNS];
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                z[g] = __shfl_sync(0xffffffff, times(c[own][g], inverse[own]), from);
                if (lane == from) c[own][g] = z[g];
            }
#pragma unroll
            for (int r = BACKWARD ? 0 : own; r <= (BACKWARD ? own : ROWS_PER_LANE - 1); ++r) {
                const int i = lane + 32 * r;
                if (BACKWARD ? i >= k : i <= k || i >= n) continue;
                const Real l = BACKWARD ? *lower.at(m, k, i) : *lower.at(m, i, k);
#pragma unroll
                for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                    c[r][g] = minus(c[r][g], l, z[g]);
                }
            }
        }
    }
}

/* As `solve`, by a warp for each matrix, without shared memory (Section VI of the paper). */
template <class Real>
static __device__ void solve_by_warps(const View<Real> &lower, const View<Real> &b, Real *x, int n,
                                      int columns, bool forward, bool backward, long long batch)
{
    const int lane = threadIdx.x;
    const long long m = blockIdx.x * (long long)blockDim.z + threadIdx.z;
    if (m >= batch) return;
    Real inverse[ROWS_PER_LANE];
#pragma unroll
    for (int r = 0; r < ROWS_PER_LANE; ++r) {
        const int i = lane + 32 * r;
        inverse[r] = i < n ? reciprocal(*lower.at(m, i, i)) : (Real)0;
    }
    for (int start = 0; start < columns; start += SUBSTITUTION_COLUMNS) {
        Real c[ROWS_PER_LANE][SUBSTITUTION_COLUMNS];
#pragma unroll
        for (int r = 0; r < ROWS_PER_LANE; ++r) {
            const int i = lane + 32 * r;
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                c[r][g] = i < n && start + g < columns ? *b.at(m, i, start + g) : (Real)0;
            }
        }
        if (forward) substitute_by_shuffles<false>(lower, m, n, inverse, c);
        if (backward) substitute_by_shuffles<true>(lower, m, n, inverse, c);
#pragma unroll
        for (int r = 0; r < ROWS_PER_LANE; ++r) {
            const int i = lane + 32 * r;
#pragma unroll
            for (int g = 0; g < SUBSTITUTION_COLUMNS; ++g) {
                if (i < n && start + g < columns) x[(m * n + i) * columns + start + g] = c[r][g];
            }
        }
    }
}

/* Entry (i, j) of 32 matrices from `first` on, side by side in a chunk of `lanes` matrices. */
template <class Real>
BOTH Real *beside(Real *chunks, long long first, int lanes, int n, int i, int j)
{
    return chunks + (first / lanes * n * n + i * n + j) * lanes + first % lanes;
}

/* Chunks <- lower triangles; the last chunk is filled up with unit matrices. */
template <class Real>
static __device__ void pack(const View<Real> &view, Real *chunks, int n, int lanes,
                            long long batch)
{
    __shared__ Real tile[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const long long first = blockIdx.x * 32LL;
    const bool by_columns = view.by_columns();
    for (int start = 0; start < n * n; start += 32) {
        for (int m = warp; m < 32; m += warps) {
            const int slow = (start + lane) / n, fast = (start + lane) % n;
            const int i = by_columns ? fast : slow, j = by_columns ? slow : fast;
            if (i >= n || j > i) continue;
            tile[m][lane] = first + m < batch ? *view.at(first + m, i, j) : (Real)(i == j);
        }
        __syncthreads();
        for (int t = warp; t < 32; t += warps) {
            const int slow = (start + t) / n, fast = (start + t) % n;
            const int i = by_columns ? fast : slow, j = by_columns ? slow : fast;
            if (i < n && j <= i) beside(chunks, first, lanes, n, i, j)[lane] = tile[lane][t];
        }
        __syncthreads();
    }
}

/* Factors, or NaN where there is none, and info <- chunks; `view` has what was factored, and
   `lower` may be its memory. */
template <class Real>
static __device__ void unpack(const View<Real> &view, Real *chunks, Real *lower, long long *info,
                              int n, int lanes, long long batch)
{
    __shared__ Real tile[32][33];
    __shared__ int found[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const long long first = blockIdx.x * 32LL;
    if (warp == 0 && first + lane < batch) {
        int failed = 0;
        for (int i = n - 1; i >= 0; --i) {
            if (!proper(beside(chunks, first, lanes, n, i, i)[lane])) failed = i + 1;
        }
        for (int i = failed ? n - 1 : -1; i >= 0; --i) {
            for (int j = 0; j <= i; ++j) {
                if (!is_finite(*view.at(first + lane, i, j))) failed = -1 - i;
            }
        }
        found[lane] = failed;
        report(info, first + lane, batch, failed);
    }
    __syncthreads();
    for (int start = 0; start < n * n; start += 32) {
        for (int t = warp; t < 32; t += warps) {
            const int i = (start + t) / n, j = (start + t) % n;
            if (i < n && j <= i) tile[t][lane] = beside(chunks, first, lanes, n, i, j)[lane];
        }
        __syncthreads();
        for (int m = warp; m < 32 && first + m < batch; m += warps) {
            const int i = (start + lane) / n, j = (start + lane) % n;
            const Real entry = j > i ? 0 : found[m] ? root((Real)-1) : tile[lane][m];
            if (i < n) lower[(first + m) * n * n + start + lane] = entry;
        }
        __syncthreads();
    }
}

#define KERNELS(Real, suffix)                                                                  \
    extern "C" __global__ void __launch_bounds__(LARGEST_ORDER)                                \
        factor_##suffix(VIEWED(Real, a), Real *lower, long long *info, long long n)            \
    {                                                                                          \
        factor(VIEW(Real, a), lower, info, (int)n);                                            \
    }                                                                                          \
    extern "C" __global__ void __launch_bounds__(LARGEST_ORDER)                                \
        solve_##suffix(VIEWED(Real, lower), VIEWED(Real, b), Real *x, long long n,             \
                       long long columns, long long forward, long long backward)               \
    {                                                                                          \
        solve(VIEW(Real, lower), VIEW(Real, b), x, (int)n, (int)columns, forward, backward);   \
    }                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * MOST_SUBSTITUTING_WARPS)                 \
        solve_by_warps_##suffix(VIEWED(Real, lower), VIEWED(Real, b), Real *x, long long n,    \
                                long long columns, long long forward, long long backward,      \
                                long long batch)                                               \
    {                                                                                          \
        solve_by_warps(VIEW(Real, lower), VIEW(Real, b), x, (int)n, (int)columns, forward,     \
                       backward, batch);                                                       \
    }                                                                                          \
    extern "C" __global__ void __launch_bounds__(PACKING_THREADS)                              \
        pack_##suffix(VIEWED(Real, a), Real *chunks, long long n, long long lanes,             \
                      long long batch)                                                         \
    {                                                                                          \
        pack(VIEW(Real, a), chunks, (int)n, (int)lanes, batch);                                \
    }                                                                                          \
    extern "C" __global__ void __launch_bounds__(PACKING_THREADS)                              \
        unpack_##suffix(VIEWED(Real, a), Real *chunks, Real *lower, long long *info,           \
                        long long n, long long lanes, long long batch)                         \
    {                                                                                          \
        unpack(VIEW(Real, a), chunks, lower, info, (int)n, (int)lanes, batch);                 \
    }

KERNELS(double, fp64)
KERNELS(float, fp32)
