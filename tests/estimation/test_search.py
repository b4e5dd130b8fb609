import numpy as np
import pytest

import geomxp as gx
from geomxp.estimation import search as scoring
from geomxp.estimation.coordinates import Coordinates
from geomxp.estimation.parameters import ParameterTable
from geomxp.estimation.problem import Monitor, Problem
from geomxp.estimation.search import SEARCHES, maximize
from geomxp.estimation.starts import starting_models
from geomxp.estimation.units import Extent


@pytest.fixture(scope="module")
def seen():
    places = np.random.default_rng(4).random((250, 2))
    return gx.Observations(places, gx.simulate(gx.Matern(1.0, 0.1, 0.8, 0.1), places, seed=3)[0])


OPTIONS = {
    "all free": {},
    "bounded nugget": {"bounds": {"nugget": (0.01, 1.0)}},
    "bounded range": {"bounds": {"range": (0.01, 0.5)}},
    "fixed smoothness": {"fixed": {"smoothness": 0.5}},
    "reml": {"reml": True, "trend": "linear"},
    "anisotropic": {"anisotropy": True, "fixed": {"smoothness": 0.5}},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_every_search_comes_to_the_same_maximum(seen, options):
    found = {name: gx.fit(seen, search=name, progress=False, **options) for name in SEARCHES}
    best = max(fit.log_likelihood for fit in found.values())
    for name, fit in found.items():
        assert fit.log_likelihood >= best - 1e-8, name
        # far steeper than an error that changes ℓ by so little
        for parameter, value in fit.model.parameters().items():
            expected = found["scoring"].model.parameters()[parameter]
            assert value == pytest.approx(expected, rel=1e-3), (name, parameter)


@pytest.mark.slow
def test_scoring_needs_few_factorizations(seen):
    assert gx.fit(seen, progress=False).evaluations <= 15
    assert gx.fit(seen, progress=False, fixed={"smoothness": 0.5}).evaluations <= 15


def test_an_unknown_search_is_named(seen):
    with pytest.raises(gx.InvalidInput, match=r"`search` must be one of: scoring, .*Got 'newton'"):
        gx.fit(seen, search="newton")


@pytest.mark.slow
def test_vecchia_brings_an_exact_search_near_its_maximum():
    places = np.random.default_rng(5).random((1200, 2))
    values = gx.simulate(gx.Matern(1.0, 0.1, 0.8, 0.1), places, seed=5)[0]
    fit = gx.fit(gx.Observations(places, values), progress=False)
    first = fit.history[0]
    # each estimate starts within half a standard error, and four steps are enough
    assert fit.log_likelihood - first["log_likelihood"] < 4 * 0.5 * 0.5**2
    assert fit.evaluations <= 8


@pytest.mark.parametrize("search", ["bobyqa", "lbfgs", "slsqp"])
def test_a_box_holds_the_search(search):
    def function(x):
        return -np.sum((x - [2.0, -1.0]) ** 2)

    end = maximize(
        function,
        np.zeros(2),
        np.array([-1.0, -0.5]),
        np.array([1.0, 3.0]),
        slope=lambda x: -2 * (x - [2.0, -1.0]),
        search=search,
        tolerance=1e-12,
    )
    np.testing.assert_allclose(end.point, [1.0, -0.5], atol=1e-5)


def quadratic(information, wrong):
    """ℓ = -½(x - c)'I(x - c) in logarithms, with another information than its own."""
    centre = np.log([2.0, 0.3])
    natural = Coordinates(("variance", "range"), gx.Matern(1.0, 1.0, 0.5))

    def evaluate(model, close):
        x = natural.point(model) - centre
        return scoring.Point(model, -0.5 * x @ information @ x, -information @ x, wrong)

    return natural, evaluate


def test_secants_mend_an_information_that_is_not_the_hessian():
    information = np.array([[30.0, -12.0], [-12.0, 9.0]])
    natural, evaluate = quadratic(information, 1.6 * np.diag(np.diag(information)))
    count = []

    def counted(model, close):
        count.append(model)
        return evaluate(model, close)

    best, converged = scoring.ascend(
        *(counted, lambda model: model, natural, gx.Matern(1.0, 1.0, 0.5)),
        tolerance=1e-10,
        evaluations=100,
    )
    assert converged
    assert best.model.variance == pytest.approx(2.0, rel=1e-4)
    assert best.model.range == pytest.approx(0.3, rel=1e-4)
    # without secants the error shrinks by 0.8 a step: some fifty of them
    assert len(count) < 12


def test_scoring_ends_at_the_maximum_on_a_bound():
    information = np.array([[30.0, -12.0], [-12.0, 9.0]])
    natural, evaluate = quadratic(information, information)
    count = []

    def counted(model, close):
        count.append(model)
        return evaluate(model, close)

    def within(model):
        return model.replace(variance=min(model.variance, 1.5))

    best, converged = scoring.ascend(
        *(counted, within, natural, gx.Matern(1.0, 1.0, 0.5)), tolerance=1e-10, evaluations=100
    )
    assert converged
    assert best.model.variance == pytest.approx(1.5)
    # of a quadratic function, along the bound
    range_there = np.log(0.3) + 12.0 / 9.0 * (np.log(1.5) - np.log(2.0))
    assert np.log(best.model.range) == pytest.approx(range_there, abs=1e-5)
    # the first step meets the bound, and the range goes to the maximum given that
    assert len(count) <= 4


def test_a_parameter_that_may_be_0_falls_by_thirds():
    start = gx.Gneiting(1.0, 1.0, 1.0, 0.5, 0.5, 0.9, 0.5)
    natural, visited = Coordinates(("interaction",), start), []

    def evaluate(model, close):
        visited.append(model.interaction)
        x = natural.point(model) + 5.0
        return scoring.Point(model, float(-0.5 * x @ x), -x, np.eye(1))

    best, converged = scoring.ascend(
        *(evaluate, lambda model: model, natural, start), tolerance=1e-10, evaluations=100
    )
    assert converged
    assert best.model.interaction == 0
    np.testing.assert_allclose(visited[:-1], [0.9 / 3**k for k in range(len(visited) - 1)])
    assert len(visited) == 6


@pytest.mark.parametrize(
    ("change", "factor"), [(-2.0, 1 / 6), (0.0, 0.5), (-1e9, 0.1), (-np.inf, 0.5)]
)
def test_a_failed_step_is_shortened_to_the_maximum_of_a_parabola(change, factor):
    # of t - 3t² the maximum is at 1/6
    assert scoring.shorter(1.0, change) == pytest.approx(factor)


def test_a_singular_information_promises_an_infinite_gain():
    # of the variance, the range and the nugget of data without correlation
    information = np.array(
        [
            [1.7172956160815516, 3.3113506805739148e-15, 2.91586693243964],
            [3.3113506805739148e-15, 7.09981011780532e-13, -1.6111317574420797e-14],
            [2.91586693243964, -1.6111317574420797e-14, 4.950970519039163],
        ]
    )
    summit = scoring.climb(
        lambda x: 0.0,
        lambda x: np.full(3, 1e-15),
        lambda x: information,
        np.zeros(3),
        tolerance=1.0,
        steps=12,
    )
    assert summit.gain == np.inf


FALLING = gx.Matern(0.2, 0.05, 1.0, 0.8), 1000, {}, "CONVERGED", 25
BOUNDED = (
    gx.Matern(1.0, 0.1, 1.5, 0.05),
    500,
    {"bounds": {"smoothness": (0.2, 0.6)}},
    "ON_BOUND",
    25,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "n", "options", "ending", "most"), [FALLING, BOUNDED], ids=["nugget 0", "a bound"]
)
def test_maxima_at_limits_take_few_evaluations(truth, n, options, ending, most):
    places = np.random.default_rng(1).random((n, 2))
    seen = gx.Observations(places, gx.simulate(truth, places, seed=1)[0])
    fit = gx.fit(seen, progress=False, **options)
    assert fit.outcome.ending == ending
    assert fit.model.nugget == 0 if not options else fit.model.smoothness == pytest.approx(0.6)
    # 323 and 43 before
    assert fit.evaluations < most


@pytest.mark.slow
def test_pure_noise_takes_few_evaluations():
    places = np.random.default_rng(2).random((1000, 2))
    seen = gx.Observations(places, gx.simulate(gx.Matern(1e-12, 0.1, 0.5, 1.0), places, seed=2)[0])
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, progress=False)
    # 134 before, in three searches, two of which end without a field
    assert fit.evaluations < 100


@pytest.mark.slow
def test_scoring_follows_a_bound_that_depends_on_another_shape():
    places = np.random.default_rng(5).random((40, 2))
    values = gx.simulate(gx.Matern(1.0, 0.15, 2.0, 0.05), places, seed=5)[0]
    start = gx.Wendland(1.0, 1.0, smoothness=1.5, shape=3.0, nugget=0.05)
    fit = gx.fit(gx.Observations(places, values), start, start=start.parameters(), progress=False)
    # 487 evaluations and UNIDENTIFIED before
    assert fit.outcome.ending is gx.Ending.ON_BOUND
    assert fit.model.shape == pytest.approx(fit.model.smoothness + 1.5, rel=1e-12)
    assert fit.evaluations < 200


def test_the_limit_on_evaluations_ends_scoring():
    information = np.array([[30.0, -12.0], [-12.0, 9.0]])
    natural, evaluate = quadratic(information, 5 * information)
    _, converged = scoring.ascend(
        *(evaluate, lambda model: model, natural, gx.Matern(1.0, 1.0, 0.5)),
        tolerance=1e-10,
        evaluations=2,
    )
    assert not converged


def test_a_search_that_nlopt_gives_up_ends_at_the_best_point_seen():
    start = np.zeros(2)
    # uphill is the other way: no step along the gradient gains anything
    end = maximize(
        *(lambda x: -float(np.sum((x - 0.3) ** 2)), start, start - 1.0, start + 1.0),
        slope=lambda x: 2 * (x - 0.3),
        search="lbfgs",
    )
    assert end.value == -2 * 0.3**2
    assert not end.limited


@pytest.mark.parametrize("error", [RuntimeError, ValueError, gx.MissingDevice, gx.InvalidInput])
@pytest.mark.parametrize("search", ["bobyqa", "lbfgs"])
def test_an_error_of_the_likelihood_ends_a_search(seen, search, error, monkeypatch):
    from geomxp.likelihood.exact import ExactEvaluator

    whole, calls = ExactEvaluator.factorize, []

    def factorize(self, *arguments):
        calls.append(arguments)
        if len(calls) == 9:
            raise error("a device broke")
        return whole(self, *arguments)

    monkeypatch.setattr(ExactEvaluator, "factorize", factorize)
    with pytest.raises(error, match="a device broke"):
        gx.fit(seen, gx.Matern(1.0, 0.2, 0.5, 0.1), search=search, progress=False)


@pytest.mark.slow
def test_values_far_from_a_zero_trend_have_an_ending_not_an_overflow():
    places = np.random.default_rng(0).random((60, 2))
    values = 1e4 + gx.simulate(gx.Matern(1.0, 0.05, 0.5), places)[0]
    seen = gx.Observations(places, values)
    about = {"trend": "zero", "raise_on_failure": False, "progress": False}
    # a constant is a field of infinite range
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, **about)
    assert fit.outcome.ending is gx.Ending.NO_FINITE_MAXIMUM
    fit = gx.fit(seen, **about)
    assert fit.outcome.ending in (gx.Ending.AT_LIMIT, gx.Ending.NO_FINITE_MAXIMUM)
    assert np.isfinite(fit.log_likelihood)
    assert "range goes to infinity" in str(fit.outcome) or "with the range" in str(fit.outcome)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["scoring", "bobyqa"])
def test_newtons_steps_stay_where_a_model_is_a_covariance(search):
    random = np.random.default_rng(52)
    places = np.column_stack((random.uniform(0, 20, 30), random.uniform(40, 60, 30)))
    truth = gx.Matern(1.0, 60.0, 0.4)
    values = gx.simulate(truth, places, seed=52, metric="great-circle")[0]
    seen = gx.Observations(places, values, metric="great-circle")
    options = {"fixed": {"nugget": 0.0}, "raise_on_failure": False, "progress": False}
    fit = gx.fit(seen, search=search, **options)
    # beyond ½ there is no model on arcs, and a step that tried one raised
    assert fit.model.smoothness <= 0.5


def test_the_variance_of_a_start_that_the_trend_takes_up_is_that_of_arcs():
    random = np.random.default_rng(3)
    places = np.column_stack((random.uniform(-180, 180, 60), random.uniform(-80, 80, 60)))
    seen = gx.Observations(places, random.standard_normal(60), metric="great-circle")
    model = gx.Matern(1.0, 40_000.0, 0.5, 0.1)
    held, design = {"smoothness": 0.5, "nugget": 0.1}, np.ones((60, 1))
    table = ParameterTable(model, held, {}, seen, 1.0, Extent.of(seen))
    problem = Problem(seen, design, False, gx.Vecchia(5), table, Monitor(100), 1e-6)
    before = table.grid({"range": 40_000.0})[1][0]
    [(start, _)] = starting_models(problem, {"range": 40_000.0}, 1, 0)
    # by haversines
    longitude, latitude = np.radians(places).T
    half = np.sin((longitude[:, None] - longitude) / 2) ** 2
    half *= np.cos(latitude[:, None]) * np.cos(latitude)
    half += np.sin((latitude[:, None] - latitude) / 2) ** 2
    matrix = np.exp(-2 * 6371.0 * np.arcsin(np.sqrt(half)) / 40_000.0)
    share = (np.trace(matrix) - matrix.mean() * 60) / 59
    assert start.variance == pytest.approx(before.variance / share, rel=1e-9)


@pytest.mark.parametrize("factor", [1.0, 0.1, 30.0])
def test_score_and_information_at_the_best_variance_do_not_depend_on_that_of_the_start(
    seen, factor
):
    start = gx.Matern(0.8, 0.12, 0.7, 0.05)
    table = ParameterTable(start, {}, {}, seen, 1.0, Extent.of(seen))
    problem = Problem(seen, np.ones((250, 1)), False, gx.Exact(), table, Monitor(100), 1e-6)
    coordinates = problem._coordinates(table, start)
    best = problem._point(table, coordinates, start, False)
    again = problem._point(table, coordinates, start.scaled(factor), False)
    assert again.value == pytest.approx(best.value, abs=1e-9)
    np.testing.assert_allclose(again.score, best.score, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(again.information, best.information, rtol=1e-6)
    for k in range(len(best.score)):
        step = 1e-4 * np.eye(len(best.score))[k]
        ends = (problem.evaluator(coordinates.moved(best.model, side * step)) for side in (-1, 1))
        low, high = (end.log_likelihood for end in ends)
        assert best.score[k] == pytest.approx((high - low) / 2e-4, rel=1e-5, abs=1e-5)
