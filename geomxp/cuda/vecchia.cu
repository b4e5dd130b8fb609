/* Vecchia's blocks on a GPU: gathered, generated, factored and reduced within a multiprocessor.

   One block of threads stays on each multiprocessor and goes from places to places; its shared
   memory holds the rows of the tables that most pairs need, and a room for each team. The sums of
   a few places that follow each other go to a row of their own, and the rows are then added in
   their order: the sums depend neither on how many multiprocessors there are nor on who is first.

   Compiled with TEAM=8, 16, 32 or 64 threads, as the order of the blocks asks for, and with the
   numbers of shape parameters of the covariance family in SHAPES and of diagonals of the noise in
   DIAGONALS; with TIMED=1 for space-time families. */

#include "vecchia.cuh"

#define THREADS 512
#define FOLD 64 /* rows that are added to one */

extern __shared__ Pair<double> shared[];

#if TIMED
/* functions: tables of functions of time, of `late` rows, 0 if time is a coordinate; see struct Clock. */
#define PARAMETERS_OF_CLOCK                                                                    \
    , const Pair<double> *__restrict__ functions, const long long *__restrict__ fields,         \
        double inverse_time, long long late, long long base_time, long long decay,             \
        long long stretch
#define CLOCK , {functions, fields, inverse_time, (int)late, (int)base_time, (int)decay, (int)stretch}
#else
#define PARAMETERS_OF_CLOCK
#define CLOCK
#endif

/* x, neighbours, columns, diagonals: of n places, see struct Places.
   tables: `kinds` tables of `intervals` rows; base: the number of the first interval.
   from, staged: which rows of each stand in shared memory.
   rows: of a block and below it; stride: numbers of a team's room. */
#define PARAMETERS                                                                             \
    const double *__restrict__ x, const int *__restrict__ neighbours,                          \
        const double *__restrict__ columns, const double *__restrict__ diagonals,              \
        long long n, long long d, long long m,                                                 \
        long long count, long long mapping, long long turned, const Model *__restrict__ given, \
        const Pair<double> *__restrict__ tables, long long kinds, long long intervals, long long base, \
        long long from, long long staged, long long rows, long long stride PARAMETERS_OF_CLOCK
#define START                                                                                  \
    const Model &model = *given;                                                               \
    const Places places = {x, neighbours, columns, diagonals, n, (int)d, (int)m, (int)count,               \
                           (int)mapping, (int)turned CLOCK};                                   \
    const Table table = {tables, shared, (int)intervals, (int)base, (int)from, (int)staged};   \
    stage(table, (int)kinds);                                                                  \
    const int lane = threadIdx.x % TEAM, team = threadIdx.x / TEAM, teams = blockDim.x / TEAM; \
    double *memory = (double *)(shared + kinds * staged * 4) + team * stride;                  \
    const Room room = room_of(memory, (int)(m + 4) / 4 * 4, (int)rows, (int)d + TIMED)

/* Copy the window's rows into shared memory. */
static __device__ void stage(const Table &table, int kinds)
{
    for (int p = threadIdx.x; p < kinds * table.staged * 4; p += blockDim.x) {
        const int which = p / (table.staged * 4), row = p / 4 % table.staged, k = p % 4;
        shared[which * table.staged * 4 + pair_at(row, k)] =
            table.rows[(which * table.count + table.from + row) * 4 + k];
    }
    __syncthreads();
}

/* sums: (parts, length), zeros before; part k has the places size·k ≤ i < size·(k + 1). */
#define REDUCTION(name, derivatives)                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                   \
        name(PARAMETERS, long long wanted, long long parts, long long size,                    \
             double *__restrict__ sums, long long length, int *__restrict__ misses)            \
    {                                                                                          \
        START;                                                                                 \
        for (long long first = (long long)blockIdx.x * teams; first < parts;                   \
             first += (long long)gridDim.x * teams) {                                          \
            reduce<derivatives>(places, model, table, (int)wanted, room, lane, first + team,   \
                                parts, size, sums, length, misses);                            \
        }                                                                                      \
    }

REDUCTION(likelihood, false)
REDUCTION(likelihood_and_derivatives, true)

/* weights: (n, m); variances: (n,) */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weights(PARAMETERS, double *__restrict__ weights, double *__restrict__ variances,
            int *__restrict__ misses)
{
    START;
    for (long long first = (long long)blockIdx.x * teams; first < n;
         first += (long long)gridDim.x * teams) {
        weigh(places, model, table, room, lane, first + team, weights, variances, misses);
    }
}

/* Add rows of sums, FOLD to one, in their order; of each row's last number, the largest. */
extern "C" __global__ void fold(const double *__restrict__ rows, long long count,
                                long long length, double *__restrict__ out)
{
    const long long first = (long long)blockIdx.x * FOLD;
    const long long last = first + FOLD < count ? first + FOLD : count;
    for (long long e = threadIdx.x; e < length; e += blockDim.x) {
        double sum = rows[first * length + e];
        for (long long k = first + 1; k < last; ++k) {
            const double next = rows[k * length + e];
            sum = e < length - 1 ? sum + next : fmax(sum, next);
        }
        out[blockIdx.x * length + e] = sum;
    }
}
