"""Restricted maximum likelihood, in every way to compute."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import geomxp as gx
from geomxp import testing

U = 2.0**-53
TREND = "x + I(y**2)"
WAYS = {
    "tiles": (gx.Exact(tile=16), U),
    "disk": (gx.Exact(tile=16, memory="20KB"), U),
    "fp32": (gx.Exact(gx.uniform("fp32"), tile=16), 2.0**-24),
    "by tile norm": (gx.Exact(gx.by_tile_norm(1e-8), tile=16), 1e-8),
    "layers": (gx.Exact(gx.layered("fp32", "fp64"), tile=16), 2.0**-24),
    "refined": (gx.Exact(gx.uniform("fp32"), tile=16, refine="gmres"), 2.0**-24),
    "refined on disk": (gx.Exact(gx.uniform("fp32"), 16, memory="26KB", refine="cg"), 2.0**-24),
    "vecchia": (gx.Vecchia(59), U),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_the_restricted_likelihood_is_the_density_of_contrasts(name, monkeypatch):
    # the least memory is for one tile in work
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    method, roundoff = WAYS[name]
    laws = (
        testing.reml_is_the_density_of_contrasts,
        testing.does_not_see_what_the_trend_takes,
        testing.profiles_the_variance,
    )
    testing.check_likelihood(method, unit_roundoff=roundoff, laws=laws)


@pytest.mark.parametrize("neighbours", [3, 10])
def test_vecchias_is_the_density_of_contrasts_under_vecchias_model(neighbours):
    seen, model = testing.observations(), testing.MODEL
    design = np.column_stack((np.ones(len(seen)), seen.locations[:, 0]))
    evaluator = gx.Vecchia(neighbours).prepare(seen, design, True)
    precision = evaluator.factorize(model).solve(np.eye(len(seen)))
    sigma = np.linalg.inv((precision + precision.T) / 2)
    contrasts = null_space(design.T)
    density = multivariate_normal(np.zeros(len(seen) - 2), contrasts.T @ sigma @ contrasts)
    expected = density.logpdf(contrasts.T @ seen.values)
    expected -= 0.5 * np.linalg.slogdet(design.T @ design)[1]
    # 10·n·u·κ(Σ)
    assert evaluator(model).log_likelihood == pytest.approx(expected, rel=1e-10)


@pytest.fixture(scope="module")
def seen():
    places = np.random.default_rng(0).random((150, 2))
    field = gx.simulate(gx.Matern(1.0, 0.1, 0.5, nugget=0.1), places, seed=4)[0]
    return gx.Observations(places, field + 2 * places[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "tolerance"),
    [
        (gx.Exact(tile=50), 1e-6),
        (gx.Exact(gx.by_tile_norm(1e-9), tile=50), 1e-4),
        (gx.Exact(tile=50, memory="150KB"), 1e-5),
        (gx.Exact(gx.by_tile_norm(1e-7), tile=50, refine="gmres"), 1e-3),
        (gx.Vecchia(149), 1e-6),
    ],
    ids=["tiles", "mixed", "disk", "refined", "vecchia"],
)
def test_fits_by_reml_are_those_of_fp64(seen, method, tolerance):
    expected = gx.fit(seen, fixed={"smoothness": 0.5}, trend=TREND, reml=True)
    found = gx.fit(seen, method=method, fixed={"smoothness": 0.5}, trend=TREND, reml=True)
    assert found.outcome.good
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=tolerance)
    for name, value in expected.model.parameters().items():
        # a search ends where one more step promises 1e-6 or what the formats let it see
        allowed = 3e-2 * (expected.standard_errors[name] or 0.0)
        assert getattr(found.model, name) == pytest.approx(value, abs=max(allowed, 1e-12))


def test_reml_does_not_see_the_trend(seen):
    moved = gx.Observations(seen.locations, seen.values + 5 - 3 * seen.locations[:, 0])
    one, other = (
        gx.fit(s, fixed={"smoothness": 0.5}, trend=TREND, reml=True) for s in (seen, moved)
    )
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-6)
    assert other.coefficients[1] - one.coefficients[1] == pytest.approx(-3.0, abs=1e-6)


def test_without_a_trend_reml_is_ml(seen):
    one, other = (
        gx.fit(seen, fixed={"smoothness": 0.5}, trend="zero", reml=reml) for reml in (False, True)
    )
    assert one.log_likelihood == other.log_likelihood
    assert one.model == other.model
