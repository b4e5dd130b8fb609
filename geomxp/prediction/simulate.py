"""Draws of Gaussian fields, unconditional or given the observations of a fit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.base import Covariance
from ..covariance.neighbours import nearest, tree_of
from ..covariance.noise import without_noise
from ..covariance.ordering import order_points
from ..covariance.responses import Data
from ..data.arrays import checked_inputs
from ..data.observations import Observations
from ..errors import (
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    check_one_of,
    check_whole,
)
from ..estimation.hurdle import HurdleFit, check_hurdle_columns
from ..estimation.result import Fit, design_of
from ..likelihood.exact import Exact, check_is_method
from ..likelihood.factors import check_memory
from ..likelihood.latent import bare
from ..likelihood.replicates import Groups, sufficient
from ..likelihood.trend import centred, fit_trend
from ..linalg import recursive
from ..runtime.devices import blas_threads, free_memory, gpu_memory, require_memory, resolve
from ..runtime.progress import Line
from ..vecchia.blocks import Blocks, Neighbours
from ..vecchia.factor import draw_onwards
from .mixtures import MeanScale
from .supports import (
    check_of,
    neighbour_count,
    new_columns,
    of_rows,
    own_coefficients,
    targets_of,
)

if TYPE_CHECKING:
    from .._typing import ArrayLike, Columns, Floats, Of
    from ..data.observations import NewLocations
    from ..likelihood.base import Likelihood

RESPONSE_STREAM, HURDLE_STREAM = 2, 3
"""Streams of the random numbers of values given the field, and of the seeds of a hurdle's parts."""

CHUNK_NODES = 2000
"""Nodes of blocks at which a field is drawn jointly."""

LOCATION_LAYOUTS = ("grid", "jittered", "uniform")


@gpu_memory()
def simulate(
    model: Covariance | Fit | HurdleFit,
    locations: NewLocations,
    draws: int = 1,
    seed: int = 0,
    *,
    metric: str = "euclidean",
    method: Likelihood | None = None,
    covariates: Columns | None = None,
    of: Of | None = None,
    time: ArrayLike | None = None,
    variable: ArrayLike | None = None,
    error_variance: ArrayLike | None = None,
    trials: ArrayLike | str | None = None,
    offset: ArrayLike | str | None = None,
    exposure: ArrayLike | str | None = None,
    progress: bool = True,
) -> Floats:
    """Draw a Gaussian field: observations of a zero-mean one, or a fit's field given its data.

    With a model: z = L w with Σ = L L' and w independent standard normal, back-transformed if the
    model has a transformation; with a response, values given the field (of="observation"), or their
    means (of="field"). With a fit: the field and its trend given the observations. Each draw has
    its own trend coefficients, so that draws have the mean and the joint covariance of kriging. At
    an observed location without a nugget all draws equal the observation to the bit. Draws of a
    hurdle are products of those of presence and amount.

    Parameters
    ----------
    model : Covariance, Fit or HurdleFit
    locations : (n, d) array_like or Observations
        With a fit also a frame or a grid, as of `geomxp.predict`.
    draws : int
    seed : int
        Seed of NumPy's PCG64: the same seed gives the same draws (to rounding on another machine).
    metric : str
        Metric of an array of locations; with a fit that of its observations.
    method : Exact or Vecchia, optional
        `Exact()` if not given, or the fit's own. Exact draws need the covariance matrix of all
        locations, and with a fit also that of its observations. `Vecchia` draws each location
        given its nearest ones.
    covariates : (n, q) array_like, optional
        For a fit whose trend has covariates.
    of : {"field", "observation"}, optional
        The noiseless field, or new observations, with independent noise of the nugget's and the
        known errors' variance; nugget covariances correlate it at one location. If not given,
        observations of a model and the field of a fit.
    time : float or (n,) array_like, optional
        Times, for a space-time model; one number for all locations is enough.
    variable : int or (n,) array_like of int, optional
        Variables to draw, for a multivariate model; with a fit as of `geomxp.predict`.
    error_variance : float or (n,) array_like, optional
        Known error variances of the new observations, in addition to the nugget; 0 if not given.
    trials, offset, exposure : float, (n,) array_like or str, optional
        Of values of a response, as of `geomxp.predict`.
    progress : bool
        Show a progress line after two seconds if standard error is a terminal.

    Returns
    -------
    (draws, n) ndarray

    Raises
    ------
    InvalidInput
        For arguments that are not valid, and locations that do not suit the fit.
    NotPositiveDefinite
        If Σ has no Cholesky factor in FP64, because the field is very smooth or locations are
        very close.
    NotEnoughMemory

    Examples
    --------
    >>> from geomxp import Matern
    >>> draws = simulate(Matern(1.0, 0.1, 0.5), np.random.default_rng(0).random((9, 2)), draws=2)
    >>> draws.shape
    (2, 9)
    """
    check_whole("seed", seed, 0, inf)
    if isinstance(model, HurdleFit):
        check_hurdle_columns(model.presence.model.response.link, trials, offset, exposure)
        seeds = np.random.SeedSequence([seed, HURDLE_STREAM]).generate_state(2).tolist()
        options = {"method": method, "covariates": covariates, "of": of, "time": time}
        options |= {"variable": variable, "error_variance": error_variance}
        options |= {"offset": offset, "exposure": exposure}
        presence, amount = (
            simulate(part, locations, draws, own, **options, progress=progress)
            for part, own in zip(model.parts.values(), seeds, strict=True)
        )
        return presence * amount
    if not isinstance(model, (Covariance, Fit)):
        kind = type(model).__name__
        raise InvalidInput(f"`model` must be a covariance model or a Fit. Got {kind}.")
    if method is not None:
        check_is_method(method)
    check_whole("draws", draws)
    if of is not None:
        check_of(of)
    with Line("drawing", shown=progress):
        if isinstance(model, Fit):
            inputs, covariates, table = targets_of(
                model, locations, covariates, time, variable, error_variance
            )
            _check_room(draws, len(inputs))
            of = of or "field"
            new = {"trials": trials, "offset": offset, "exposure": exposure}
            trials, offset = new_columns(model, table, len(inputs), **new)
            drawn = _conditional(model.gaussian, inputs, draws, seed, method, covariates, of)
            drawn = drawn if offset is None else drawn + offset
            return _measured(drawn, model.model, inputs, of, seed, trials)
        locations = locations.inputs if isinstance(locations, Observations) else locations
        inputs = checked_inputs(locations, metric, time, variable, error_variance)
        check_size(len(inputs), draws, method)
        if not trials is offset is exposure is None:
            raise InvalidInput(
                "`trials`, `offset` and `exposure` are for draws from a fit: leave them out."
            )
        field = bare(model)
        drawn = _unconditional(field, inputs, draws, seed, method, of)
        return _measured(drawn, model, inputs, of or "observation", seed)


def scale_of(model):
    """Return the transformation of the field to the scale of the values; None if it is on it."""
    if model.response is None or model.response.normal_noise is not None:
        return model.transform
    return MeanScale(model.response)


def _measured(drawn, model, inputs, of, seed, trials=None):
    """Return draws of the field with its noise, (draws, n), as means of values or as new values."""
    response = model.response
    if response is None or of == "field":
        return _back_transformed(drawn, scale_of(model), inputs)
    random = np.random.default_rng([seed, RESPONSE_STREAM])
    if response.normal_noise is not None:
        drawn = drawn + np.sqrt(response.normal_noise) * random.standard_normal(drawn.shape)
        return _back_transformed(drawn, model.transform, inputs)
    data = Data(np.zeros(drawn.shape[1]), trials=trials)
    return np.array([response.draw(data, eta, random) for eta in drawn])


def _back_transformed(drawn, transform, inputs):
    """Return draws, (draws, n), on the scale of the values; warn if they have no moments."""
    if transform is None:
        return drawn
    transform = transform.of(inputs.variable)
    values, order = transform.inverse(drawn), transform.moment_order(drawn.var(axis=0))
    infinite = int(np.isinf(values).sum())
    lost = [f"{infinite:,} of {values.size:,} values are infinite"] if infinite else []
    for k, name in ((1, "mean"), (2, "variance")):
        count = int((order <= k).sum())
        if count:
            lost.append(f"the {name} does not exist at {count:,} of {len(order):,} locations")
    if lost:
        rule = transform.moment_rule or "values exceed the largest number of FP64"
        warnings.warn(
            f"{', '.join(lost)} ({rule}). Summarize draws by quantiles, not by means.",
            GeomxpWarning,
            # of the caller of `simulate`, which has a decorator
            stacklevel=4,
        )
    return values


def _check_room(draws, n):
    """Raise `NotEnoughMemory` if draws at n locations do not fit."""
    # random numbers, their products with the factor, and a copy
    needed, free = 3 * 8 * int(draws) * n, free_memory()
    most = free // (24 * max(n, 1))
    remedy = (
        f"draw at most {most:,} at a time (draws=, --draws), each time with another seed (seed=, "
        "--seed)"
        if most
        else f"draw at fewer locations, at most {free // 24:,}"
    )
    require_memory(f"{draws:,} draws at {n:,} locations need", needed, remedy, free)


def check_size(n: int, draws: int = 1, method: Likelihood | None = None) -> None:
    """Raise `NotEnoughMemory` if a field at n locations cannot be drawn here.

    Nothing has been allocated then. By `Exact()` if no method is given.
    """
    check_whole("n", n)
    check_whole("draws", draws)
    if method is None:
        free = free_memory()
        # below bytes_for(n, 1)
        most = int((free / 8.3) ** 0.5)
        remedy = f"draw at most {most:,} locations (--n {round(most**0.5 - 0.5) ** 2})"
        if 500 * n < free:
            remedy += ", or each given its nearest ones: gx.simulate(…, method=gx.Vecchia(30))"
        check_memory(n, 1, resolve("cpu"), remedy=remedy)
    _check_room(draws, n)


def _check_any(inputs):
    if not len(inputs):
        raise InvalidInput("`locations` must hold at least one location.")


def _unconditional(model, inputs, draws, seed, method, of):
    """Return draws of a zero-mean field with its noise, or without, (draws, n)."""
    _check_any(inputs)
    if of == "field":
        model = without_noise(model)
        inputs = replace(inputs, error_variance=None)
    if model.noise(inputs).of_locations.any():
        return _with_replicates(model, inputs, draws, seed, method)
    return _drawn(model, inputs, draws, seed, method)


def _drawn(model, inputs, draws, seed, method):
    """Return draws of a zero-mean field whose noise is that of each input, (draws, n)."""
    evaluator = (method or Exact()).prepare(inputs)
    with blas_threads(len(inputs)):
        factor = evaluator.factorize(model)
        white = np.random.default_rng(seed).standard_normal((draws, len(inputs)))
        return np.ascontiguousarray(factor.multiply(np.asfortranarray(white.T)).T)


def averages_of_draws(fit, blocks, covariates, draws, seed):
    """Return averages of back-transformed conditional draws over blocks, and their moment order.

    The averages are (draws, m). The order, (m,), is the least one of the points of a block, with
    the variances of the draws.
    """
    gaussian = fit.gaussian
    rows = None if covariates is None or not fit.trend.needs else of_rows(covariates, len(blocks))
    result, order = np.zeros((draws, len(blocks))), np.full(len(blocks), np.inf)
    for nodes, weights, owners in blocks.pieces(CHUNK_NODES):
        inputs = blocks.at_nodes(nodes, owners)
        transform = scale_of(fit.model).of(inputs.variable)
        known = None if rows is None else rows[owners]
        # the draws of blocks in different pieces are independent
        z = _conditional(gaussian, inputs, draws, [seed, int(owners[0])], None, known, "field")
        np.add.at(result.T, owners, weights[:, None] * transform.inverse(z).T)
        np.minimum.at(order, owners, transform.moment_order(z.var(axis=0)))
    return result, order


def _with_replicates(model, inputs, draws, seed, method):
    """Return draws whose replicates share microscale variation and the like, (draws, n)."""
    groups = Groups.of_inputs(inputs)
    places = replace(inputs[groups.first], error_variance=None, replicates=None)
    noise = model.noise(inputs)
    # what replicates share is the noise of the locations
    others = [name for name, shared in zip(noise.names, noise.shared, strict=False) if not shared]
    of_locations = model.replace(**dict.fromkeys(others, 0.0))
    field = _drawn(of_locations, places, draws, seed, method)[:, groups.of]
    white = np.random.default_rng([seed, 1]).standard_normal(field.shape)
    return field + np.sqrt(noise.unshared) * white


@blas_threads(0)
def _conditional(fit, inputs, draws, seed, method, covariates, of):
    """Return draws of the field and its trend given the observations of a fit, (draws, m)."""
    _check_any(inputs)
    design = fit.trend.design(inputs.locations, covariates, inputs.variable)
    own_design = design_of(fit)
    fit = fit if method is None else replace(fit, method=method)
    random, n = np.random.default_rng(seed), len(fit.observations)
    once, back = _distinct(fit.observations, fit.model, inputs)
    draw = _from_nearest if fit.method.approximate else _from_all
    betas, values = draw(fit, inputs[once], own_design, random, draws)
    field = np.ascontiguousarray(betas @ design.T + values[back].T)
    # at observed locations z + (x₀ - x)'β, exact to the bit: covariates may differ there
    known = np.flatnonzero(back < n)
    rows = back[known]
    field[:, known] = fit.observations.values[rows] + betas @ (design[known] - own_design[rows]).T
    noise = fit.model.noise(inputs)
    if of == "observation" and noise.variances.any():
        field += noise.draw(random, draws)
    return field


def _from_all(fit, new, own_design, random, draws):
    """Draw β ~ N(β̂, (X'Σ⁻¹X)⁻¹) and k'Σ⁻¹(z - Xβ) + C w with CC' = K - k'Σ⁻¹k.

    Returns the coefficients, (draws, p), and the field minus its trend at the observations and the
    new locations, (n + k, draws).
    """
    observations, model, n = fit.observations, fit.model, len(fit.observations)
    evaluator = fit.method.prepare(observations, own_design, fit.reml)
    remedy = "draw with method=Vecchia(30), or at fewer locations"
    check_memory(max(n, len(new)), 3, evaluator.device, remedy=remedy)
    with blas_threads(max(n, len(new))):
        factor = evaluator.factorize(model)
        centre, start = centred(observations.values, own_design)
        trend = own_coefficients(fit, fit_trend(factor, centre, own_design, start))
        betas = trend.coefficients[:, None] + trend.root @ random.standard_normal(
            (own_design.shape[1], draws)
        )
        values = observations.values[:, None] - own_design @ betas
        if len(new):
            new = model.of_field(new)
            k = np.asfortranarray(model.matrix(observations.inputs, new))
            solved = factor.solve(np.asfortranarray(np.column_stack((centre, own_design))))
            mean = k.T @ (solved[:, :1] - solved[:, 1:] @ (betas - start[:, None]))
            rest = model.matrix(new, new) - factor.inner(k)
            noise = _root_times(rest, random.standard_normal((len(new), draws)))
            values = np.vstack((values, mean + noise))
    return betas.T, values


def _from_nearest(fit, new, own_design, random, draws):
    """As `_from_all`, each location given its nearest observations and locations drawn before it.

    The order is maximin, and β ~ N(β̂, Cov β̂).
    """
    model, count = fit.model, neighbour_count(fit, None, further=len(new))
    observations, own_design, of = _means_of(fit, own_design)
    n = len(observations)
    root = _root(fit.coefficient_covariance)
    betas = fit.coefficients + random.standard_normal((draws, len(root))) @ root.T
    residuals = observations.values[:, None] - own_design @ betas.T
    if not len(new):
        return betas, residuals[of]
    known = observations.inputs
    key, new = Neighbours(known, min(count, n)).key_of(model), model.of_field(new)
    points = new.points if new.time is None else model.neighbour_points(new, key)
    order = order_points(points, "maximin")
    new = new[order]
    both = known.with_rows_of(new)
    tree = tree_of(model.neighbour_points(both, key))
    # positions of rows in the tree
    at = np.empty(len(both), dtype=np.int64)
    at[tree.order] = np.arange(len(both))
    near = nearest(tree, model.neighbour_points(new, key), count, np.arange(n, len(both)))
    blocks = Blocks(model, both[tree.order], new)
    noise = np.zeros(len(both))
    noise[at[:n]] = model.noise(known).variances
    weights, variances = blocks.weights(near, noise, np.zeros(len(near)))
    if not np.isfinite(variances).all():
        raise NotPositiveDefinite(
            "the covariance matrix of the observations near a location is not positive "
            "definite in FP64: use fewer neighbours or a larger nugget."
        )
    y = np.empty((len(both), draws))
    y[at[:n]] = residuals
    y[at[n:]] = random.standard_normal((draws, len(new))).T
    draw_onwards(at[n:], near, weights, np.maximum(variances, 0.0), y)
    drawn = np.empty((len(new), draws))
    drawn[order] = y[at[n:]]
    return betas, np.vstack((residuals[of], drawn))


def _means_of(fit, design):
    """Return observations with one value for each location, their design, and each one's row."""
    groups = Groups.of_inputs(fit.observations.inputs, design)
    return *sufficient(fit.observations, design)[:2], groups.of


def _distinct(observations, model, inputs):
    """Return rows of the locations to draw, and the row of each location in (observations, drawn).

    A location is drawn once, and not if an observation without noise is there.

    Examples
    --------
    >>> import geomxp as gx
    >>> observations = gx.Observations([[0.0], [1.0], [3.0]], [1.0, 2.0, 0.5])
    >>> model = gx.Matern(1.0, 1.0, 0.5)
    >>> once, back = _distinct(observations, model, gx.Inputs(np.array([[2.0], [1.0], [2.0]])))
    >>> once.tolist(), back.tolist()
    ([0], [3, 1, 3])
    """
    n = len(observations)
    points = _points_of(model, inputs)
    _, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    back = n + np.arange(len(first))
    exact = model.noise(observations.inputs).variances == 0
    if exact.any():
        both = np.vstack((_points_of(model, observations.inputs), points[first]))
        different, at = np.unique(both, axis=0, return_inverse=True)
        at = at.reshape(-1)
        rows = np.full(len(different), n)
        rows[at[:n][exact]] = np.flatnonzero(exact)
        own = rows[at[n:]]
        back = np.where(own < n, own, n + np.cumsum(own == n) - 1)
        first = first[own == n]
    return first, back[inverse]


def _points_of(model, inputs):
    """Return points that are equal where inputs are, (n, k), with the time and the variable."""
    extra = [column for column in (inputs.time, inputs.variable) if column is not None]
    return np.column_stack([model.isotropic(inputs), *extra])


def _root(covariance):
    """Return a symmetric matrix A with AA' = covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def _root_times(covariance, white):
    """Return draws C w with CC' = covariance, by Cholesky, or else by eigenvalues.

    If the observations almost determine a field, its conditional covariance matrix is mostly
    rounding errors. Its symmetric root is the same on every machine, to the root of the rounding.
    """
    try:
        lower = recursive.potrf(np.array(covariance, order="F"))
    except NotPositiveDefinite:
        values, vectors = np.linalg.eigh(covariance)
        return vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ white))
    return np.tril(lower) @ white


def lay_out(n: int, layout: str = "jittered", seed: int = 0) -> Floats:
    """Return n locations in the unit square, (n, 2).

    "grid": cell centres of a square grid. "jittered": the same moved at random by up to 0.4 cells,
    as ExaGeoStat's synthetic data. "uniform": independent uniform.
    """
    check_whole("n", n)
    check_one_of("layout", layout, LOCATION_LAYOUTS)
    require_memory(
        f"a layout of {n:,} locations needs", 8 * 2 * 3 * n, "use fewer locations (n=, --n)"
    )
    # values drawn with the same seed use another stream
    random = np.random.default_rng([seed, 1])
    if layout == "uniform":
        return random.random((n, 2))
    side = round(n**0.5)
    if side * side != n:
        raise InvalidInput(
            f'layout="{layout}" needs a square number of locations. Got {n}; try {side * side}.'
        )
    cells = np.arange(side) + 0.5
    grid = np.stack(np.meshgrid(cells, cells, indexing="ij"), axis=-1).reshape(n, 2)
    if layout == "jittered":
        grid = grid + random.uniform(-0.4, 0.4, grid.shape)
    return grid / side
