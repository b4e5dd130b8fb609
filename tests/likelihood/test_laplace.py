import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from patterns import dense
from scipy.optimize import minimize

import geomxp as gx
import geomxp.errors
from geomxp.covariance import responses
from geomxp.covariance.responses import Data
from geomxp.likelihood import laplace
from geomxp.likelihood.laplace import DenseLaplace, VecchiaLaplace

KNOWN = json.loads(
    (Path(__file__).parents[1] / "references" / "laplace.json").read_text(encoding="utf-8")
)


def problem(case, table="fields", rows=None):
    """Return the evaluator and the response of a reference."""
    columns = {name: np.array(column)[:rows] for name, column in KNOWN[table].items()}
    places = np.column_stack((columns["e"], columns["n"]))
    response = getattr(responses, case["response"])
    options = {"link": case["link"]} if case["link"] else {}
    response = response(*case.get("response_parameters", ()), **options)
    trials = columns["trials"] if case["trials"] else None
    data = Data(columns[case["column"]], trials=trials)
    design = np.column_stack((np.ones(len(places)), columns["x"]))
    seen = gx.Observations(places, np.zeros(len(places)))
    return DenseLaplace(seen, data, design), response


def model_of(case):
    smoothness = case.get("smoothness", 0.5)
    range_ = case["range"] / (np.sqrt(3) if smoothness == 1.5 else 1.0)
    return gx.Matern(case["variance"], range_, smoothness)


FIXED = [case for case in KNOWN["fixed"] if case["response"] != "TruncatedPoisson"]


@pytest.mark.parametrize(
    "case", FIXED, ids=[f"{c['response']}-{c['link']}-{c['smoothness']}" for c in FIXED]
)
def test_log_likelihoods_are_those_of_40_digits(case):
    evaluator, response = problem(case)
    coefficients = np.array([case["intercept"], case["slope"]])
    mode = evaluator.mode(model_of(case), response, coefficients)
    assert mode.log_likelihood == pytest.approx(case["value"], rel=10.0 ** -case["digits"])
    eta = evaluator._fixed(coefficients) + mode.eta
    least = -response.derivatives(evaluator.data, eta).eta[1].max()
    assert least == pytest.approx(case["smallest_curvature"], abs=1e-5)
    # from elsewhere, the same mode
    evaluator._last = 0.3 * np.random.default_rng(0).standard_normal(len(mode.field))
    again = evaluator.mode(model_of(case), response, coefficients)
    assert again.log_likelihood == pytest.approx(mode.log_likelihood, rel=1e-12)


def test_zeros_beside_truncated_counts_have_a_probability_of_their_own():
    """The reference counts zeros with a probability of 0.3, and other values given that."""
    (case,) = (case for case in KNOWN["fixed"] if case["response"] == "TruncatedPoisson")
    columns = KNOWN["fields"]
    counted = np.array(columns[case["column"]]) > 0
    places = np.column_stack((columns["e"], columns["n"]))[counted]
    design = np.column_stack((np.ones(counted.sum()), np.array(columns["x"])[counted]))
    data = Data(np.array(columns[case["column"]])[counted])
    evaluator = DenseLaplace(gx.Observations(places, np.zeros(len(places))), data, design)
    # zeros say nothing of the field
    found = evaluator.log_likelihood(
        model_of(case), responses.TruncatedPoisson(), [case["intercept"], case["slope"]]
    )
    found += counted.sum() * np.log(0.7) + (~counted).sum() * np.log(0.3)
    assert found == pytest.approx(case["value"], rel=1e-12)


@pytest.mark.parametrize(
    "case", FIXED, ids=[f"{c['response']}-{c['link']}-{c['smoothness']}" for c in FIXED]
)
def test_derivatives_are_those_of_the_log_likelihood(case):
    evaluator, response = problem(case)
    model = model_of(case).replace(nugget=0.05)
    beta = np.array([case["intercept"], case["slope"]])
    found = evaluator.derivatives(model, response, beta)
    value, by_beta, found = found.log_likelihood, found.coefficients, found.parameters
    assert value == pytest.approx(evaluator.log_likelihood(model, response, beta), rel=1e-13)
    assert set(found) == {*model.parameters(), *response.parameters()}

    def slope(at, size):
        h = 1e-4 * size
        ends = [evaluator.log_likelihood(*at(k * h)) for k in (-2, -1, 1, 2)]
        return (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * h)

    for name, size in model.parameters().items():

        def moved(step, name=name, size=size):
            return model.replace(**{name: size + step}), response, beta

        assert found[name] == pytest.approx(slope(moved, size), rel=1e-6, abs=1e-7 / size)
    for name, size in response.parameters().items():

        def moved(step, name=name, size=size):
            return model, replace(response, **{name: size + step}), beta

        assert found[name] == pytest.approx(slope(moved, size), rel=1e-6, abs=1e-7 / size)
    for k in range(2):

        def moved(step, k=k):
            return model, response, beta + step * np.eye(2)[k]

        assert by_beta[k] == pytest.approx(slope(moved, 1.0), rel=1e-6, abs=1e-7)


MAXIMA = [case for case in KNOWN["maxima"] if case["inside"]]


@pytest.mark.slow
@pytest.mark.parametrize("case", MAXIMA, ids=[case["response"] for case in MAXIMA])
def test_maxima_and_standard_errors_are_those_of_glmmtmb(case):
    evaluator, response = problem(case)
    own = tuple(response.parameters())

    def scaled(x):
        """glmmTMB's coordinates: β, log sd, log range, then those of the response."""
        values = {}
        for name, each in zip(own, x[4:], strict=True):
            values[name] = 1 + 1 / (1 + np.exp(-each)) if name == "tweedie_power" else np.exp(each)
        model = gx.Matern(np.exp(2 * x[2]), np.exp(x[3]), 0.5)
        return model, replace(response, **values), x[:2]

    def descent(x):
        model, moved, beta = scaled(x)
        found = evaluator.derivatives(model, moved, beta, ("variance", "range"))
        value, by_beta, found = found.log_likelihood, found.coefficients, found.parameters
        slopes = [*by_beta, 2 * model.variance * found["variance"], model.range * found["range"]]
        for name in own:
            size = moved.parameters()[name]
            inner = (size - 1) * (2 - size) if name == "tweedie_power" else size
            slopes.append(found[name] * inner)
        return -value, -np.array(slopes)

    # β, log sd and log range, then the rest, in another order there
    kinds = np.array(case["names"])
    order = [*np.flatnonzero(kinds == "beta"), *np.flatnonzero(kinds == "theta")]
    order += [k for k in range(len(kinds)) if k not in order]
    known = np.array(case["estimates"])[order]
    start = known + 0.2 * np.random.default_rng(0).standard_normal(len(known))
    found = minimize(descent, start, jac=True, method="BFGS", options={"gtol": 1e-7})
    assert -found.fun == pytest.approx(case["value"], abs=1e-8)
    np.testing.assert_allclose(found.x, known, rtol=0, atol=1e-4)
    h = 1e-4
    hessian = np.array(
        [
            (descent(found.x + h * e)[1] - descent(found.x - h * e)[1]) / (2 * h)
            for e in np.eye(len(known))
        ]
    )
    errors = np.sqrt(np.linalg.inv((hessian + hessian.T) / 2).diagonal())
    np.testing.assert_allclose(errors, np.array(case["standard_errors"])[order], rtol=0.01)


@pytest.mark.parametrize("case", KNOWN["true"], ids=[case["response"] for case in KNOWN["true"]])
def test_the_error_of_the_approximation_is_the_known_one(case):
    evaluator, response = problem(case, case["table"], 4)
    found = evaluator.log_likelihood(model_of(case), response, [case["intercept"], case["slope"]])
    if case["laplace"] is not None:
        assert found == pytest.approx(case["laplace"], abs=1e-10)
    # Student's t is not log-concave
    assert abs(found - case["value"]) < (0.33 if case["response"] == "StudentT" else 0.05)


def test_gaussian_values_have_their_exact_likelihood():
    places = np.random.default_rng(0).random((40, 2))
    model, y = gx.Matern(1.3, 0.2, 0.8), np.random.default_rng(1).standard_normal(40)
    evaluator = DenseLaplace(gx.Observations(places, y), Data(y))
    found = evaluator.log_likelihood(model, responses.Censored(0.3))
    exact = gx.log_likelihood(gx.Observations(places, y), model.replace(nugget=0.3), trend="zero")
    assert found == pytest.approx(exact.log_likelihood, rel=1e-12)
    slopes = evaluator.derivatives(model, responses.Censored(0.3)).parameters
    expected = gx.Exact().prepare(gx.Observations(places, y)).gradient(model.replace(nugget=0.3))
    for name in ("variance", "range", "smoothness"):
        assert slopes[name] == pytest.approx(expected[name], rel=1e-8)
    assert slopes["error_variance"] == pytest.approx(expected["nugget"], rel=1e-8)


# Vecchia's approximation


def field(response, n=150, seed=0):
    """Return places, data and a design of simulated values."""
    random = np.random.default_rng(seed)
    places = random.random((n, 2))
    f = gx.simulate(gx.Matern(0.8, 0.15, 0.5), places, seed=seed + 1)[0]
    design = np.column_stack((np.ones(n), places[:, 0]))
    trials = np.full(n, 6.0) if isinstance(response, responses.Binomial) else None
    data = Data(np.zeros(n), trials=trials)
    values = response.draw(data, f + design @ [0.9, 0.1], random)
    if isinstance(response, responses.Beta):
        values = values.clip(1e-3, 1 - 1e-3)
    return gx.Observations(places, np.zeros(n)), Data(values, trials=trials), design


RESPONSES = [
    responses.Poisson(),
    responses.Binomial("probit"),
    responses.NegativeBinomial(2.0),
    responses.Gamma(2.0),
    responses.Beta(5.0),
    responses.StudentT(0.5, 5.0),
    responses.ZeroInflatedPoisson(0.2),
    responses.TruncatedPoisson(),
    responses.Tweedie(0.9, 1.4),
    responses.Censored(0.5),
]
BY_RESPONSE = pytest.mark.parametrize("response", RESPONSES, ids=[r.name for r in RESPONSES])
BETA = np.array([0.8, 0.2])


@BY_RESPONSE
def test_with_all_predecessors_as_neighbours_it_is_that_of_dense_matrices(response):
    seen, data, design = field(response, 60)
    model = gx.Matern(0.7, 0.2, 0.8, 0.05)
    dense = DenseLaplace(seen, data, design).derivatives(model, response, BETA)
    sparse = VecchiaLaplace(seen, data, design, neighbours=59).derivatives(model, response, BETA)
    assert sparse.log_likelihood == pytest.approx(dense.log_likelihood, rel=1e-10)
    size = max(abs(value) for value in dense.parameters.values())
    for name, value in dense.parameters.items():
        assert sparse.parameters[name] == pytest.approx(value, rel=1e-6, abs=1e-7 * size), name
    np.testing.assert_allclose(sparse.coefficients, dense.coefficients, rtol=1e-6, atol=1e-7)


@BY_RESPONSE
def test_with_few_neighbours_derivatives_are_exact_too(response):
    seen, data, design = field(response)
    evaluator = VecchiaLaplace(seen, data, design, neighbours=6)
    model = gx.Matern(0.7, 0.2, 0.8, 0.05)
    found = evaluator.derivatives(model, response, BETA)
    points = {**model.parameters(), **response.parameters(), "intercept": 1.0}
    for name, size in points.items():

        def value(step, name=name, size=size):
            moved, own, beta = model, response, BETA
            if name == "intercept":
                beta = BETA + np.array([step, 0.0])
            elif name in response.parameters():
                own = replace(response, **{name: size + step})
            else:
                moved = model.replace(**{name: size + step})
            return evaluator.log_likelihood(moved, own, beta)

        h = 3e-4 * size
        ends = [value(k * h) for k in (-2, -1, 1, 2)]
        slope = (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * h)
        ours = found.coefficients[0] if name == "intercept" else found.parameters[name]
        assert ours == pytest.approx(slope, rel=1e-5, abs=1e-5 / size), name


def test_the_value_does_not_depend_on_where_the_mode_is_searched():
    seen, data, design = field(responses.Poisson(), 400)
    model, evaluator = gx.Matern(0.7, 0.2, 0.8), VecchiaLaplace(seen, data, design, neighbours=10)
    first = evaluator.log_likelihood(model, responses.Poisson(), BETA)
    evaluator.log_likelihood(gx.Matern(3.0, 0.05, 0.8), responses.Poisson(), BETA + 1.0)
    again = evaluator.log_likelihood(model, responses.Poisson(), BETA)
    assert again == pytest.approx(first, rel=1e-12)


def test_offsets_are_on_the_scale_of_the_link():
    seen, data, design = field(responses.Poisson())
    model, exposure = gx.Matern(0.7, 0.2, 0.8), np.random.default_rng(0).random(150) + 0.5
    for kind in (DenseLaplace, VecchiaLaplace):
        plain = kind(seen, data, design)
        beside = kind(seen, data, np.column_stack((design, np.log(exposure))))
        with_offset = kind(seen, data, design, np.log(exposure))
        given = beside.log_likelihood(model, responses.Poisson(), [*BETA, 1.0])
        found = with_offset.log_likelihood(model, responses.Poisson(), BETA)
        assert found == pytest.approx(given, rel=1e-12)
        assert found != plain.log_likelihood(model, responses.Poisson(), BETA)


class Counted(responses.Response):
    """Poisson values without jets: a response of one's own."""

    name = "counted"

    def log_density(self, data, eta):
        from scipy.special import gammaln

        return data.values * eta - np.exp(eta) - gammaln(data.values + 1)

    def derivatives(self, data, eta, names=()):
        mean = np.exp(eta)
        slopes = np.array([data.values - mean, -mean, -mean])
        return responses.Slopes(self.log_density(data, eta), slopes, {})


@pytest.mark.parametrize("kind", [DenseLaplace, VecchiaLaplace])
def test_a_response_may_have_formulas_of_its_own(kind):
    seen, data, design = field(responses.Poisson())
    model, evaluator = gx.Matern(0.7, 0.2, 0.8), kind(seen, data, design)
    ours = evaluator.derivatives(model, Counted(), BETA)
    theirs = evaluator.derivatives(model, responses.Poisson(), BETA)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-12)
    assert ours.parameters == pytest.approx(theirs.parameters, rel=1e-8)


@pytest.mark.parametrize("kind", [DenseLaplace, VecchiaLaplace])
def test_a_model_without_a_factor_is_an_error(kind):
    line = np.linspace(0.0, 1e-9, 20)[:, None]
    evaluator = kind(gx.Observations(line, np.zeros(20)), Data(np.ones(20)))
    with pytest.raises(
        gx.errors.NotPositiveDefinite, match=r"not positive definite in FP64.*nugget"
    ):
        evaluator.log_likelihood(gx.Matern(1.0, 1e3, 2.5), responses.Poisson())


@pytest.mark.parametrize("kind", [DenseLaplace, VecchiaLaplace])
def test_counts_at_one_place_share_the_field_and_add_up(kind):
    seen, _, design = field(responses.Poisson(), 60)
    random = np.random.default_rng(4)
    several = np.repeat(np.arange(60), random.integers(1, 4, 60))
    random.shuffle(several)
    counts = Data(random.poisson(2.0, len(several)).astype(float))
    rows = gx.Observations(seen.locations[several], np.zeros(len(several)))
    model, response = gx.Matern(0.7, 0.2, 0.8), responses.Poisson()
    apart = kind(rows, counts, design[several]).derivatives(model, response, BETA)
    number = np.bincount(several).astype(float)
    sums = Data(np.bincount(several, counts.values))
    whole = kind(seen, sums, design, np.log(number)).derivatives(model, response, BETA)
    # the densities of counts given their sum
    from scipy.special import gammaln

    rest = gammaln(sums.values + 1).sum() - gammaln(counts.values + 1).sum()
    rest -= sums.values @ np.log(number)
    assert apart.log_likelihood == pytest.approx(whole.log_likelihood + rest, rel=1e-10)
    names = ("variance", "range", "smoothness")
    ours, theirs = ([each.parameters[name] for name in names] for each in (apart, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    np.testing.assert_allclose(apart.coefficients, whole.coefficients, rtol=1e-7, atol=1e-8)
    # with a nugget each value has a field of its own, and a small one changes little
    near = kind(
        rows, counts, design[several], **({"neighbours": 59} if kind is VecchiaLaplace else {})
    )
    exact = near.log_likelihood(model, response, BETA)
    beside = near.log_likelihood(model.replace(nugget=1e-6), response, BETA)
    assert beside == pytest.approx(exact, abs=2e-2)
    assert near.log_likelihood(model, response, BETA) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", [DenseLaplace, VecchiaLaplace])
def test_the_best_coefficients_are_those_of_a_search(kind):
    response = responses.NegativeBinomial(2.0)
    seen, data, design = field(response)
    evaluator, model = kind(seen, data, design), gx.Matern(0.7, 0.2, 0.8, 0.05)
    best, information, found = evaluator.at_best_coefficients(model, response)
    assert found.log_likelihood == evaluator.log_likelihood(model, response, best)
    # in standard errors
    scaled = found.coefficients / np.sqrt(information.diagonal())
    assert np.abs(scaled).max() < 1e-5
    h = 1e-4
    rows = [
        evaluator.derivatives(model, response, best + h * e).coefficients
        - evaluator.derivatives(model, response, best - h * e).coefficients
        for e in np.eye(2)
    ]
    # but for the changes of W
    np.testing.assert_allclose(information, -np.array(rows) / (2 * h), rtol=0.05, atol=0.5)
    again = evaluator.at_best_coefficients(model, response, best + 0.5)
    np.testing.assert_allclose(again[0], best, atol=1e-5)
    none = kind(seen, data).at_best_coefficients(model, response)
    assert none[0].shape == (0,)


@pytest.mark.parametrize("kind", [DenseLaplace, VecchiaLaplace])
def test_coefficients_that_the_values_do_not_determine_are_an_error(kind):
    seen, data, design = field(responses.Poisson())
    twice, model = np.column_stack((design, design[:, 0])), gx.Matern(0.7, 0.2, 0.8)
    zero = np.column_stack((design, np.zeros(len(design))))
    with pytest.raises(gx.errors.NotPositiveDefinite, match="do not determine the coefficients"):
        kind(seen, data, zero).at_best_coefficients(model, responses.Poisson())
    with pytest.raises(gx.errors.NotPositiveDefinite, match="do not determine the coefficients"):
        kind(seen, data, twice).at_best_coefficients(model, responses.Poisson())


def test_solves_that_do_not_converge_are_an_error(monkeypatch):
    monkeypatch.setattr(laplace, "MOST_ITERATIONS", 2)
    seen, data, design = field(responses.Poisson())
    with pytest.raises(gx.errors.NotPositiveDefinite, match="did not converge in 2 iterations"):
        VecchiaLaplace(seen, data, design, neighbours=3).log_likelihood(
            gx.Matern(0.7, 0.2, 0.8), responses.Poisson(), BETA
        )


def test_lanczos_quadrature_corrects_the_value_within_its_error(monkeypatch):
    response = responses.Poisson()
    seen, data, design = field(response, 300)
    model, misses = gx.Matern(0.9, 0.2, 0.5), []
    for m in (3, 6):
        evaluator = VecchiaLaplace(seen, data, design, neighbours=m)
        mode = evaluator.mode(model, response, BETA)
        u = dense(mode._prior.pattern, mode._prior.columns)
        exact = np.linalg.slogdet(u @ u.T + np.diag(mode._w))[1]
        left_out = -0.5 * (exact - mode._factor.log_determinant())
        # of so few locations the correction is exact
        change, error = mode.correction()
        assert change == pytest.approx(left_out, abs=1e-9)
        assert error == 0.0
        with monkeypatch.context() as patch:
            patch.setattr(laplace, "MOST_EXACT", 0)
            change, error = mode.correction(0.05)
            assert error <= 0.05
            assert abs(change - left_out) < 4 * error + 1e-4
            assert mode.correction(0.05) == (change, error)
            assert mode.correction(0.05, seed=1) != (change, error)
            # a smaller error needs more vectors, whose number has a limit
            limited = mode.correction(1e-4)
            assert 0.001 < limited[1] < 0.05
            assert abs(limited[0] - left_out) < 4 * limited[1]
            patch.setattr(laplace, "MOST_VECTORS", 8192)
            assert mode.correction(0.01)[1] <= 0.01
        misses.append(abs(left_out))
    # less is left out with more neighbours
    assert misses[1] < misses[0]


def test_nothing_is_corrected_where_the_factor_is_complete(monkeypatch):
    monkeypatch.setattr(laplace, "MOST_EXACT", 0)
    seen, data, design = field(responses.Poisson(), 40)
    evaluator = VecchiaLaplace(seen, data, design, neighbours=39)
    mode = evaluator.mode(gx.Matern(0.9, 0.2, 0.5), responses.Poisson(), BETA)
    assert mode.correction() == pytest.approx((0.0, 0.0), abs=1e-9)
