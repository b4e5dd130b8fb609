"""The public API with valid, extreme and wrong arguments."""

import random
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import fuzzing
import mpmath
import numpy as np
import pytest
from fuzzing import JUNK, Made, arguments, attempt, call, check_numbers, made, target
from hypothesis import assume
from hypothesis import strategies as st

import geomxp as gx

CLASSES = (
    *("Matern", "Gaussian", "PoweredExponential", "Cauchy", "RationalQuadratic", "Spherical"),
    *("Wendland", "Anisotropy", "Exact", "Vecchia", "Observations", "Inputs"),
    *("uniform", "by_band", "by_tile_norm", "layered", "for_divergence"),
)


@pytest.mark.slow
@target(
    0.2,
    name=st.sampled_from(CLASSES),
    given=st.lists(st.one_of(JUNK, st.floats(), st.sampled_from((0.5, 1.0))), max_size=6),
    data=fuzzing.data,
    model=fuzzing.models,
)
def test_constructors(name, given, data, model):
    try:
        object_ = attempt(Made(name, tuple(given)).make)
    except TypeError as error:
        # Python's own error, for too many or too few arguments
        if "argument" not in str(error):
            raise
        return
    if name in ("Exact", "Vecchia") and object_ is not None:
        attempt(lambda: gx.log_likelihood(data.observations(), model.make(), object_))
        attempt(lambda: object_.describe(10))
    if isinstance(object_, gx.Covariance):
        attempt(lambda: object_(data.locations(), data.locations(), data.metric))
        attempt(str, object_)


# Log-likelihoods and an independent evaluation.


def shapes_of(model):
    """Return the shape parameters of a model."""
    return [getattr(model, parameter.name) for parameter in model.shapes] or [1.0]


def matern(r, nu):
    # mpmath needs ten times the time at whole numbers, where K_ν is a limit
    nu += mpmath.mpf(10) ** -25 if nu == int(nu) else 0
    return 2 ** (1 - nu) / mpmath.gamma(nu) * r**nu * mpmath.besselk(nu, r) if r < 1e5 else 0


def wendland(r, k, m):
    """Return ρ by equation 9 of Bevilacqua et al. (2019)."""
    if r >= 1:
        return 0
    scale = 2 ** (-2 * k - m) * mpmath.sqrt(mpmath.pi) * mpmath.gamma(2 * k + m + 1)
    scale /= mpmath.gamma(k + mpmath.mpf(0.5)) * mpmath.gamma(k + m + 1)
    z = 1 - r**2
    return scale * z ** (k + m) * mpmath.hyp2f1(m / 2, (m + 1) / 2, k + m + 1, z)


FORMULAS = {
    "matern": matern,
    "gaussian": lambda r: mpmath.exp(-(r**2)),
    "powered-exponential": lambda r, power: mpmath.exp(-(r**power)),
    "cauchy": lambda r, power, decay: (1 + r**power) ** (-decay / power),
    "rational-quadratic": lambda r, shape: (1 + r**2 / (2 * shape)) ** -shape,
    "spherical": lambda r: 1 - 1.5 * r + 0.5 * r**3 if r < 1 else 0,
    "wendland": wendland,
}


def correlation(model, h):
    """Return the correlation of a model at a distance, by its formula in mpmath."""
    r = h / mpmath.mpf(model.range)
    if r == 0:
        return mpmath.mpf(1)
    return mpmath.mpf(
        FORMULAS[model.family](r, *map(mpmath.mpf, shapes_of(model) if model.shapes else ()))
    )


def points_of(observations, model):
    """Return the points in the space of distances, as lists of mpf."""
    places = [[mpmath.mpf(float(x)) for x in row] for row in observations.locations]
    if observations.geographic:
        places = [on_sphere(*place) for place in places]
    if model.anisotropy is not None:
        angle, ratio = mpmath.radians(model.anisotropy.angle), mpmath.mpf(model.anisotropy.ratio)
        c, s = mpmath.cos(angle), mpmath.sin(angle)
        places = [[c * x + s * y, (c * y - s * x) / ratio] for x, y in places]
    return places


def on_sphere(longitude, latitude):
    x, y = mpmath.radians(longitude), mpmath.radians(latitude)
    c = mpmath.cos(y)
    return [6371 * c * mpmath.cos(x), 6371 * c * mpmath.sin(x), 6371 * mpmath.sin(y)]


def distance(a, b, arc):
    h = mpmath.sqrt(mpmath.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    return 2 * 6371 * mpmath.asin(min(h / (2 * 6371), 1)) if arc else h


def moved(model, h, rho, error):
    """Return how much ρ changes with a distance of this error."""
    if h > 0 and error < 100 * np.finfo(float).eps * h:
        # r dρ/dr is at most a few units for all of the models
        return float(5 * error / h)
    ends = [correlation(model, end) for end in (max(h - error, 0), h + error)]
    return float(max(abs(rho - end) for end in ends))


def independent(observations, model):
    """Return ℓ in 40 digits, and the error that FP64 may make; None where that has no bound.

    Rounding changes Σ by E with |E| ≤ c n u |Σ| and by that of the distances; then log|Σ| changes
    by at most n κ ε and r'Σ⁻¹r by κ ε times itself, with ε = ‖E‖/‖Σ‖ and the condition κ of Σ.
    """
    n, u = len(observations), np.finfo(float).eps
    points, arc = points_of(observations, model), observations.metric == "great-circle"
    matrix, scatter, largest = mpmath.matrix(n, n), 0.0, 0.0
    for i in range(n):
        for j in range(i + 1):
            h = distance(points[i], points[j], arc)
            rho = correlation(model, h)
            matrix[i, j] = matrix[j, i] = model.variance * rho
            if i != j:
                size = max(abs(x) for x in (*points[i], *points[j]))
                scatter = max(scatter, moved(model, h, rho, 4 * u * (h + size)) if h else 0.0)
        noise = model.nugget
        if observations.error_variance is not None:
            noise += float(observations.error_variance[i])
        matrix[i, i] += noise
        largest = max(largest, noise)
    microscale, first = model.microscale or 0.0, observations.inputs.first_rows()
    for i, j in zip(*np.nonzero(first[:, None] == first), strict=True):
        # replicates share it
        matrix[int(i), int(j)] += microscale
    total = model.variance + largest + microscale
    values, jacobian = observations.values, 0.0
    if model.transform is not None:
        jacobian = float(model.transform.log_jacobian(values).sum())
        values = model.transform.transform(values)
    try:
        factor = mpmath.cholesky(matrix)
    except ValueError:
        return None, None
    white = []
    for i, x in enumerate(values.tolist()):
        white.append((x - mpmath.fsum(factor[i, k] * white[k] for k in range(i))) / factor[i, i])
    form = mpmath.fsum(x * x for x in white)
    determinant = 2 * mpmath.fsum(mpmath.log(factor[i, i]) for i in range(n))
    value = jacobian - (n * mpmath.log(2 * mpmath.pi) + determinant + form) / 2
    scaled = np.array([[float(matrix[i, j] / total) for j in range(n)] for i in range(n)])
    least = np.linalg.eigvalsh(scaled)[0]
    epsilon = 10 * n * u + n * float(scatter)
    if least <= 0 or epsilon / least > 0.01:
        return value, None
    share = n * epsilon / least
    error = share + epsilon * n / least * float(form) + 8 * n * u * abs(float(value))
    return value, float(error)


@pytest.mark.slow
@target(
    0.25,
    data=st.one_of(fuzzing.data, fuzzing.odd_data),
    model=st.one_of(fuzzing.models, fuzzing.odd_models),
    tile=st.sampled_from((None, 1, 3, 8)),
    stretch=st.integers(0, 3),
)
def test_log_likelihoods_are_those_of_an_independent_evaluation(data, model, tile, stretch):
    observations, model = attempt(data.observations), attempt(model.make)
    assume(observations is not None and model is not None)
    if stretch:
        # a range that suits the locations
        unit = 1e4 if observations.geographic else max(data.scale, 1e-300)
        model = attempt(model.replace, range=model.range * unit) or model
    found = attempt(gx.log_likelihood, observations, model, gx.Exact(tile=tile))
    if found is None:
        return
    check_numbers(found)
    shapes = shapes_of(model)
    if min(shapes) < 1e-2 or max(shapes) > 60:
        # the formulas lose more than 40 digits, or need much time
        return
    with mpmath.workdps(40):
        value, error = independent(observations, model)
    if error is not None and abs(value) < 1e300:
        difference = abs(float(value) - found.log_likelihood)
        assert difference <= error, f"off by {difference:.3g}, {error:.3g} allowed: {value}"


# Verbs of models.

OTHER = {"metric": (st.just("euclidean"), st.sampled_from(("chordal", "great-circle")))}
PLACES = tuple(data.map(lambda data: data.locations()) for data in fuzzing.DATA)
PLANE = fuzzing.data.map(lambda data: np.abs(data.locations()[:, :2]) % 50)
PLACES = (PLANE, PLACES[1])
VERBS = {
    "log_likelihood": arguments(
        {"observations": fuzzing.DATA, "model": fuzzing.MODEL},
        {"method": fuzzing.METHOD, "trend": fuzzing.TREND, "reml": st.booleans()},
    ),
    "kl_divergence": arguments(
        {"model": fuzzing.MODEL, "locations": fuzzing.DATA, "method": fuzzing.METHOD},
        {**OTHER, "trend": fuzzing.TREND},
    ),
    "compare": arguments(
        {"model": fuzzing.MODEL, "locations": PLACES, "methods": st.just([gx.Exact(tile=2)])},
        OTHER,
    ),
    "kl_between": arguments({"p": fuzzing.MODEL, "q": fuzzing.MODEL, "locations": PLACES}, OTHER),
    "simulate": arguments(
        {"model": fuzzing.MODEL, "locations": PLACES},
        {
            **OTHER,
            "draws": st.integers(1, 3),
            "seed": st.integers(0, 9),
            "method": fuzzing.METHOD,
            "of": st.sampled_from(("field", "observation")),
        },
    ),
    "mloe_mmom": arguments(
        {
            "true": fuzzing.MODEL,
            "approximated": fuzzing.MODEL,
            "locations": PLACES,
            "new_locations": st.just(np.array([[0.3, 0.4], [0.5, 0.1]])),
        },
        {
            "metric": OTHER["metric"],
            "neighbours": st.integers(1, 5),
            "method": fuzzing.METHOD,
            "of": st.sampled_from(("field", "observation")),
        },
    ),
}


@pytest.mark.slow
@target(
    0.25,
    case=st.sampled_from(sorted(VERBS)).flatmap(lambda verb: st.tuples(st.just(verb), VERBS[verb])),
)
def test_verbs_of_models(case):
    verb, given = case
    found = attempt(call, getattr(gx, verb), given)
    if verb == "log_likelihood" and found is not None and found.outcome.ending != "COMPUTED":
        return
    check_numbers(found)
    attempt(str, found)


@target(
    0.05,
    method=st.one_of(fuzzing.plain_exact, fuzzing.odd_methods),
    given=arguments({"locations": (st.integers(1, 5000), st.integers())}, {"model": fuzzing.MODEL}),
)
def test_plans(method, given):
    exact = attempt(method.make)
    if exact is not None:
        plan = attempt(call, exact.plan, given)
        if plan is not None:
            str(plan), plan.to_dict()


# Fits and what is done with them.

SHARE = st.tuples(fuzzing.ordinary(0.01, 0.5), fuzzing.ordinary(0.6, 10.0))
FIT = {
    "method": fuzzing.METHOD,
    "family": st.sampled_from(("matern", "gaussian", "spherical", "cauchy", "wendland")),
    "start": (
        st.dictionaries(st.sampled_from(("range", "variance")), fuzzing.ordinary(0.05, 1.0)),
        st.dictionaries(st.sampled_from(("range", "nugget", "power")), fuzzing.positive()),
    ),
    "bounds": (
        st.dictionaries(st.sampled_from(("range", "nugget")), SHARE, max_size=1),
        st.just({"range": (1e-300, 1e300)}),
    ),
    "trend": fuzzing.TREND,
    "reml": st.booleans(),
    "anisotropy": st.booleans(),
    "microscale": st.sampled_from((None, None, True, False)),
    "transform": fuzzing.TRANSFORMS,
    "search": st.sampled_from(("scoring", "bobyqa", "lbfgs", "slsqp")),
    "starts": st.integers(1, 2),
    "tolerance": (fuzzing.ordinary(1e-8, 1e-2), fuzzing.positive()),
    "seed": st.integers(0, 9),
}
ALWAYS = {
    "observations": fuzzing.DATA,
    "evaluations": st.sampled_from((5, 40, 300)),
    "fixed": (
        st.sampled_from(({"smoothness": 0.5}, {"smoothness": 0.5, "nugget": 0.1}, {})),
        st.dictionaries(st.sampled_from(("range", "nugget", "power")), fuzzing.positive()),
    ),
    "raise_on_failure": st.just(False),
}


@pytest.mark.slow
@target(0.1, given=arguments(ALWAYS, FIT))
def test_fits(given):
    fit = attempt(call, gx.fit, {"progress": False, **given})
    if fit is None:
        return
    attempt(str, fit)
    attempt(fit.to_frame)
    if fit.outcome.good:
        check_numbers(fit)
        check_numbers(fit.to_dict())
        attempt(fit.confidence_intervals)
        attempt(fit.derived)
        saved_and_loaded(fit)
    else:
        attempt(gx.predict, fit, fit.observations.locations[:2])


def saved_and_loaded(fit):
    """Save and load a fit, which must be the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fit.json")
        attempt(fit.save, path)
        if path.exists():
            again = attempt(gx.Fit.load, path)
            assert again is not None, "a saved fit cannot be loaded"
            assert again.model == fit.model
            assert again.log_likelihood == fit.log_likelihood


NEW = (st.just(np.array([[0.3, 0.4], [0.5, 0.1]])), PLACES[1])
COUNT, FLAG = st.integers(1, 9), st.booleans()
OF_FIT = {
    "predict": arguments(
        {"new_locations": NEW},
        {
            "block": st.sampled_from(((0.1, 0.2), 0.1, (1e300, 1.0))),
            "discretisation": st.integers(1, 3),
            "neighbours": COUNT,
            "local_trend": FLAG,
        },
    ),
    "simulate": arguments(
        {"locations": NEW},
        {
            "draws": st.integers(1, 3),
            "method": fuzzing.METHOD,
            "of": st.sampled_from(("field", "observation")),
        },
    ),
    "leave_one_out": st.just({}),
    "cross_validate": arguments(
        {"folds": st.integers(2, 5)},
        {"blocks": fuzzing.positive(), "seed": st.integers(0, 3), "refit": FLAG},
    ),
    "predict_raster": arguments(
        {"cells": st.integers(2, 6)},
        {
            "bounds": st.sampled_from(((0, 0, 1, 1), (1, 1, 0, 0), (0, 0, 1e300, 1e-300))),
            "neighbours": COUNT,
            "block": FLAG,
        },
    ),
    "bootstrap": arguments({"draws": st.integers(2, 3)}, {"seed": st.integers(0, 3)}),
    "information": st.sampled_from(({}, {"kind": "observed"}, {"kind": "expected"}, {"kind": 3})),
    "likelihood_ratio_test": st.just({}),
}


def fitted(data, model, method, trend, free=False):
    """Return a fit whose parameters are those of the model; None if geomxp refuses it."""
    observations, model, method = data.observations(), made(model), made(method)
    fixed = tuple(name for name in model.parameters() if not free or name not in ("variance",))
    return gx.fit(observations, model, method, fixed=fixed, trend=trend, progress=False)


FITTED = st.one_of(
    st.fixed_dictionaries(
        {
            "data": fuzzing.data.map(lambda data: replace(data, d=2, metric="euclidean")),
            "model": fuzzing.models,
            "method": fuzzing.methods,
            "trend": st.sampled_from(("zero", "constant", "linear")),
            "free": FLAG,
        }
    ),
    st.fixed_dictionaries(
        {
            "data": fuzzing.odd_data,
            "model": st.one_of(fuzzing.models, fuzzing.odd_models),
            "method": st.one_of(fuzzing.methods, fuzzing.odd_methods),
            "trend": fuzzing.trends,
            "free": FLAG,
        }
    ),
)


@pytest.mark.slow
@target(
    0.12,
    about=FITTED,
    case=st.sampled_from(sorted(OF_FIT)).flatmap(
        lambda verb: st.tuples(st.just(verb), OF_FIT[verb])
    ),
)
def test_verbs_of_fits(about, case):
    fit = attempt(fitted, **about)
    if fit is None:
        return
    check_numbers(fit)
    verb, given = case
    first = {"simulate": "model", "likelihood_ratio_test": "restricted"}.get(verb, "fit")
    if verb == "likelihood_ratio_test":
        given = {**given, "full": fit}
    found = attempt(call, getattr(gx, verb), {first: fit, **given})
    check_numbers(found)
    attempt(str, found)
    attempt(fit.confidence_intervals)
    saved_and_loaded(fit)


PLOTS = (
    *("contours", "coverage", "divergences", "histogram", "influence_of_precision"),
    *("model_weights",),
    *("normal_quantiles", "overview", "pit", "precision_map", "prediction_error_map"),
    *("prediction_map", "profile", "profiles", "residuals", "residuals_against_prediction"),
    *("residuals_map", "standardised_residuals_map", "timeline", "values_map", "variogram"),
)


@target(
    0.05,
    about=FITTED,
    name=st.sampled_from(PLOTS),
    first=st.one_of(st.just("fit"), st.just("fit"), st.just("observations"), JUNK),
    rest=st.lists(st.one_of(JUNK, st.sampled_from(("range", "variance"))), max_size=2),
    options=st.dictionaries(
        st.sampled_from(("ax", "points", "level", "cells", "most")), JUNK, max_size=1
    ),
)
def test_plots(about, name, first, rest, options):
    fit = attempt(fitted, **about)
    if fit is None:
        return
    given = first
    if isinstance(first, str) and first in ("fit", "observations"):
        given = fit if first == "fit" else fit.observations
    try:
        attempt(getattr(gx.plots, name), given, *rest, **options)
    except TypeError as error:
        if "argument" not in str(error):
            raise


def test_the_independent_evaluation_is_exact():
    data = fuzzing.Data("uniform", 5, 2, "euclidean", 1.0, 0.0, "normal", 1.0, 0, 3)
    observations, model = data.observations(), gx.Matern(2.0, 0.3, 0.5, 0.1)
    value, error = independent(observations, model)
    h = np.linalg.norm(observations.locations[:, None] - observations.locations, axis=-1)
    sigma = 2.0 * np.exp(-h / 0.3) + 0.1 * np.eye(5)
    z = observations.values
    expected = -0.5 * (
        5 * np.log(2 * np.pi) + np.linalg.slogdet(sigma)[1] + z @ np.linalg.solve(sigma, z)
    )
    assert float(value) == pytest.approx(expected, abs=1e-12)
    assert 0 < error < 1e-10


@target(0.1, number=st.integers().map(lambda number: other_thread_draws() or number))
def test_another_thread_may_draw_random_numbers_meanwhile(number):
    pass


def other_thread_draws():
    """Let a thread do what that of Dask's scheduler does at times."""
    other = threading.Thread(target=random.random)
    other.start()
    other.join()
