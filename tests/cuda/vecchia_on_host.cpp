/* The device functions of geomxp/cuda/vecchia.cuh on the host: a team is one lane, or its lanes
   go by turns as far as the next TOGETHER(), upwards or downwards. Where one reads what another
   has just written, or is yet to write, the two orders give different numbers. */

#include <cstdlib>
#include <cstring>

#if TEAM > 1
#include <functional>
#include <ucontext.h>
#include <vector>

static ucontext_t caller;
static std::vector<ucontext_t> lanes(TEAM);
static std::vector<bool> done(TEAM);
static int current;
static std::function<void(int)> work_of;

static void together() { swapcontext(&lanes[current], &caller); }
#define TOGETHER() together()

static void begin()
{
    work_of(current);
    done[current] = true;
}

/* Whether all lanes came together equally often. */
static bool team(std::function<void(int)> work, bool downwards)
{
    const size_t size = 1 << 16;
    std::vector<char> stacks(TEAM * size);
    work_of = work;
    for (int lane = 0; lane < TEAM; ++lane) {
        getcontext(&lanes[lane]);
        lanes[lane].uc_stack.ss_sp = &stacks[lane * size];
        lanes[lane].uc_stack.ss_size = size;
        lanes[lane].uc_link = &caller;
        makecontext(&lanes[lane], begin, 0);
        done[lane] = false;
    }
    int finished = 0;
    while (!finished) {
        for (int turn = 0; turn < TEAM; ++turn) {
            current = downwards ? TEAM - 1 - turn : turn;
            swapcontext(&caller, &lanes[current]);
            finished += done[current];
        }
    }
    return finished == TEAM;
}
#else
template <class Work> static bool team(Work work, bool)
{
    work(0);
    return true;
}
#endif

#include "vecchia.cuh"

struct Given {
    const double *x, *columns, *diagonals;
    const int *neighbours;
    const Model *model;
    const Pair<double> *tables;
    double *room;
    long long n, d, m, count, mapping, turned, kinds, intervals, base, from, staged, rows;
    long long downwards;
};

/* What a kernel does before it begins. */
struct Start {
    Places places;
    Table table;
    Room room;
    Pair<double> *window;
    int misses;

    Start(const Given &g)
    {
        places = {g.x,      g.neighbours, g.columns,    g.diagonals, g.n,            (int)g.d,
                  (int)g.m, (int)g.count, (int)g.mapping, (int)g.turned};
        window = (Pair<double> *)aligned_alloc(64, (g.kinds * g.staged + 1) * 64);
        for (int which = 0; which < g.kinds; ++which) {
            for (int row = 0; row < g.staged; ++row) {
                for (int k = 0; k < 4; ++k) {
                    window[which * g.staged * 4 + pair_at(row, k)] =
                        g.tables[(which * g.intervals + g.from + row) * 4 + k];
                }
            }
        }
        table = {g.tables, window, (int)g.intervals, (int)g.base, (int)g.from, (int)g.staged};
        room = room_of(g.room, (int)(g.m + 4) / 4 * 4, (int)g.rows, (int)g.d);
        misses = 0;
    }
    ~Start() { free(window); }
};

/* Both return whether a pair was missed; -1 where a lane left the others alone. One part, or
   place, more than there are: some team of a GPU's has none. */
extern "C" int reduced(const Given *g, long long wanted, long long parts, long long size,
                       double *sums, long long length)
{
    Start s(*g);
    auto reduction = wanted ? reduce<true> : reduce<false>;
    const bool all = team(
        [&](int lane) {
            for (long long which = 0; which <= parts; ++which) {
                reduction(s.places, *g->model, s.table, (int)wanted, s.room, lane, which, parts,
                          size, sums, length, &s.misses);
            }
        },
        g->downwards);
    return all ? s.misses : -1;
}

extern "C" int weighed(const Given *g, double *weights, double *variances)
{
    Start s(*g);
    const bool all = team(
        [&](int lane) {
            for (long long i = 0; i <= g->n; ++i) {
                weigh(s.places, *g->model, s.table, s.room, lane, i, weights, variances,
                      &s.misses);
            }
        },
        g->downwards);
    return all ? s.misses : -1;
}
