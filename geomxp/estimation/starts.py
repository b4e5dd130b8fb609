"""Where searches start: every basin of a likelihood that a coarse grid shows.

With a weak signal the likelihood has two kinds of maxima: a broad one, and one at ranges near the
shortest distances. A grid over practical range, nugget and shapes is evaluated by Vecchia's
approximation (exactly for few locations), Fisher scoring climbs from its local maxima, and the
search starts at the distinct ends near the best one.
"""

import warnings
from dataclasses import replace
from math import inf

import numpy as np
import scipy

from ..covariance.distance import between, metric_of
from ..covariance.noise import variances_in
from ..covariance.ordering import order_points
from ..covariance.parameter import FIELD, name_of
from ..errors import GeomxpError, GeomxpWarning, InvalidInput, MissingPackage
from ..likelihood.base import profile_variance
from ..likelihood.exact import Exact
from ..likelihood.latent import RESPONSE_COLUMNS, bare, data_of
from ..likelihood.trend import ordinary_residuals
from ..likelihood.vecchia import Vecchia
from .names import NUGGET, RANGE, VARIANCE
from .parameters import ParameterTable, is_compact
from .problem import (
    EXACT_GRID_LOCATIONS,
    NEARBY_STEP,
    Monitor,
    Problem,
    fingerprint,
    of_unit_variance,
)
from .search import INITIAL_STEP

GRID_NEIGHBOURS, LAST_CLIMB_NEIGHBOURS = 15, 50
"""Neighbours of Vecchia's approximation: on the grid, and for the last climb of many locations."""

SUBSAMPLE_RUNS, RUN_LOCATIONS = 250, 8
"""Subsample of many locations: number of runs, and of successive locations along Hilbert's curve in
each, so that long and short distances occur."""

LAST_CLIMB_LOCATIONS = 1500
"""Locations above which the last climb has more neighbours if shapes are free."""

MOST_GRID_PEAKS, PEAK_MARGIN = 14, 6.0
"""Limits on the number of local maxima of the grid from which to climb, and on how far they are
below the best one."""

RIVAL_MARGIN = 2.0
"""A signal is weak if another maximum of the approximation, or its values at a third of the ranges,
are this far below the best one at most."""

MOST_EXPENSIVE_STARTS = 3
"""Limit on the number of starts where one evaluation is expensive."""

TREND_SAMPLE_LOCATIONS, LEAST_VARIANCE_SHARE = 60, 1e-8
"""Number of locations that give the variance about the trend; least ratio of this to σ²."""

PROMISING_MARGIN = 12.0
"""The neighbours of grid models within this log-likelihood of the best one are evaluated."""

CHECKED_RANGES = 12
"""Approximate number of practical ranges at which the likelihood checks an approximate grid."""

HELD_CLIMB_EVALUATIONS, FREE_CLIMB_EVALUATIONS, CLIMB_TOLERANCE = 40, 12, 1e-2
"""Limits on the evaluations of a climb with the shapes held, and with all parameters free, where
each evaluation needs a table of the correlation; tolerance of both."""

LEAST_FIELD_RATIO = 1e-3
"""A field of less than this multiple of the nugget is noise."""

DROPPED_END_MARGIN, EQUAL_ENDS_DISTANCE, MOST_BASINS = 3.0, 0.05, 4
"""Ends of climbs this far below the best one are dropped, and those closer than that in value and
in all coordinates are equal; limit on the number of distinct ones."""

BARE_ENDS_DISTANCE, BARE_END_MARGIN = 0.3, 0.5
"""Ends of climbs without a nugget this close to another in all coordinates are the same; those this
far below the best one are dropped."""

START_SMOOTHNESS = 0.8
"""Smoothness of variables in a start of several."""

RANDOM_START_DEVIATION, LEAST_START_NUGGET_RATIO = 0.7, 0.01
"""Of random starts: standard deviation of the logarithms of parameters, and the least nugget of the
model that they are near, in units of its variance."""

LEAST_COMMON_LOCATIONS = 10
"""Least number of common locations of two variables that give a correlation to start from, and of
values of one that give its model."""

REMEMBERED_MODELS = 64
"""Limit on the models of single variables that are kept for later fits of other families."""

LEAST_WORKING_WEIGHT, LONGEST_WORKING_STEP = 1e-3, 2.0
"""Least weight of a working value, in units of the median, and its largest distance from η."""

START_MARGIN = 3.0
"""Starts of a response this far below the best one are left out, unless more are asked for."""

DISPERSION_FACTORS = tuple(np.geomspace(1 / 300, 300, 29).tolist())
"""Dispersions of a response that are compared with the noise of working values, in units of its
start value."""

CONNECTING_PARTS, THIRD_BASIN_EXCESS = (1 / 3, 2 / 3), 0.01
"""Parts of the way from an end to a better one, at which ℓ is compared with both; excess over a
maximum that tells of a third basin."""


def searched(problem, start, count, seed, evaluations, tasks):
    """Yield the end of a search from each start: (log-likelihood, model or None, limited).

    `start` has values for some of the free parameters; `count` is the least number of starts;
    `evaluations` is the limit for each; the problem's monitor records them in the order of the
    starts. `tasks` (None: this process) run the searches.
    """
    starts = starting_models(problem, start, count, seed)
    # an end that turns out to be the best one is searched from again
    few = len(problem.observations) <= EXACT_GRID_LOCATIONS
    starts = [(*start, few or k == 0) for k, start in enumerate(starts)]
    problem.monitor.limit += evaluations * max(len(starts) - count, 0)
    if tasks is None:
        least, most = problem.monitor.usual
        problem.monitor.usual = len(starts) * least, len(starts) * most
        for start in starts:
            yield _from(problem, *start, min(evaluations, problem.monitor.left))
        return
    common = (
        problem.observations,
        problem.design,
        problem.reml,
        problem.method,
        problem.table,
        problem.tolerance,
        problem.choice,
        evaluations,
    )
    line = problem.monitor.line
    line.expect(len(starts), "starts")
    for end, *recorded, complaint in tasks.over(_alone, common, starts, line.advance):
        problem.monitor.join(*recorded)
        problem.complaint = complaint or problem.complaint
        yield end
    line.expect(None, "")


def _from(problem, model, near, patient, evaluations):
    """Search from one start; `near` tells whether it is the maximum of an approximation.

    `patient`: see `Problem.search`.
    """
    problem.ends = True
    step = NEARBY_STEP if near else INITIAL_STEP
    end = problem.search(problem.table, model, step=step, evaluations=evaluations, patient=patient)
    problem.ends = False
    return end


def _alone(common, start):
    """Return the end of a search from one start, its evaluations and its last complaint.

    The search solves a problem of its own, in the process of a worker.
    """
    observations, design, reml, method, table, tolerance, choice, evaluations = common
    monitor = Monitor(evaluations)
    problem = Problem(observations, design, reml, method, table, monitor, tolerance, choice)
    end = _from(problem, *start, evaluations)
    return end, monitor.count, monitor.rises, problem.complaint


def starting_models(problem, start, count, seed):
    """Return (model, whether it is the maximum of an approximation) of each start.

    They are the distinct basins, and more of the grid if `count` asks for more.
    """
    if problem.table.model.response is not None:
        return _of_response(problem, start, count, seed)
    if problem.table.model.variables > 1:
        return [(model, True) for model in _of_variables(problem, start, count, seed)]
    sizes, grid = problem.table.grid(start)
    grid = _rescaled_for_trend(problem, grid, start)
    if len(grid) == 1 and not problem.evaluator.expensive:
        return [(grid[0], False)]
    rough = _surrogate(problem, seed)
    if rough is None:
        return [(model, False) for model in grid if model is not None][:count]
    surface = _surface(rough, sizes, grid)
    # along one shape each first: another shape needs another table of the correlation
    peaks = [grid[k] for k in _peaks(surface)]
    ends = _distinct(problem.table, (_climbed(rough, model, held=True) for model in peaks))
    ends = [_climbed(rough, model) for _, model, _ in ends[: 2 * MOST_BASINS]]
    ends = _separated(rough, _distinct(problem.table, ends))
    if ends and rough.method.approximate and _is_long(problem):
        ends = _refined(problem, ends[:MOST_BASINS])
    models = [model for _, model, _ in ends[:MOST_BASINS]]
    starts = _worth(problem, models, _missed(problem, rough, surface, grid, models))
    if ends and NUGGET not in start:
        starts += [(model, True) for model in _bare(rough, sizes, grid, ends)]
    if not starts or count > len(starts):
        order = np.argsort(-surface, axis=None, kind="stable")
        more = [(grid[k], False) for k in order if grid[k] is not None]
        starts += more[: count - len(starts)]
    return starts


def _of_response(problem, start, count, seed):
    """Return starts for a response: those of Gaussian working values about the trend.

    z = η + g/W with error variances 1/W, at an η near each value, with the first two derivatives g
    and -W of its log density. The response's own parameters start at values that suit the data.
    """
    table, observations, method = problem.table, problem.observations, problem.method
    data, _ = data_of(observations, table.model.transform)
    response = table.model.response.with_values(table.fixed | start)
    own = {name for part in (response, table.model.transform) if part for name in part.parameters()}
    held = {name: value for name, value in table.fixed.items() if name not in own}
    given = {name: value for name, value in start.items() if name not in own}
    parts = {name: value for name, value in table.model.parameters().items() if name in own}
    parts |= {name: value for name, value in (table.fixed | start).items() if name in own}
    field, noise = bare(table.model), response.noise_parameter
    if set(field.parameters()) <= set(held | given):
        return [(table.model.replace(**(held | given | parts)), False)]
    noises = {} if not noise or noise in table.fixed | start else _noises(data, response)
    if noises:
        # noise in place of the dispersion: as little of that as can be, and a nugget
        response = response.with_values({noise: min(noises, key=noises.get)})
        nuggets = {p.name for p in variances_in(field) if held.get(p.name) == 0}
        held = {name: value for name, value in held.items() if name not in nuggets}
    twin = _working(observations, data, response)
    own_table = ParameterTable(
        field,
        held,
        {name: box for name, box in table.bounds.items() if name not in own},
        twin,
        table.variance,
        table.extent,
    )
    gaussian = Problem(
        twin, problem.design, False, method, own_table, Monitor(10**9), CLIMB_TOLERANCE
    )
    starts, values = [], []
    for model, near in starting_models(gaussian, given, count, seed):
        own, more = {}, []
        if noises:
            # the nugget is the response's, or half of it where it is estimated too
            variances = [p for p in variances_in(field) if p.group == NUGGET]
            found = {p.name: model.parameters()[p.name] for p in variances}
            own = {name: 0.0 if name in nuggets else x / 2 for name, x in found.items()}
            shares = [x if name in nuggets else x / 2 for name, x in found.items()]
            wanted = min(noises.values()) + np.mean(shares)
            own[noise] = min(noises, key=lambda x: abs(np.log(noises[x] / wanted)))
            more = sorted((x for x in noises if noises[x] > noises[own[noise]]), key=noises.get)
        model = replace(model, response=response, transform=table.model.transform)
        model = model.replace(**(parts | own))
        model, value = _with_mode(problem, table.within(model) or model, noise, more)
        starts.append((model, near))
        values.append(value)
    order = sorted(range(len(values)), key=lambda k: -values[k])
    best = values[order[0]]
    return [starts[k] for k in order if k in order[:count] or values[k] > best - START_MARGIN]


def _with_mode(problem, model, name, dispersions):
    """Return a model and its log-likelihood, with the first dispersion for which it has one."""
    value = _counted(problem, model)
    for dispersion in dispersions:
        if np.isfinite(value):
            break
        model = model.replace(**{name: dispersion})
        model = problem.table.within(model) or model
        value = _counted(problem, model)
    return model, value


def _noises(data, response):
    """Return the variance 1/W of the noise about η, by values of the dispersion."""
    parameter, found = response.parameter(response.noise_parameter), {}
    for factor in DISPERSION_FACTORS:
        value = factor * parameter.value
        with np.errstate(all="ignore"):
            other = response.with_values({parameter.name: value})
            w = -other.derivatives(data, other.guess(data)).eta[1]
        w = w[np.isfinite(w) & (w > 0)]
        if len(w):
            found[value] = 1.0 / float(np.median(w))
    return found


def _working(observations, data, response):
    """Return observations of working values, with their error variances."""
    eta = response.guess(data)
    with np.errstate(all="ignore"):
        slopes = response.derivatives(data, eta)
    g, w = slopes.eta[0], -slopes.eta[1]
    some = w[np.isfinite(w) & (w > 0)]
    least = LEAST_WORKING_WEIGHT * (float(np.median(some)) if len(some) else 1.0)
    w = np.where(np.isfinite(w), np.maximum(w, least), least)
    steps = np.clip(
        np.where(np.isfinite(g), g, 0.0) / w, -LONGEST_WORKING_STEP, LONGEST_WORKING_STEP
    )
    z = eta + (0.0 if response.of_values else steps)
    if observations.total_offset is not None:
        z = z - observations.total_offset
    with warnings.catch_warnings():
        # the observations have been checked already
        warnings.simplefilter("ignore", GeomxpWarning)
        return replace(
            observations,
            values=z,
            error_variance=1.0 / w,
            source={},
            **dict.fromkeys(RESPONSE_COLUMNS),
        )


def _of_variables(problem, start, least, seed):
    """Return starts for several variables: each of them alone, then their correlations.

    Correlations are those of the residuals at common locations, for the fields without nuggets.
    Smoothness and range of one variable alone may be poorly determined: the smoothness of the
    second start is `START_SMOOTHNESS`; further starts, up to `least`, are random models near the
    first.
    """
    table, observations = problem.table, problem.observations
    given, count = table.fixed | start, table.model.variables
    if set(table.parameters) <= set(given):
        return [table.model.replace(**given)]
    with warnings.catch_warnings():
        # the observations have been checked already
        warnings.simplefilter("ignore", GeomxpWarning)
        z = problem.evaluator.values.at(table.model.transform).z
        observations = replace(observations, values=z, lower=None, upper=None, source={})
    marginals, usual, residuals = [], [], np.zeros(len(observations))
    for i in range(count):
        rows = np.flatnonzero(observations.variable == i)
        one = _alone_variable(problem, observations, rows, given, i)
        held = {"smoothness": START_SMOOTHNESS} | given
        usual.append(_alone_variable(problem, observations, rows, held, i))
        design = problem.design[rows]
        residuals[rows] = ordinary_residuals(observations.values[rows], design)
        marginals.append(one)
    dimensions = metric_of(observations.metric).dimensions(observations.dimensions)
    starts, random, noisy = [], np.random.default_rng(seed), bool(table.covariances)
    others = ([_moved(one, random) for one in marginals] for _ in range(least - 2))
    for each in (marginals, usual, *others):
        rho = _common_correlations(observations, residuals, each, noisy)
        model = type(table.model).from_marginals(each, rho, dimensions)
        model = replace(model, transform=table.model.transform, anisotropy=table.model.anisotropy)
        if table.model.nugget_covariance is not None:
            # noise as correlated as the fields are
            model = model.with_nugget_correlations(rho if noisy else np.eye(count))
            boxes = [
                (name, table.bounds[name]) for name in table.covariances if name in table.bounds
            ]
            values = model.parameters()
            model = model.replace(**{name: np.clip(values[name], *box) for name, box in boxes})
        model = model.replace(**given)
        model = model if table.valid(model) else model.with_room(table.free)
        starts += [model] if table.valid(model) else []
    return starts or [table.model.replace(**given)]


def _alone_variable(problem, observations, rows, given, i):
    """Return the Matérn model that fits one variable best; a guess for few values."""
    extent, kind = problem.table.extent, problem.table.model.family_alone()
    usual = kind.from_parameters({p.name: p.value for p in kind.declared})
    units = {"value²": problem.table.variance, "length": extent.longest / 8}
    units["time"] = (extent.lags or (1.0, 1.0))[1] / 8
    guess = usual.replace(
        **{p.name: units[p.unit] for p in usual.table if p.unit in units and p.role == FIELD}
    )
    if len(rows) < LEAST_COMMON_LOCATIONS:
        return guess
    observations = observations.of_variable(observations.variable_labels[i])
    design = problem.design[rows]
    design = design[:, np.abs(design).max(axis=0, initial=0.0) > 0]
    held = {
        name: given[key]
        for name in guess.parameters()
        for key in (name_of(name, (i,)), name)
        if key in given
    }
    mark = fingerprint(
        observations,
        design,
        problem.reml,
        sorted(held.items()),
        guess.parameters(),
        sorted(observations.extra()),
    )
    # another thread may clear them
    known = _alone_known.get(mark)
    if known is not None:
        return known
    values = ordinary_residuals(observations.values, design)
    table = ParameterTable(usual, held, {}, observations, float(np.mean(values**2)))
    method = Exact() if len(observations) <= EXACT_GRID_LOCATIONS else Vecchia(GRID_NEIGHBOURS)
    alone = Problem(
        observations, design, problem.reml, method, table, Monitor(10**9), CLIMB_TOLERANCE
    )
    ends = [end for end in searched(alone, {}, 1, 0, 10**6, None) if end[1] is not None]
    model = max(ends, key=lambda end: end[0])[1] if ends else guess
    if len(_alone_known) >= REMEMBERED_MODELS:
        _alone_known.clear()
    _alone_known[mark] = model
    return model


_alone_known = {}
"""Models of single variables, by the fingerprint of data and settings: fits of several families to
the same variables share them."""


def _moved(model, random):
    """Return a random model near that of one variable."""
    values = model.parameters()
    values[NUGGET] = max(model.nugget, LEAST_START_NUGGET_RATIO * model.variance)
    factors = np.exp(RANDOM_START_DEVIATION * random.standard_normal(len(values)))
    moved = {name: x * factor for (name, x), factor in zip(values.items(), factors, strict=True)}
    for p in model.table:
        moved[p.name] = min(moved[p.name], p.upper)
    return model.replace(**moved)


def by_place(observations, values, p):
    """Return values by the first row of each location and by variable, (n, p); NaN for none."""
    inputs = replace(observations.inputs, variable=None, error_variance=None, replicates=None)
    first = inputs.first_rows()
    result = np.full((len(observations), p), np.nan)
    result[first, observations.variable] = values
    return result


def _common_correlations(observations, residuals, marginals, noisy=False):
    """Return the correlations of the variables at common locations, (p, p); 0 where few.

    They are those of the fields; or, if `noisy`, of fields and nuggets alike.
    """
    p = len(marginals)
    rho, places = np.eye(p), by_place(observations, residuals, p)
    for i in range(p):
        for j in range(i):
            products = places[:, i] * places[:, j]
            products = products[np.isfinite(products)]
            if len(products) >= LEAST_COMMON_LOCATIONS:
                size = np.sqrt(marginals[i].variance * marginals[j].variance)
                size += np.sqrt(marginals[i].nugget * marginals[j].nugget) if noisy else 0.0
                rho[i, j] = rho[j, i] = np.clip(products.mean() / size, -1.0, 1.0)
    return rho


def _rescaled_for_trend(problem, grid, start):
    """Return the models of a grid, with larger variances where ranges are beyond the extent.

    At such ranges the trend absorbs most of the field's variance, so that the variance of the
    residuals is only a share of σ².
    """
    table, longest = problem.table, problem.table.extent.longest
    given = {**table.bounds, **start}
    if not {VARIANCE, RANGE} <= set(table.free) or VARIANCE in given or table.anisotropic:
        return grid
    if not table.model.of_distance:
        return grid
    rows = np.unique(
        np.linspace(0, len(problem.observations) - 1, TREND_SAMPLE_LOCATIONS).astype(int)
    )
    observations, (basis, _) = problem.observations, np.linalg.qr(problem.design[rows])
    left, shares, result = len(rows) - basis.shape[1], {}, []

    def share(model):
        """Return the share of the field's variance that the trend does not absorb."""
        points = model.isotropic(observations.inputs[rows], observations.metric)
        matrix = model.correlation(between(points, points, observations.metric))
        rest = np.trace(matrix) - np.einsum("ij,ij->", basis, matrix @ basis)
        return max(rest / left, LEAST_VARIANCE_SHARE)

    for model in grid:
        if left > 0 and model is not None:
            values = model.parameters()
            field = tuple([x for name, x in values.items() if name not in (VARIANCE, NUGGET)])
            if field not in shares:
                shares[field] = share(model) if model.practical_range() > longest else 1.0
            if shares[field] != 1.0:
                model = model.replace(**{VARIANCE: values[VARIANCE] / shares[field]})
        result.append(model)
    return result


def _bare(problem, sizes, grid, ends):
    """Return models without a nugget at local maxima of ℓ there, for few locations.

    They are the ends of climbs from a grid. The nugget of the other `ends` may be far from 0, and ℓ
    may fall between. Those near one of them without a nugget are left out.
    """
    if problem.method.approximate or NUGGET not in problem.vanishing(problem.table):
        return []
    table = problem.table.holding(**{NUGGET: 0.0})
    bare = _rough(problem, problem.observations, problem.design, problem.method, table)
    sizes, share = list(sizes), len(sizes) - 2
    models = np.array(grid, dtype=object).reshape(sizes).take([0], axis=share).ravel()
    models = [None if model is None else model.replace(nugget=0.0) for model in models]
    sizes[share] = 1
    surface, best = _surface(bare, sizes, models), ends[0][0]
    if not surface.max() > best - PEAK_MARGIN:
        return []
    peaks = [models[k] for k in _peaks(surface) if surface.flat[k] > best - PEAK_MARGIN]
    found = _distinct(table, (_climbed(bare, model, held=True) for model in peaks))
    found = [_climbed(bare, model) for _, model, _ in found[: 2 * MOST_BASINS]]
    coordinates = table.search_coordinates()
    known = [end for end in ends[:MOST_BASINS] if end[1].nugget == 0]
    if is_compact(table.model):
        # another maximum may be near
        known = [end for end in known if end[0] > best - EQUAL_ENDS_DISTANCE]

    def near(model):
        """Whether an end without a nugget is near."""
        x = coordinates.point(model)
        away = [np.abs(x - coordinates.point(other)) / coordinates.scales for _, other, _ in known]
        return any(distance.max(initial=0.0) < BARE_ENDS_DISTANCE for distance in away)

    found = [end for end in _distinct(table, found) if end[0] > best - BARE_END_MARGIN]
    return [model for _, model, _ in found[:MOST_BASINS] if not near(model)]


def _worth(problem, ends, missed):
    """Return the starts: (model, whether it is the maximum of an approximation) of each.

    Where searches are long, only those are kept whose likelihood is near the best one.
    """
    starts = [(model, True) for model in ends] + [(model, False) for model in missed]
    if (
        len(problem.observations) <= EXACT_GRID_LOCATIONS
        or len(starts) < 2
        or not problem.evaluator.expensive
    ):
        return starts
    values = np.array([_counted(problem, model) for model, _ in starts])
    best = np.argsort(-values, kind="stable")[:MOST_EXPENSIVE_STARTS]
    worth = [starts[k] for k in best if values[k] > values.max() - 1]
    # a field without variance is part of every model
    return worth[:1] + [start for start in worth[1:] if not _is_noise(start[0])]


def _is_noise(model):
    """Whether the nugget is nearly all of the variance."""
    return model.nugget > model.largest_variance / LEAST_FIELD_RATIO


def _counted(problem, model):
    """Return `_value` by the likelihood itself; it does not count against the limit."""
    problem.monitor.count += 1
    problem.monitor.limit += 1
    return _value(problem, model)


def _missed(problem, rough, surface, grid, ends):
    """Return models of the grid at local maxima of ℓ that its approximation does not show.

    With a weak signal the approximation has several maxima along the practical range, or is flat,
    and may miss the largest one of ℓ.
    """
    exact = (
        problem.evaluator.expensive
        and len(problem.observations) <= 2 * SUBSAMPLE_RUNS * RUN_LOCATIONS
    )
    if not exact or not rough.method.approximate or RANGE not in problem.table.free:
        return []
    # the best model of each practical range
    rows = np.moveaxis(surface, -3, 0).reshape(surface.shape[-3], -1)
    index = np.moveaxis(np.arange(surface.size).reshape(surface.shape), -3, 0).reshape(rows.shape)
    best = index[np.arange(len(rows)), rows.argmax(axis=1)]
    profile = rows.max(axis=1)
    rivals = profile > profile.max() - RIVAL_MARGIN
    if np.count_nonzero(_local(profile) & rivals) < 2 and 3 * rivals.sum() < len(profile):
        return []
    stride = max(round(len(profile) / CHECKED_RANGES), 1)
    values, models = np.full(len(profile[::stride]), -inf), {}
    for k in np.flatnonzero(profile[::stride] > profile.max() - PEAK_MARGIN).tolist():
        models[k] = grid[best[k * stride]]
        values[k] = _counted(problem, models[k])
    known = [(np.log(model.practical_range()), _counted(problem, model)) for model in ends]
    ranges = {k: np.log(model.practical_range()) for k, model in models.items()}
    spacing = max((ranges[k] - ranges[k - 1] for k in models if k - 1 in models), default=0.0)
    peaks = _local(values)

    def shown(k):
        """Whether an end near this range has a larger value."""
        return any(abs(ranges[k] - x) <= spacing and value >= values[k] for x, value in known)

    return [model for k, model in models.items() if peaks[k] and not shown(k)]


def _local(values):
    """Return a mask of the local maxima."""
    return values >= scipy.ndimage.maximum_filter(values, size=3, mode="nearest")


def _value(problem, model):
    """Return ℓ of a model of the grid, at the best variance; -inf where it has none."""
    if model is None:
        return -inf
    try:
        if problem.table.profiled:
            value = profile_variance(problem.evaluator(of_unit_variance(model)))[1]
        else:
            value = problem.evaluator(model).log_likelihood
    except GeomxpError:
        return -inf
    return value if np.isfinite(value) else -inf


def _surface(problem, sizes, grid):
    """Return ℓ of the grid's models, an array of `sizes`; -inf where one is invalid or skipped.

    Every other model along each axis comes first, then the neighbours of local maxima and of
    models within `PROMISING_MARGIN` of the best one, until there are no more.
    """
    surface, known = np.full(sizes, -inf), np.zeros(sizes, dtype=bool)
    coarse = np.zeros(sizes, dtype=bool)
    coarse[tuple(slice(None, None, 2) for _ in sizes)] = True

    def evaluate(wanted):
        for k in np.flatnonzero(wanted):
            surface.flat[k] = _value(problem, grid[k])
        known[wanted] = True

    evaluate(coarse)
    if not np.isfinite(surface).any():
        evaluate(~known)
    good = surface >= scipy.ndimage.maximum_filter(surface, size=5, mode="nearest")
    while True:
        good = (good | (surface > surface.max() - PROMISING_MARGIN)) & np.isfinite(surface)
        wanted = scipy.ndimage.maximum_filter(good, size=3, mode="nearest") & ~known
        if not wanted.any():
            return surface
        evaluate(wanted)


def _peaks(surface):
    """Return the local maxima over practical range and nugget for each shape, best first.

    The axes are shapes, practical range, share of the nugget, and anisotropy.
    """
    *_, lengths, shares, angles = surface.shape
    rows = surface.reshape(-1, lengths, shares, angles)
    profile = rows.max(axis=3)
    higher = scipy.ndimage.maximum_filter(profile, size=(1, 3, 3), mode="nearest")
    chosen = (profile >= higher) & (profile > profile.max() - PEAK_MARGIN)
    numbers = np.arange(surface.size).reshape(rows.shape)
    numbers = np.take_along_axis(numbers, rows.argmax(axis=3)[..., None], axis=3)[..., 0][chosen]
    flat = surface.ravel()
    return numbers[np.argsort(-flat[numbers], kind="stable")][:MOST_GRID_PEAKS].tolist()


def _climbed(problem, model, held=False):
    """Return (value, model, converged) of Fisher scoring; with its shapes held if asked for."""
    table, values = problem.table, model.parameters()
    if held:
        table = table.holding(**{name: values[name] for name in table.shapes})
    if not table.free:
        return _value(problem, model), model, True
    return problem.score(table, model, HELD_CLIMB_EVALUATIONS if held else FREE_CLIMB_EVALUATIONS)


def _distinct(table, ends):
    """Return the distinct ends near the best one, best first."""
    ends = sorted((end for end in ends if np.isfinite(end[0])), key=lambda end: -end[0])
    coordinates, kept = table.search_coordinates(), []
    for end in ends:
        value, x = end[0], coordinates.point(end[1])
        known = any(
            other[0] - value < EQUAL_ENDS_DISTANCE
            and np.abs((x - y) / coordinates.scales).max() < 1.0
            for other, y in kept
        )
        if value > ends[0][0] - DROPPED_END_MARGIN and not known:
            kept.append((end, x))
    return [end for end, _ in kept]


def _separated(problem, ends):
    """Return the ends of different basins: those from which ℓ falls on the way to each better one.

    A climb that stops early on a curved ridge ends in the basin of another. Where ℓ rises above a
    maximum on the way there is a third basin, which a search from the end finds. Covariances with
    compact support keep all ends: maxima along their range lie too close together to see.
    """
    if is_compact(problem.table.model):
        return ends
    coordinates, kept = problem.table.search_coordinates(), []

    def apart(end, better):
        """Whether ℓ falls on the way from an end to a better one, or rises above a maximum."""
        x, y = (coordinates.point(model) for _, model, _ in (end, better))
        between = (coordinates.model(x + part * (y - x)) for part in CONNECTING_PARTS)
        values = [_value(problem, model) for model in between]
        value, _, converged = better
        return min(values) < end[0] or (converged and max(values) > value + THIRD_BASIN_EXCESS)

    for end in ends:
        if all(apart(end, better) for better in kept):
            kept.append(end)
    return kept


def _is_long(problem):
    """Whether a search takes long: exact, of many locations, with free shapes or differences."""
    many = len(problem.observations) > LAST_CLIMB_LOCATIONS and not problem.method.approximate
    return many and (bool(problem.table.shapes) or problem.evaluator.differences)


def _refined(problem, ends):
    """Return the ends of climbs from these, by an approximation with more neighbours.

    The climbs take much less time than the evaluations that they save.
    """
    method = Vecchia(LAST_CLIMB_NEIGHBOURS)
    fine = _rough(problem, problem.observations, problem.design, method)
    return _distinct(problem.table, [_climbed(fine, model) for _, model, _ in ends]) or ends


def _surrogate(problem, seed):
    """Return the problem by Vecchia's approximation, on some of the locations if they are many.

    For few locations, and without numba, it is exact, in FP64 and in one memory. None if the
    design of the locations is singular.
    """
    observations, design = problem.observations, problem.design
    n, p = design.shape
    if n <= EXACT_GRID_LOCATIONS + p and not problem.method.approximate:
        return _rough(problem, observations, design, Exact(on=problem.evaluator.device.name))
    if len(observations) > 2 * SUBSAMPLE_RUNS * RUN_LOCATIONS:
        observations, design = _part(problem, _spread(observations))
        if design is None:
            return None
    try:
        return _rough(problem, observations, design, Vecchia(GRID_NEIGHBOURS))
    except (MissingPackage, InvalidInput):
        pass
    rows = np.arange(n)
    if n > EXACT_GRID_LOCATIONS + p:
        rows = np.sort(
            np.random.default_rng(seed).choice(n, EXACT_GRID_LOCATIONS + p, replace=False)
        )
    observations, design = _part(problem, rows)
    if design is None:
        return None
    return _rough(problem, observations, design, Exact(on=problem.evaluator.device.name))


def _rough(problem, observations, design, method, table=None):
    """Return a problem with a coarse tolerance and the same parameters, or those of a table."""
    table = table or problem.table
    # its evaluations are not limited
    rough = Problem(
        observations, design, problem.reml, method, table, Monitor(10**9), CLIMB_TOLERANCE
    )
    rough.evaluator.be_rough()
    return rough


def _part(problem, rows):
    """Return some of the observations and their design; (None, None) if its rank is lower."""
    design = problem.design[rows]
    scaled = design / np.abs(design).max(axis=0, initial=1e-300)
    if np.linalg.matrix_rank(scaled) < design.shape[1]:
        return None, None
    with warnings.catch_warnings():
        # the user has been warned about all coordinates
        warnings.simplefilter("ignore")
        return problem.observations.subset(rows), design


def _spread(observations):
    """Return the rows of `SUBSAMPLE_RUNS` runs of observations, spread over all.

    The observations of a run are near in space (and time).
    """
    points = observations.inputs.points
    if observations.time is not None:
        # with extents alike
        lag = np.ptp(points, axis=0).max() / np.ptp(observations.time)
        points = np.column_stack((points, observations.time * lag))
    order = order_points(points, "hilbert")
    first = np.linspace(0, len(order) - RUN_LOCATIONS, SUBSAMPLE_RUNS).astype(np.int64)
    return np.sort(order[first[:, None] + np.arange(RUN_LOCATIONS)].ravel())
