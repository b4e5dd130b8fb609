/* Vecchia's blocks, each by a team of threads: the arithmetic of geomxp/vecchia/kernel.py.

   A block is a place and its m neighbours, the place last, padded to a multiple of four rows with
   those of the unit matrix. Further rows stand below it: the columns that are whitened, y', which
   the factorization turns into (L^-1 y)' on its way; and those of the derivatives, (L^-1 D b)'. For their layout see batched.cuh.

   A team is TEAM threads that take the same path, `lane` is a thread's number in it. Where one
   lane reads what another has written, TOGETHER() stands between: then a team is part of a warp, a
   warp, or two. On a host it is one lane, or all of them by turns (tests/cuda/test_vecchia.py).
   What is computed of an entry, and in which order, depends on nothing of this: any TEAM has the
   same bits. */

#ifndef GEOMXP_VECCHIA_CUH
#define GEOMXP_VECCHIA_CUH

#include "batched.cuh"
#include "matern.cuh"

#ifdef __CUDACC__
#if TEAM <= 32
#define TOGETHER() __syncwarp()
#else
/* barrier 0 is the block's; a team of several warps has its own, and waits for no other team */
#define TOGETHER()                                                                             \
    asm volatile("bar.sync %0, %1;" : : "r"(1 + (int)threadIdx.x / TEAM), "n"(TEAM) : "memory")
#endif
#elif !defined(TOGETHER)
#define TOGETHER()
#endif

#ifndef SHARE
#define SHARE 3 /* rows of one lane, at most */
#endif

#ifndef SHAPES
#define SHAPES 1 /* shape parameters of the covariance family */
#endif
#ifndef DIAGONALS
#define DIAGONALS 1 /* of the noise */
#endif
#ifndef TIMED
#define TIMED 0 /* 1 for space-time families, where SHAPES counts all parameters of the correlation */
#endif
#if TIMED
/* as in geomxp/vecchia/blocks.py: S itself, the diagonals of the noise, by each parameter */
#define BASES (SHAPES + DIAGONALS + 1)
#define CHANGES SHAPES
#else
/* as in geomxp/vecchia/blocks.py: S itself, the diagonals of the noise, by the shape parameters, by
   the logarithm of all distances, by the angle and by the ratio of anisotropy */
#define BASES (SHAPES + DIAGONALS + 4)
/* those that need sums over pairs: all but S and the diagonals */
#define CHANGES (SHAPES + 3)
#endif

/* What one model says of the places; the order is that of geomxp/vecchia/gpu.py. */
struct Model {
    double middle[3], scale; /* a point is A(x - middle)·scale */
    double turn[4];          /* A, row by row */
    double inverse, variance; /* 1/a² in the points' unit, σ² */
    double maps[6]; /* the quadratic forms of the derivatives by angle and ratio */
    double noise[DIAGONALS]; /* coefficients of the diagonals: the variance of a place's noise */
};

/* Functions of v = (u/b)² of a space-time family: tables after each other, of `count` rows; 0 if time
   is a coordinate. `decay` and `stretch` are the numbers of tables, -1 for none. Derivative k of the
   correlation is g[a]·e[b] + g[c]·e[d] with (a, b, c, d) = fields[k], e functions of space and g of
   time; without the second product where c = -1. */
struct Clock {
    const Pair<double> *__restrict__ rows;
    const long long *__restrict__ fields; /* (CHANGES, 4) */
    double inverse; /* 1/b² */
    int count, base, decay, stretch;
};

/* Places, their neighbours (-1 for none) and what is whitened of them. */
struct Places {
    const double *__restrict__ x;       /* (n, d), or with the time in one more column */
    const int *__restrict__ neighbours; /* (n, m) */
    const double *__restrict__ columns; /* (count, n) */
    const double *__restrict__ diagonals; /* (DIAGONALS, n) */
    long long n;
    int d, m, count, mapping, turned; /* mapping: 1 for arcs, 2 for a folded table */
#if TIMED
    Clock clock;
#endif
};

/* Tables of polynomials after each other, each of `count` rows of four pairs of coefficients. The
   rows from ≤ row < from + staged of each stand in shared memory too. */
struct Table {
    const Pair<double> *__restrict__ rows;
    const Pair<double> *window;
    int count, base, from, staged;
};

/* A team's own memory. */
struct Room {
    int order, rows;  /* of the block, and with those below it */
    double *a;        /* order·rows - order (order - 4)/2 */
    double *inverse;  /* 1/l_ii, (order,) */
    double *keep;     /* 1, or 0 where a row stands for no place, (order,) */
    double *points;   /* (d, order) */
    double *b;        /* L^-T e, e the last unit vector, (order,) */
    double *changes;  /* D b, (CHANGES, order) */
};

LEAF Room room_of(double *memory, int order, int rows, int d)
{
    Room room;
    room.order = order, room.rows = rows;
    room.a = memory;
    room.inverse = room.a + order * rows - order * (order - 4) / 2;
    room.keep = room.inverse + order;
    room.points = room.keep + order;
    room.b = room.points + d * order;
    room.changes = room.b + order;
    return room;
}

/* Where pair k of a row stands in shared memory: as place_of<double> of matern.cu. */
LEAF int pair_at(int row, int k) { return (row * 4 + ((row >> 1) & 3)) ^ k; }

LEAF double polynomial_of(const Table &table, int which, int row, double t)
{
    double c[8];
    const int local = row - table.from;
    if (local >= 0 && local < table.staged) {
        const Pair<double> *window = table.window + which * table.staged * 4;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const Pair<double> both = window[pair_at(local, k)];
            c[2 * k] = both.first, c[2 * k + 1] = both.second;
        }
    } else {
        const Pair<double> *found = table.rows + (which * table.count + row) * 4;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const Pair<double> both = found[k];
            c[2 * k] = both.first, c[2 * k + 1] = both.second;
        }
    }
    return polynomial_fp64(c, t);
}

#if TIMED
LEAF double polynomial_in_time(const Clock &clock, int which, int row, double t)
{
    double c[8];
    const Pair<double> *found = clock.rows + (which * clock.count + row) * 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const Pair<double> both = found[k];
        c[2 * k] = both.first, c[2 * k + 1] = both.second;
    }
    return polynomial_fp64(c, t);
}
#endif

/* Fetch points and columns of place i and its neighbours, and write the diagonal. */
LEAF void gather(const Places &places, const Model &model, long long i, const Room &room, int lane)
{
    const int order = room.order, d = places.d, m = places.m;
    for (int q = lane; q < order; q += TEAM) {
        const long long j = q == order - 1 ? i : q < m ? places.neighbours[i * m + q] : -1;
        const bool there = j >= 0;
        /* a row of no place has the place's own point: its covariances are multiplied by 0 */
        const double *x = places.x + (there ? j : i) * (d + TIMED);
        double p0 = (x[0] - model.middle[0]) * model.scale, p1 = 0.0, p2 = 0.0;
        if (d > 1) p1 = (x[1] - model.middle[1]) * model.scale;
        if (d > 2) p2 = (x[2] - model.middle[2]) * model.scale;
        if (places.turned) {
            const double along = fma(model.turn[1], p1, model.turn[0] * p0);
            p1 = fma(model.turn[3], p1, model.turn[2] * p0);
            p0 = along;
        }
        room.points[q] = p0;
        if (d > 1) room.points[order + q] = p1;
        if (d > 2) room.points[2 * order + q] = p2;
        if (TIMED) room.points[d * order + q] = x[d];
        room.keep[q] = there ? 1.0 : 0.0;
        double *column = room.a + start_of(q, room.rows);
        double noise = 0.0;
        for (int k = 0; k < DIAGONALS; ++k) {
            noise += model.noise[k] * (there ? places.diagonals[k * places.n + j] : 0.0);
        }
        column[q] = there ? model.variance + noise : 1.0;
#pragma unroll 1
        for (int c = 0; c < places.count; ++c) {
            column[order + c] = there ? places.columns[c * places.n + j] : 0.0;
        }
    }
    TOGETHER();
}

/* Two rows of a block, seen from the first of them. */
struct Between {
    double d0, d1, square; /* their difference's first coordinates, and its square */
    double s, t;           /* the table's variable, and its place within its interval */
    int row;               /* of the table */
#if TIMED
    double space, v, decay, t_late; /* s before the stretch, v, G(v), and v's place within its interval */
    int late;                       /* v's row of the tables of time */
#endif
};

LEAF Between between(const Places &places, const Model &model, const Table &table,
                     const Room &room, int i, int j)
{
    Between found;
    const int order = room.order, d = places.d;
    const double *p = room.points;
    const double d2 = d > 2 ? p[2 * order + i] - p[2 * order + j] : 0.0;
    found.d0 = p[i] - p[j];
    found.d1 = d > 1 ? p[order + i] - p[order + j] : 0.0;
    found.square = squared_distance(found.d0, found.d1, d2, 1.0);
    found.s =
        (places.mapping & 1 ? squared_arc(found.square, 1.0) : found.square) * model.inverse;
    if (places.mapping & 2) found.s = folded(found.s);
#if TIMED
    const Clock &clock = places.clock;
    const double lag = p[d * order + i] - p[d * order + j];
    found.space = found.s, found.v = lag * lag * clock.inverse;
    found.decay = 1.0, found.t_late = 0.0, found.late = 1;
    if (clock.count) {
        found.late = interval_fp64(found.v, clock.base, clock.count - 1, &found.t_late);
        if (clock.stretch >= 0) {
            found.s *= polynomial_in_time(clock, clock.stretch, found.late, found.t_late);
        }
        found.decay = polynomial_in_time(clock, clock.decay, found.late, found.t_late);
    } else {
        found.s += found.v;
    }
#endif
    found.row = interval_fp64(found.s, table.base, table.count - 1, &found.t);
    return found;
}

LEAF bool missed(const Between &pair)
{
    bool found = pair.row == 0 && pair.s > 0;
#if TIMED
    found |= pair.late == 0 && pair.v > 0;
#endif
    return found;
}

#if TIMED
/* A function of time; if time is a coordinate 1, v/(s + v) or s/(s + v), 0 for 0/0. */
LEAF double of_time(const Clock &clock, int which, const Between &pair)
{
    if (clock.count) return polynomial_in_time(clock, which, pair.late, pair.t_late);
    if (which == 0) return 1.0;
    return (which == 1 ? pair.v : pair.space) / (pair.space + pair.v + 1e-300);
}
#endif

/* Write what stands below the diagonal; return whether the table did not reach a pair.

   Step δ has the pairs (i, i + δ), counted round: each pair once, and all lanes have one. */
LEAF bool generate(const Places &places, const Model &model, const Table &table, const Room &room,
                   int lane)
{
    const int order = room.order;
    bool misses = false;
    for (int i = lane; i < order; i += TEAM) {
        const int steps = i < order / 2 ? order / 2 : order / 2 - 1;
        const double weight = model.variance * room.keep[i];
        for (int step = 1; step <= steps; ++step) {
            const int j = i + step < order ? i + step : i + step - order;
            const Between pair = between(places, model, table, room, i, j);
            misses |= missed(pair);
            double value = polynomial_of(table, 0, pair.row, pair.t);
#if TIMED
            value *= pair.decay;
#endif
            const int upper = i < j ? i : j, lower = i < j ? j : i;
            room.a[start_of(upper, room.rows) + lower] = value * (weight * room.keep[j]);
        }
    }
    TOGETHER();
    return misses;
}

/* A <- L, and the rows below, up to `last`, <- y'L^-T; return the last pivot before its root.

   Four columns at a time: what the columns to their left leave of them; the factor of the tile on
   the diagonal, by each lane for itself; the rows below it. Where a matrix is not positive
   definite the last pivot is not positive, infinite or NaN. */
LEAF double factor(const Room &room, int last, int lane)
{
    const int rows = room.rows;
    double pivot = 0.0;
    for (int j = 0; j < room.order; j += 4) {
        double c[SHARE][4], *own = room.a + start_of(j, rows);
        const int height = rows - j;
        int i[SHARE];
#pragma unroll
        for (int r = 0; r < SHARE; ++r) {
            const int row = j + lane + r * TEAM;
            i[r] = row < last ? row : last - 1;
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                c[r][q] = own[q * height + i[r]];
            }
        }
        /* A_ij <- A_ij - Σ_k L_ik L_jk' */
        subtract_left(room.a, rows, j, i, TEAM, last - j, c);
#pragma unroll
        for (int r = 0; r < SHARE; ++r) {
            const int row = j + lane + r * TEAM;
            if (row < j + 4) {
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    if (q <= row - j) own[q * height + row] = c[r][q];
                }
            }
        }
        TOGETHER();
        /* L_jj <- chol(A_jj) */
        double l[4][4], inverse[4];
        load_tile(own + j, height, l);
        pivot = factor_tile<true>(l, inverse);
        /* L_ij <- A_ij L_jj^-T */
#pragma unroll
        for (int r = 0; r < SHARE; ++r) {
            const int row = j + lane + r * TEAM;
            if (row >= j + 4 && row < last) {
                solve_tile(l, inverse, c[r]);
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    own[q * height + row] = c[r][q];
                }
            }
        }
        TOGETHER();
        if (lane == 0) {
            store_tile(own + j, height, l);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                room.inverse[j + q] = inverse[q];
            }
        }
    }
    TOGETHER();
    return pivot;
}

/* V <- L^-T v, four entries at a time from the last on. */
LEAF void backward(const Room &room, double *v, int lane)
{
    for (int j = room.order - 4; j >= 0; j -= 4) {
        const double *first = room.a + start_of(j, room.rows) + j, *inverse = room.inverse + j;
        const double *second = first + room.rows - j, *third = second + room.rows - j;
        const double c3 = v[j + 3] * inverse[3];
        const double c2 = minus(v[j + 2], third[3], c3) * inverse[2];
        const double c1 = minus(minus(v[j + 1], second[3], c3), second[2], c2) * inverse[1];
        const double c0 =
            minus(minus(minus(v[j], first[3], c3), first[2], c2), first[1], c1) * inverse[0];
        TOGETHER();
        for (int k = lane; k < j; k += TEAM) {
            const double *column = room.a + start_of(k, room.rows) + j;
            const double more = minus(minus(v[k], column[0], c0), column[1], c1);
            v[k] = minus(minus(more, column[2], c2), column[3], c3);
        }
        if (lane == 0) {
            v[j] = c0, v[j + 1] = c1, v[j + 2] = c2, v[j + 3] = c3;
        }
        TOGETHER();
    }
}

/* Row i, below the block, <- y'L^-T, by one lane. */
LEAF void forward(const Room &room, int i)
{
    const int rows = room.rows, row[1] = {i};
    for (int j = 0; j < room.order; j += 4) {
        const int height = rows - j;
        double *own = room.a + start_of(j, rows), c[1][4], l[4][4], inverse[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            c[0][q] = own[q * height + i], inverse[q] = room.inverse[j + q];
        }
        subtract_left(room.a, rows, j, row, 0, 0, c);
        load_tile(own + j, height, l);
        solve_tile(l, inverse, c[0]);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            own[q * height + i] = c[0][q];
        }
    }
}

/* Σ_k of the products of two rows */
LEAF double inner(const Room &room, int i, int j)
{
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
    const double *column = room.a;
    for (int k = 0; k < room.order; k += 4) {
        const int height = room.rows - k;
        s0 = fma(column[i], column[j], s0);
        s1 = fma(column[height + i], column[height + j], s1);
        s2 = fma(column[2 * height + i], column[2 * height + j], s2);
        s3 = fma(column[3 * height + i], column[3 * height + j], s3);
        column += 4 * height - 4;
    }
    return (s0 + s1) + (s2 + s3);
}

/* Write g' = (L^-1 D b)' into rows from `g` on, one for each derivative; return as `generate`.

   Which are wanted: bit k of `wanted` stands for base k. */
LEAF bool differentiate(const Places &places, const Model &model, const Table &table, int wanted,
                        const Room &room, long long place, int g, int lane)
{
    const int order = room.order, m = places.m;
    double *b = room.b, *changes = room.changes, own[SHARE][CHANGES];
    bool misses = false;
    for (int q = lane; q < order; q += TEAM) {
        b[q] = q == order - 1 ? 1.0 : 0.0;
        for (int f = 0; f < CHANGES; ++f) {
            changes[f * order + q] = 0.0;
        }
    }
    TOGETHER();
    backward(room, b, lane);
#pragma unroll
    for (int r = 0; r < SHARE; ++r) {
#pragma unroll
        for (int f = 0; f < CHANGES; ++f) {
            own[r][f] = 0.0;
        }
    }
    /* the pairs of `generate`; within a step, no two have the same j */
    for (int step = 1; step <= order / 2; ++step) {
#pragma unroll
        for (int r = 0; r < SHARE; ++r) {
            const int i = lane + r * TEAM;
            if (i < (2 * step < order ? order : order / 2)) {
                const int j = i + step < order ? i + step : i + step - order;
                const Between pair = between(places, model, table, room, i, j);
                misses |= missed(pair);
                const double weight = model.variance * room.keep[i] * room.keep[j];
                const double here = b[i], there = b[j];
#if TIMED
#pragma unroll
                for (int f = 0; f < CHANGES; ++f) {
                    if (wanted >> (1 + DIAGONALS + f) & 1) {
                        const long long *field = places.clock.fields + 4 * f;
                        double value = polynomial_of(table, (int)field[1], pair.row, pair.t);
                        value *= of_time(places.clock, (int)field[0], pair);
                        if (field[2] >= 0) {
                            const double more =
                                polynomial_of(table, (int)field[3], pair.row, pair.t);
                            value += more * of_time(places.clock, (int)field[2], pair);
                        }
                        value *= weight;
                        own[r][f] = fma(value, there, own[r][f]);
                        changes[f * order + j] = fma(value, here, changes[f * order + j]);
                    }
                }
#else
                const bool by_turn = wanted >> (BASES - 2) & 1;
                double value = 0.0;
                int which = 1;
                /* by the shape parameters and by distance */
#pragma unroll
                for (int f = 0; f <= SHAPES; ++f) {
                    if (wanted >> (1 + DIAGONALS + f) & 1) {
                        value = polynomial_of(table, which++, pair.row, pair.t) * weight;
                        own[r][f] = fma(value, there, own[r][f]);
                        changes[f * order + j] = fma(value, here, changes[f * order + j]);
                    }
                }
                if (by_turn) {
                    /* r ρ'(r) u'Mu/u'u, for u = 0 too */
                    value /= pair.square + 1e-300;
#pragma unroll
                    for (int f = SHAPES + 1; f < CHANGES; ++f) {
                        const double *map = model.maps + 3 * (f - SHAPES - 1);
                        double form = map[0] * pair.d0 * pair.d0;
                        form = fma(map[1] * pair.d0, pair.d1, form);
                        form = fma(map[2] * pair.d1, pair.d1, form) * value;
                        own[r][f] = fma(form, there, own[r][f]);
                        changes[f * order + j] = fma(form, here, changes[f * order + j]);
                    }
                }
#endif
            }
        }
        TOGETHER();
    }
#pragma unroll
    for (int r = 0; r < SHARE; ++r) {
        const int i = lane + r * TEAM;
        if (i < order) {
            double *column = room.a + start_of(i, room.rows) + g;
            /* L^-1 S b = L'b = e */
            column[0] = i == order - 1 ? 1.0 : 0.0;
            const long long j =
                i == order - 1 ? place : i < m ? places.neighbours[place * m + i] : -1;
            for (int k = 0; k < DIAGONALS; ++k) {
                column[1 + k] = j < 0 ? 0.0 : places.diagonals[k * places.n + j] * b[i];
            }
#pragma unroll
            for (int f = 0; f < CHANGES; ++f) {
                column[1 + DIAGONALS + f] = changes[f * order + i] + own[r][f];
            }
        }
    }
    TOGETHER();
    for (int f = 1 + lane; f < BASES; f += TEAM) {
        if (wanted >> f & 1) {
            forward(room, g + f);
        }
    }
    TOGETHER();
    return misses;
}

/* Add the traces, the information and the changes of whitened products, as laid out in
   kernel.likelihood_slice, of a block whose rows from `g` on are the derivatives'. */
LEAF void add_derivatives(const Room &room, int count, int wanted, int g, int lane, double *out)
{
    const int order = room.order;
    const double *end = room.a + start_of(order - 1, room.rows);
    for (int p = lane; p < BASES * (BASES + count); p += TEAM) {
        const int j = p / (BASES + count), k = p % (BASES + count), c = k - BASES;
        const bool pair = c < 0;
        if (!(wanted >> j & 1) || (pair && (k > j || !(wanted >> k & 1)))) {
            continue;
        }
        const int row = pair ? g + k : order + c;
        const double change = minus(inner(room, g + j, row), 0.5 * end[g + j], end[row]);
        if (pair) {
            out[BASES + j * BASES + k] += change;
            if (k == 0) out[j] += end[g + j];
        } else {
            double *sums = out + BASES * (1 + BASES) + (j * count + c) * count;
            for (int e = 0; e < count; ++e) {
                sums[e] = minus(sums[e], change, end[order + e]);
            }
        }
    }
}

/* Add the sums of `size` places that follow each other to row `which` of the sums.

   A row has what kernel.likelihood_slice writes, and then n - i for the first place i without a
   factor, or 0. Beyond the last place or row a team goes along, and adds nothing. */
template <bool DERIVATIVES>
LEAF void reduce(const Places &places, const Model &model, const Table &table, int wanted,
                 const Room &room, int lane, long long which, long long parts, long long size,
                 double *sums, long long length, int *misses)
{
    const int order = room.order, count = places.count, g = order + count;
    double *out = sums + (which < parts ? which : 0) * length;
    for (long long k = 0; k < size; ++k) {
        const long long place = which * size + k;
        const long long i = place < places.n ? place : places.n - 1;
        const bool live = which < parts && place < places.n;
        gather(places, model, i, room, lane);
        bool missed = generate(places, model, table, room, lane);
        const double pivot = factor(room, g, lane);
        const double *end = room.a + start_of(order - 1, room.rows);
        if (live) {
            for (int p = lane; p < count * count; p += TEAM) {
                const int c = p / count, e = p % count;
                if (e <= c) out[1 + p] = fma(end[order + c], end[order + e], out[1 + p]);
            }
            if (lane == 0) {
                const bool proper = pivot > 0.0 && pivot <= 1.7976931348623157e308;
                if (proper) out[0] += log(pivot);
                else out[length - 1] = fmax(out[length - 1], (double)(places.n - i));
            }
        }
        if (DERIVATIVES) {
            missed |= differentiate(places, model, table, wanted, room, i, g, lane);
            if (live) add_derivatives(room, count, wanted, g, lane, out + 1 + count * count);
        }
        /* whoever writes writes the same */
        if (missed && live) *misses = 1;
        TOGETHER();
    }
}

/* Write the weights and the variance of a place's conditional mean: L'λ = L_i with 0 and 1 for the
   place itself, whose own pivot may be 0. */
LEAF void weigh(const Places &places, const Model &model, const Table &table, const Room &room,
                int lane, long long place, double *weights, double *variances, int *misses)
{
    const int end = room.order - 1, m = places.m;
    const long long i = place < places.n ? place : places.n - 1;
    const bool live = place < places.n;
    gather(places, model, i, room, lane);
    const bool missed = generate(places, model, table, room, lane);
    const double pivot = factor(room, room.order, lane);
    for (int k = lane; k < room.order; k += TEAM) {
        room.b[k] = k < end ? room.a[start_of(k, room.rows) + end] : 0.0;
    }
    if (lane == 0) room.inverse[end] = 1.0;
    TOGETHER();
    backward(room, room.b, lane);
    if (live) {
        for (int q = lane; q < m; q += TEAM) {
            weights[i * m + q] = room.b[q];
        }
        if (lane == 0) variances[i] = pivot;
        if (missed) *misses = 1;
    }
    /* the next place's gather writes nothing that is read here */
}

#endif
