/* Small factorizations on a GPU with rows in registers: some lanes of a warp factor one matrix.

   Compiled for one ORDER, number of LANES of a matrix (1, 2, 4, ..., 32) and number of MATRICES of a
   block, which must fill whole warps. A lane holds every LANESth row. Column by column:

       l_kk <- √a_kk              by each lane for itself; a_kk is exchanged by a shuffle
       l_ik <- a_ik · (1/l_kk)    by the lane of row i, which writes it to shared memory
       a_ij <- a_ij - l_ik l_jk   for j > k; all lanes of a matrix read l_jk from one address

   All loops over entries are unrolled, so that entries stay in registers. Matrices are loaded and
   stored through shared memory, so that neighbouring lanes access neighbouring entries.

   The same products are subtracted from an entry in the same order as in
   geomxp/linalg/batched_programs.py: the bits are the same, unless FAST_ROOTS. */

#include "batched.cuh"

#define ROWS_PER_LANE ((ORDER + LANES - 1) / LANES)
#define MATRICES_PER_WARP (32 / LANES)
#define STRIDE (ORDER | 1) /* of a row in shared memory; odd: rows have all banks */
#define LOADS_AHEAD 8      /* loads that a thread waits for at one time */
#ifndef FAST_ROOTS
#define FAST_ROOTS false /* whether 1/sqrt is one instruction, see batched.cuh */
#endif

/* Numbers of a matrix in shared memory: its rows, or two columns in turn; see
   geomxp/linalg/batched_gpu.py. Matrices of a warp begin in banks that are LANES apart. */
#define NUMBERS_NEEDED (ORDER > 1 ? ORDER * STRIDE : 4)
#define NUMBERS_RESERVED ((NUMBERS_NEEDED + 15) / 16 * 16 + LANES % 16)

extern __shared__ double2 memory[];

/* Rows <- the lower triangle of matrix m with zeros above, or a unit matrix if m is not in the
   batch. Return the first row where this lane saw a NaN or an infinity, or ORDER. */
template <class Real>
static __device__ int fetch(const View<Real> &view, long long m, bool exists, Real *rows)
{
    const bool by_columns = view.by_columns();
    int broken = ORDER;
    /* lanes along what is contiguous */
#pragma unroll 1
    for (int start = threadIdx.x; start < ORDER * ORDER; start += LOADS_AHEAD * LANES) {
        Real entry[LOADS_AHEAD];
#pragma unroll
        for (int u = 0; u < LOADS_AHEAD; ++u) {
            const int at = start + u * LANES, slow = at / ORDER, fast = at % ORDER;
            const int i = by_columns ? fast : slow, j = by_columns ? slow : fast;
            const bool loaded = exists && at < ORDER * ORDER && j <= i;
            entry[u] = loaded ? *view.at(m, i, j) : (Real)(i == j);
        }
#pragma unroll
        for (int u = 0; u < LOADS_AHEAD; ++u) {
            const int at = start + u * LANES, slow = at / ORDER, fast = at % ORDER;
            const int i = by_columns ? fast : slow, j = by_columns ? slow : fast;
            if (at >= ORDER * ORDER) break;
            rows[i * STRIDE + j] = entry[u];
            if (!is_finite(entry[u])) broken = min(broken, i);
        }
    }
    return broken;
}

/* The columns from K on <- those of the factor; the first row with a pivot that is not positive and
   finite goes to `failed`. Recursive, because compilers do not unroll a loop this long. */
template <class Real, int K> struct Columns {
    static BOTH void factor(Real *warp, int member, Real (&c)[ROWS_PER_LANE][ORDER], int &failed)
    {
        const int own = K / LANES, lane = threadIdx.x;
        const bool owns = lane == K % LANES;
        const Real a = __shfl_sync(0xffffffff, c[own][K], K % LANES, LANES);
        const Real by = FAST_ROOTS ? inverse_root(a) : (Real)0;
        const Real pivot = FAST_ROOTS ? times(a, by) : root(a);
        const Real inverse = FAST_ROOTS ? by : reciprocal(pivot);
        if (!proper(pivot)) failed = min(failed, K);
        /* two columns in turn, so that no lane overwrites what another one still reads; pairs of
           entries, those of a warp's matrices side by side */
        Real *column = warp + K % 2 * ((ORDER + 1) / 2 * 2 * MATRICES_PER_WARP);
#pragma unroll
        for (int r = own; r < ROWS_PER_LANE; ++r) {
            const int i = lane + LANES * r;
            c[r][K] = r == own && owns ? pivot : times(c[r][K], inverse);
            if (i < ORDER) column[(i / 2 * MATRICES_PER_WARP + member) * 2 + i % 2] = c[r][K];
        }
        __syncwarp();
#pragma unroll
        for (int j = (K + 1) / 2 * 2; j < ORDER; j += 2) {
            const Pair<Real> y = ((const Pair<Real> *)column)[j / 2 * MATRICES_PER_WARP + member];
#pragma unroll
            for (int r = own; r < ROWS_PER_LANE; ++r) {
                /* also above the diagonal, where nothing is read */
                if (j > K && j < LANES * (r + 1)) c[r][j] = minus(c[r][j], c[r][K], y.first);
                if (j + 1 < ORDER && j + 1 < LANES * (r + 1)) {
                    c[r][j + 1] = minus(c[r][j + 1], c[r][K], y.second);
                }
            }
        }
        Columns<Real, K + 1>::factor(warp, member, c, failed);
    }
};

template <class Real> struct Columns<Real, ORDER> {
    static BOTH void factor(Real *, int, Real (&)[ROWS_PER_LANE][ORDER], int &) {}
};

/* Matrix m of `lower` <- the Cholesky factor of view's, or NaN where there is none; info as in
   geomxp/linalg/batched.py. `lower` may be view's memory. */
template <class Real>
static __device__ void factor(const View<Real> &view, Real *lower, long long *info,
                              long long batch)
{
    const int lane = threadIdx.x, member = threadIdx.z % MATRICES_PER_WARP;
    const long long m = blockIdx.x * (long long)MATRICES + threadIdx.z;
    const bool exists = m < batch;
    Real *warp = (Real *)memory + (threadIdx.z - member) * NUMBERS_RESERVED;
    Real *rows = warp + member * NUMBERS_RESERVED;
    Real c[ROWS_PER_LANE][ORDER];
    int failed = ORDER, broken = fetch(view, m, exists, rows);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS_PER_LANE; ++r) {
        const int i = lane + LANES * r;
#pragma unroll
        for (int j = 0; j < ORDER && j < LANES * (r + 1); ++j) {
            c[r][j] = i < ORDER ? rows[i * STRIDE + j] : (Real)0;
        }
    }
    __syncwarp();
    Columns<Real, 0>::factor(warp, member, c, failed);
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
        broken = min(broken, __shfl_xor_sync(0xffffffff, broken, step, LANES));
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS_PER_LANE; ++r) {
        const int i = lane + LANES * r;
#pragma unroll
        for (int j = 0; j < ORDER && j < LANES * (r + 1); ++j) {
            if (j <= i && i < ORDER) rows[i * STRIDE + j] = c[r][j];
        }
    }
    __syncwarp();
    if (!exists) return;
    const bool none = broken < ORDER || failed < ORDER;
    if (lane == 0) report(info, m, batch, broken < ORDER ? -1 - broken : none ? failed + 1 : 0);
#pragma unroll 4
    for (int at = lane; at < ORDER * ORDER; at += LANES) {
        const int i = at / ORDER, j = at % ORDER;
        const Real entry = none ? root((Real)-1) : rows[i * STRIDE + j];
        lower[m * ORDER * ORDER + at] = j > i ? (Real)0 : entry;
    }
}

/* One block at least: ptxas spills nothing to make room for more. */
#define KERNEL(Real, suffix)                                                                   \
    extern "C" __global__ void __launch_bounds__(LANES * MATRICES, 1)                          \
        factor_##suffix(VIEWED(Real, a), Real *lower, long long *info, long long batch)        \
    {                                                                                          \
        factor(VIEW(Real, a), lower, info, batch);                                             \
    }

KERNEL(double, fp64)
KERNEL(float, fp32)
