import numpy as np
import pytest

import geomxp as gx
from geomxp.errors import NotPositiveDefinite
from geomxp.likelihood.differences import Differences
from geomxp.prediction.simulate import lay_out

MODEL = gx.Matern(1.3, 0.15, 0.8, 0.05)
ALL = ("variance", "range", "smoothness", "nugget")
CASES = {
    "all": (MODEL, ALL, "zero", False),
    "a trend": (MODEL, ALL, "linear", False),
    "REML": (MODEL, ALL, "linear", True),
    "the nugget fixed": (MODEL, ALL[:3], "constant", False),
    "no nugget": (MODEL.replace(nugget=0.0, smoothness=0.5), ("variance", "range"), "zero", False),
    "one parameter": (MODEL, ("range",), "constant", True),
    "an angle": (
        gx.Matern(1.3, 0.15, 0.5, 0.05, gx.Anisotropy(30.0, 0.5)),
        ("variance", "range", "nugget", "anisotropy_angle", "anisotropy_ratio"),
        "zero",
        False,
    ),
}


def prepared(model, trend="zero", reml=False, n=300):
    places = lay_out(n, "uniform", 1)
    seen = gx.Observations(places, gx.simulate(model, places, seed=2, progress=False)[0])
    design = None
    if trend != "zero":
        columns = places if trend == "linear" else places[:, :0]
        design = np.column_stack((np.ones(n), columns))
    return gx.Exact().prepare(seen, design, reml)


def in_errors(information, score):
    """Return the score in units in which its covariance is the identity."""
    return np.linalg.solve(np.linalg.cholesky(information), score)


@pytest.mark.slow
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_the_formulas(case, noisy):
    model, names, trend, reml = CASES[case]
    exact = prepared(model, trend, reml)
    expected = exact.derivatives(model, names, curvature=True)
    found = Differences(exact, noisy).derivatives(model, names, curvature=True)
    order = [expected.names.index(name) for name in found.names]
    information = expected.expected[np.ix_(order, order)]
    error = in_errors(information, found.score - expected.score[order])
    assert np.abs(error).max() < (0.1 if noisy else 1e-4)
    root = np.linalg.cholesky(information)
    change = found.observed - expected.observed[np.ix_(order, order)]
    change = np.linalg.solve(root, np.linalg.solve(root, change).T)
    assert np.abs(change).max() < 0.1
    # the approximation ignores what REML loses to the trend
    close = np.linalg.solve(root, np.linalg.solve(root, found.expected - information).T)
    assert reml or np.abs(close).max() < 0.05


@pytest.mark.parametrize(
    "model",
    [
        gx.ParsimoniousMatern((1.0, 2.0), 0.2, 0.5, 0.4, (0.05, 0.1)),
        gx.Coregionalization((1.0, 0.5, 1.0), (0.2, 0.3), 0.5, (0.05, 0.1)),
    ],
    ids=["parsimonious", "coregionalization"],
)
@pytest.mark.parametrize("which", ["all", "nuggets"])
def test_of_several_variables_too(model, which):
    places = np.tile(lay_out(120, "uniform", 1), (2, 1))
    variable = np.repeat([0, 1], 120)
    values = np.random.default_rng(0).standard_normal(240)
    exact = gx.Exact().prepare(gx.Observations(places, values, variable=variable))
    names = [p.name for p in model.table if not p.name.startswith("smoothness")]
    names = tuple(name for name in names if which == "all" or name.startswith("nugget"))
    expected = exact.derivatives(model, names)
    found = Differences(exact, noisy=False).derivatives(model, names, curvature=False)
    error = in_errors(found.expected, found.score - expected.score)
    assert np.abs(error).max() < 0.02 * np.abs(in_errors(found.expected, expected.score)).max()


def test_the_score_along_the_scale_is_exact():
    exact = prepared(MODEL)
    found = Differences(exact, noisy=True).derivatives(MODEL, ALL, curvature=False)
    slope = dict(zip(ALL, found.score, strict=True))
    along = MODEL.variance * slope["variance"] + MODEL.nugget * slope["nugget"]
    assert along == pytest.approx(0.5 * (exact(MODEL).quadratic_form - 300), rel=1e-9)


def test_they_cost_two_evaluations_for_each_parameter_but_one(monkeypatch):
    exact, models = prepared(MODEL), []
    call = type(exact).__call__

    def counted(self, model):
        models.append(model)
        return call(self, model)

    monkeypatch.setattr(type(exact), "__call__", counted)
    differences = Differences(exact, noisy=True)
    differences.derivatives(MODEL, ALL, curvature=False)
    assert len(models) == 1 + 2 * 3
    models.clear()
    differences.derivatives(MODEL, ALL, curvature=True)
    assert len(models) == 1 + 2 * 3


@pytest.mark.parametrize("noisy", [False, True])
def test_at_a_limit_they_are_one_sided(noisy):
    bare = MODEL.replace(nugget=0.0)
    exact = prepared(MODEL)
    for names in (("nugget",), ("variance", "range", "nugget")):
        expected = exact.derivatives(bare, names)
        found = Differences(exact, noisy).derivatives(bare, names, False)
        size = max(1.0, np.abs(in_errors(found.expected, expected.score)).max())
        error = in_errors(found.expected, found.score - expected.score)
        assert np.abs(error).max() < (0.2 if noisy else 0.02) * size


def test_a_step_out_of_the_parameter_space_is_not_taken():
    # the smoothness of a spherical distance is at most ½
    places = np.random.default_rng(0).uniform([0, -60], [300, 60], (200, 2))
    model = gx.Matern(1.0, 3000.0, 0.499, 0.05)
    values = np.random.default_rng(1).standard_normal(200)
    seen = gx.Observations(places, values, metric="great-circle")
    exact = gx.Exact().prepare(seen)
    found = Differences(exact, noisy=True).derivatives(model, ("range", "smoothness"), False)
    expected = exact.derivatives(model, found.names)
    error = in_errors(found.expected, found.score - expected.score)
    assert np.abs(error).max() < 0.1


def test_a_model_without_a_likelihood_has_no_derivatives():
    exact = prepared(MODEL)
    # the exponentials of distances overflow to a singular matrix
    flat = gx.Matern(1.0, 1e7, 1.5, 0.0)
    with pytest.raises(NotPositiveDefinite):
        Differences(exact, noisy=False).derivatives(flat, ("variance", "range"), False)
