"""Bounds of rounding errors, against extended precision, mpmath and other tilings."""

import warnings

import mpmath
import numpy as np
import pytest

import geomxp as gx
from geomxp.likelihood.rounding import WARNED_LIKELIHOOD_ERROR, Rounding
from geomxp.tiles.assemble import covariance_matrix

pytestmark = pytest.mark.filterwarnings("ignore:the covariance matrix is ill-conditioned")

extended = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double is not wider than FP64"
)


def random_cases(seed, count, most, smoothness=None):
    """Yield random observations and models, most of them ill-conditioned."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        n = int(random.integers(4, most))
        places = random.random((n, 2))
        shape = random.integers(3)
        if shape == 0:
            centres = random.random((1 + n // 12, 2))[random.integers(1 + n // 12, size=n)]
            places = centres + random.standard_normal((n, 2)) * 10.0 ** random.uniform(-5, -1)
        elif shape == 1:
            places[:, 1] = 0.0
        nu = 10.0 ** random.uniform(-0.7, 1.2) if smoothness is None else random.choice(smoothness)
        variance = 10.0 ** random.uniform(-3, 3)
        nugget = variance * 10.0 ** random.uniform(-15, -1) if random.random() < 0.8 else 0.0
        model = gx.Matern(variance, 10.0 ** random.uniform(-2, 1), float(nu), nugget)
        values = random.standard_normal(n) * np.sqrt(variance) * 10.0 ** random.uniform(-2, 2)
        yield gx.Observations(places, values), model


def evaluations(seen, model, methods):
    for method in methods:
        try:
            yield gx.log_likelihood(seen, model, method)
        except gx.NotPositiveDefinite:
            continue


def in_long_double(sigma, values):
    """Return -2ℓ - n log 2π, None where Σ has no factor in extended precision."""
    lower, half = sigma.astype(np.longdouble), values.astype(np.longdouble)
    logs = np.longdouble(0)
    for j in range(len(lower)):
        pivot = lower[j, j] - lower[j, :j] @ lower[j, :j]
        if not pivot > 0:
            return None
        root = np.sqrt(pivot)
        lower[j + 1 :, j] = (lower[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / root
        half[j] = (half[j] - lower[j, :j] @ half[:j]) / root
        logs += np.log(pivot)
    return logs + half @ half


def constant(seen):
    return len(seen) * np.log(2 * np.pi)


TILINGS = (gx.Exact(), gx.Exact(tile=3), gx.Exact(tile=4))
MIXED = tuple(
    gx.Exact(rule, tile=4)
    for rule in (
        *(gx.by_tile_norm(accuracy) for accuracy in (1e-4, 1e-7, 1e-10)),
        *(gx.uniform("fp32"), gx.uniform("fp16"), gx.by_band(("fp32", 1), "fp16")),
    )
)


@pytest.mark.slow
@extended
@pytest.mark.parametrize(("methods", "count"), [(TILINGS, 24), (MIXED, 12)], ids=["fp64", "mixed"])
@pytest.mark.parametrize("seed", range(3))
def test_errors_from_extended_precision_are_within_the_bounds(methods, count, seed):
    compared, unbounded = 0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        for seen, model in random_cases(seed, count, 50):
            sigma = covariance_matrix(model, seen.inputs, seen.metric)
            truth = in_long_double(np.tril(sigma), seen.values)
            for found in evaluations(seen, model, methods) if truth is not None else ():
                error = abs(found.log_likelihood + 0.5 * (float(truth) + constant(seen)))
                assert error <= found.rounding.log_likelihood
                if found.digits:
                    assert error < 10.0**-found.digits * abs(found.log_likelihood)
                compared += 1
                unbounded += not np.isfinite(found.rounding.log_likelihood)
    assert compared > 100 * count / 60
    assert unbounded < compared / 2


def matern(distance, nu):
    if distance == 0:
        return mpmath.mpf(1)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * distance**nu * mpmath.besselk(nu, distance)


def exactly(seen, model):
    """Return ℓ in 45 digits, correlations included."""
    with mpmath.workdps(45):
        places = [[mpmath.mpf(float(c)) for c in row] for row in seen.locations]
        n, scale, nu = len(seen), mpmath.mpf(model.range), mpmath.mpf(model.smoothness)
        sigma = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(i + 1):
                pairs = zip(places[i], places[j], strict=True)
                distance = mpmath.sqrt(sum((a - b) ** 2 for a, b in pairs)) / scale
                sigma[i, j] = sigma[j, i] = mpmath.mpf(model.variance) * matern(distance, nu)
            sigma[i, i] += mpmath.mpf(model.nugget)
        lower = mpmath.cholesky(sigma)
        half = [mpmath.mpf(float(z)) for z in seen.values]
        for i in range(n):
            half[i] = (half[i] - sum(lower[i, k] * half[k] for k in range(i))) / lower[i, i]
        logs = 2 * sum(mpmath.log(lower[i, i]) for i in range(n))
        return -(n * mpmath.log(2 * mpmath.pi) + logs + sum(y * y for y in half)) / 2


@pytest.mark.slow
def test_errors_from_the_truth_are_within_the_bounds():
    compared = 0
    for seen, model in random_cases(7, 120, 14, smoothness=(0.3, 0.5, 0.8, 1.5, 2.3, 4.1, 7.5)):
        truth = None
        for found in evaluations(seen, model, (gx.Exact(), gx.Vecchia(len(seen) - 1))):
            truth = exactly(seen, model) if truth is None else truth
            error = abs(float(found.log_likelihood - truth))
            assert error <= found.rounding.log_likelihood
            compared += 1
    assert compared > 120


@pytest.mark.parametrize("seed", range(3))
def test_an_ill_conditioned_likelihood_warns_and_has_few_digits(seed):
    random = np.random.default_rng(seed)
    seen = gx.Observations(random.random((33, 2)), random.standard_normal(33))
    model = gx.Matern(1e10, 0.25, 20.0, 1e-4)
    values, bounds = [], []
    for method in (gx.Exact(), gx.Exact(tile=8), gx.Exact(tile=16), gx.Vecchia(32)):
        with pytest.warns(gx.GeomxpWarning, match="ill-conditioned"):
            found = gx.log_likelihood(seen, model, method)
        values.append(found.log_likelihood)
        bounds.append(found.rounding.log_likelihood)
        assert found.digits == found.to_dict()["digits"] <= 1
        assert f"digits           {found.digits} reliable in the log-likelihood" in str(found)
    assert 1.0 < np.ptp(values) <= 2 * min(bounds)


def smooth(n=60, nugget=0.0):
    places = np.random.default_rng(3).random((n, 2))
    return gx.Observations(places, np.sin(3 * places[:, 0])), gx.Matern(1.0, 2.0, 3.5, nugget)


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=16), gx.Vecchia(20)])
def test_fits_and_predictions_of_ill_conditioned_models_warn(method):
    seen, model = smooth()
    seen = gx.Observations(seen.locations, 1e4 * seen.values)
    with pytest.warns(gx.GeomxpWarning, match="may change the log-likelihood"):
        fit = gx.fit(seen, model, method, fixed=tuple(model.parameters()))
    if not method.approximate:
        with pytest.warns(gx.GeomxpWarning, match="may change the log-likelihood"):
            gx.predict(fit, seen.locations[:3] + 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=16), gx.Vecchia(20)])
@pytest.mark.parametrize("nugget", [0.0, 0.01])
def test_well_conditioned_likelihoods_have_many_digits_and_do_not_warn(method, nugget):
    places = np.random.default_rng(0).random((200, 2))
    model = gx.Matern(1.0, 0.1, 0.5, nugget)
    seen = gx.Observations(places, gx.simulate(model, places, seed=1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gx.log_likelihood(seen, model, method, trend="constant")
        fit = gx.fit(seen, model, method, fixed=("smoothness", "nugget"))
        gx.predict(fit, places[:3] + 0.01)
    assert found.digits >= 10
    assert "digits" not in str(found)


def test_evaluations_of_a_search_solve_no_more_than_before(monkeypatch):
    from geomxp.tiles.factor import CholeskyFactor

    solves = []
    monkeypatch.setattr(CholeskyFactor, "solve", lambda self, b: solves.append(b))
    seen, model = smooth(nugget=1e-9)
    assert gx.Exact().prepare(seen)(model).rounding is None
    assert not solves
    # λ_min >= τ² bounds the errors at no cost
    bounded = gx.log_likelihood(seen, model.replace(nugget=0.5))
    assert bounded.rounding.log_likelihood < 1e-3 * WARNED_LIKELIHOOD_ERROR
    assert not solves


def test_bounds_follow_a_change_of_the_variance():
    bounds = Rounding(1e-8, 4e-8).scaled(2.0)
    assert (bounds.log_determinant, bounds.quadratic_form) == (1e-8, 2e-8)
    assert bounds.log_likelihood == pytest.approx(1.5e-8)
    assert Rounding(1e-30, 1e-30).digits(-1.0) == 15
