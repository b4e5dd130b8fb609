from itertools import pairwise

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.ordering import order_places
from geomxp.vecchia import blocks

U = 2.0**-53


def tolerance_of(seen, model):
    return 10 * len(seen) * U * testing.condition_number(model, seen)


def degrees(n=50, seed=3):
    """Observations in longitude and latitude over a region that crosses the date line."""
    random = np.random.default_rng(seed)
    places = np.column_stack((170 + 20 * random.random(n), -30 + 20 * random.random(n)))
    return places, random.standard_normal(n)


CASES = {
    "line": (testing.observations(40, d=1), gx.Matern(1.3, 0.3, 0.5, 0.05)),
    "plane": (testing.observations(50), testing.MODEL),
    "anisotropic": (testing.observations(50), gx.Matern(1.7, 0.2, 1.5, 0.1, (30.0, 0.6))),
    "space": (testing.observations(50, d=3), gx.Matern(0.7, 0.4, 2.2, 0.2)),
    "chordal": (gx.Observations(*degrees(), metric="chordal"), gx.Matern(2.0, 900.0, 1.0, 0.1)),
    "great-circle": (
        gx.Observations(*degrees(), metric="great-circle"),
        gx.Matern(2.0, 900.0, 0.4, 0.1),
    ),
    "hardly any field": (testing.observations(50), gx.Matern(1e-3, 0.2, 0.8, 1.0)),
    "no nugget": (testing.observations(50), gx.Matern(1.0, 0.2, 0.5)),
}


@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("ordering", ["maximin", "morton"])
def test_vecchia_with_all_predecessors_obeys(law, ordering):
    testing.check_likelihood(gx.Vecchia(59, ordering), laws=[law])


INVARIANT = (
    testing.knows_no_unit_of_length,
    testing.scales_with_the_values,
    testing.does_not_see_what_the_trend_takes,
    testing.profiles_the_variance,
    testing.gradient_is_the_slope,
)


@pytest.mark.parametrize("law", INVARIANT, ids=lambda law: law.__name__)
@pytest.mark.parametrize("neighbours", [0, 1, 6])
def test_vecchia_with_few_neighbours_obeys(law, neighbours):
    testing.check_likelihood(gx.Vecchia(neighbours), laws=[law])


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_with_all_predecessors_everything_is_exact(case, reml):
    seen, model = CASES[case]
    design = np.column_stack((np.ones(len(seen)), seen.locations))
    exact = gx.Exact().prepare(seen, design, reml)
    ours = gx.Vecchia(len(seen) - 1).prepare(seen, design, reml)
    tolerance = 100 * tolerance_of(seen, model)
    expected, found = exact(model), ours(model)
    for name in (
        "log_likelihood",
        "log_determinant",
        "quadratic_form",
        "coefficients",
        "coefficient_covariance",
        "log_determinant_of_information",
    ):
        value = getattr(expected, name)
        np.testing.assert_allclose(
            getattr(found, name), value, rtol=0, atol=tolerance * max(1, np.abs(value).max())
        )
    slopes, theirs = ours.gradient(model), exact.gradient(model)
    information = exact.expected_information(model)
    # slopes in units of their own standard deviation
    scale = np.sqrt(np.diag(information))
    for name, sd in zip(theirs, scale, strict=True):
        assert abs(slopes[name] - theirs[name]) <= 100 * tolerance * sd, name
    # derivatives of the trend's share are differences
    allowed = 100 * tolerance + (1e-7 if reml else 0.0)
    relative = (ours.expected_information(model) - information) / np.outer(scale, scale)
    assert np.abs(relative).max() <= allowed


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("neighbours", [0, 1, 3, 10, 30])
def test_it_is_the_product_of_conditional_densities(case, neighbours):
    seen, model = CASES[case]
    z = seen.values
    sigma = model(seen.locations, seen.locations, seen.metric) + model.nugget * np.eye(len(seen))
    points = model.isotropic(seen.locations, seen.metric)
    if model.anisotropy is not None:
        points = seen.locations
    expected, before = 0.0, []
    for i in order_places(seen.locations, "maximin", seen.metric):
        apart = ((points[before] - points[i]) ** 2).sum(axis=1)
        near = np.array(before, dtype=int)[np.argsort(apart, kind="stable")[:neighbours]]
        weights = np.linalg.solve(sigma[np.ix_(near, near)], sigma[near, i])
        variance = sigma[i, i] - weights @ sigma[near, i]
        expected -= 0.5 * (
            np.log(2 * np.pi * variance) + (z[i] - weights @ z[near]) ** 2 / variance
        )
        before.append(i)
    found = gx.log_likelihood(seen, model, gx.Vecchia(neighbours)).log_likelihood
    assert abs(found - expected) <= 10 * tolerance_of(seen, model) * abs(expected)


@pytest.mark.slow
def test_information_is_the_covariance_of_the_score_of_each_conditional():
    """Σ over places of E(s s') = -E(∂s): by differences of the expected score."""
    seen = testing.observations(40)
    model, names = gx.Matern(1.2, 0.25, 0.9, 0.2), ("variance", "range", "smoothness", "nugget")
    evaluator = gx.Vecchia(5).prepare(seen)
    information = evaluator.expected_information(model, names)
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    root = np.linalg.cholesky(sigma)

    def expected_score(at):
        # the score is quadratic in z: the mean of those at √n times the columns of the root
        score = np.zeros(len(names))
        for column in root.T:
            part = gx.Observations(seen.locations, np.sqrt(len(seen)) * column)
            found = gx.Vecchia(5).prepare(part).gradient(at, names)
            score += np.array([found[name] for name in names]) / len(seen)
        return score

    np.testing.assert_allclose(expected_score(model), 0.0, atol=1e-9)
    values = model.parameters()
    for j, name in enumerate(names):
        step = 1e-3 * values[name]
        high, low, higher, lower = (
            expected_score(gx.Matern.from_parameters(values | {name: values[name] + k * step}))
            for k in (1, -1, 2, -2)
        )
        slope = -(8 * (high - low) - (higher - lower)) / (12 * step)
        np.testing.assert_allclose(information[j], slope, rtol=1e-6)


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    seen = testing.observations(3000)
    design, found = np.column_stack((np.ones(3000), seen.locations)), []
    for cores in (1, 2, 4):
        monkeypatch.setattr("geomxp.runtime.devices.usable_cores", lambda cores=cores: cores)
        evaluator = gx.Vecchia(20).prepare(seen, design)
        value = evaluator(testing.MODEL).log_likelihood
        factor = evaluator.factorize(testing.MODEL)
        found.append(
            (
                value,
                *evaluator.gradient(testing.MODEL).values(),
                *evaluator.expected_information(testing.MODEL).ravel(),
                factor.log_determinant(),
                factor.weights.sum(),
            )
        )
    assert found[0] == found[1] == found[2]


def test_value_does_not_depend_on_what_else_is_computed():
    seen = testing.observations(200)
    first, second = (gx.Vecchia(10).prepare(seen, np.ones((200, 1))) for _ in range(2))
    second.gradient(testing.MODEL)
    assert first(testing.MODEL).log_likelihood == second(testing.MODEL).log_likelihood
    assert first.gradient(testing.MODEL, ["nugget"])["nugget"] == pytest.approx(
        second.gradient(testing.MODEL)["nugget"], rel=1e-12
    )


def test_divergence_falls_as_neighbours_are_added_and_ends_at_0():
    places, model = testing.places(150, seed=4), gx.Matern(1.0, 0.3, 1.2, 0.01)
    kl = [gx.kl_divergence(model, places, gx.Vecchia(m)).kl for m in (0, 1, 2, 5, 10, 20, 40, 149)]
    assert all(more < less for less, more in pairwise(kl))
    assert abs(kl[-1]) < 1e-8


def test_divergence_is_that_of_the_two_gaussians():
    seen, model = testing.observations(60), testing.MODEL
    factor = gx.Vecchia(5).prepare(seen).factorize(model)
    precision = factor.solve(np.eye(60))
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(60)
    logs = np.linalg.slogdet(precision)[1] + np.linalg.slogdet(sigma)[1]
    expected = 0.5 * (np.trace(precision @ sigma) - 60 - logs)
    found = gx.kl_divergence(model, seen, gx.Vecchia(5))
    assert found.kl == pytest.approx(expected, rel=1e-9)
    form = seen.values @ precision @ seen.values
    assert found.quadratic_form_error == pytest.approx(
        form - gx.log_likelihood(seen, model).quadratic_form, rel=1e-8
    )
    assert found.to_dict()["neighbours"] == 5
    assert "neighbours                 5" in str(found)


def test_maximin_order_needs_fewer_neighbours_than_morton():
    """Guinness (2018, Technometrics 60:415)."""
    places, model = testing.places(400, seed=5), gx.Matern(1.0, 0.3, 0.5)
    maximin, morton = (
        gx.kl_divergence(model, places, gx.Vecchia(15, name)).kl for name in ("maximin", "morton")
    )
    assert maximin < morton / 2


def test_a_permutation_is_an_order_and_follows_its_rows():
    seen, order = testing.observations(60), np.random.default_rng(2).permutation(60)
    ours = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(6, order)).log_likelihood
    sorted_ = gx.log_likelihood(seen.subset(order), testing.MODEL, gx.Vecchia(6, "given"))
    assert ours == pytest.approx(sorted_.log_likelihood, rel=1e-13)
    maximin = order_places(seen.locations, "maximin")
    named = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(6)).log_likelihood
    given = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(6, maximin)).log_likelihood
    assert given == named
    rows = np.random.default_rng(3).permutation(60)
    moved = gx.Vecchia(6, order).of_rows(rows)
    found = gx.log_likelihood(seen.subset(rows), testing.MODEL, moved).log_likelihood
    assert found == pytest.approx(ours, rel=1e-13)


def test_more_neighbours_than_places_are_all_of_them():
    seen = testing.observations(30)
    all_, more = (
        gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(m)).log_likelihood for m in (29, 1000)
    )
    assert all_ == more


def test_without_neighbours_observations_are_independent():
    seen = testing.observations(30)
    found = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(0))
    assert found.log_determinant == pytest.approx(30 * np.log(1.8), rel=1e-14)
    assert found.quadratic_form == pytest.approx(seen.values @ seen.values / 1.8, rel=1e-14)


def test_twins_have_a_likelihood_with_a_nugget_only():
    seen = gx.Observations([[0, 0], [1, 0], [2, 5], [1, 0]], [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(gx.NotPositiveDefinite, match="rows 2 and 4 are at the same location"):
        gx.log_likelihood(seen, gx.Matern(1.0, 1.0, 0.5), gx.Vecchia(2))
    model = gx.Matern(1.0, 1.0, 0.5, 0.1)
    found = gx.log_likelihood(seen, model, gx.Vecchia(3)).log_likelihood
    assert found == pytest.approx(gx.log_likelihood(seen, model).log_likelihood, rel=1e-14)


def test_a_search_sees_minus_infinity_where_an_answer_names_the_rows():
    seen = gx.Observations(np.random.default_rng(0).random((200, 2)), np.zeros(200))
    model = gx.Matern(1.0, 10.0, 5.0)
    evaluation = gx.Vecchia(30).prepare(seen)(model)
    assert evaluation.log_likelihood == -np.inf
    assert evaluation.outcome.ending == "NOT_POSITIVE_DEFINITE"
    words = r"row \d+ and its 30 neighbours is not positive .* rows \d+ and \d+: give the model a"
    for ask in (
        lambda: gx.log_likelihood(seen, model, gx.Vecchia(30)),
        lambda: gx.Vecchia(30).prepare(seen).factorize(model),
        lambda: gx.Vecchia(30).prepare(seen).gradient(model),
    ):
        with pytest.raises(gx.NotPositiveDefinite, match=words):
            ask()


def test_values_at_the_ends_of_fp64_have_a_likelihood():
    seen = testing.observations(40)
    plain = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(9)).log_likelihood
    for c in (2.0**500, 2.0**-500):
        model = gx.Matern(1.7 * c**2, 0.2, 0.8, 0.1 * c**2)
        scaled = gx.Observations(seen.locations, seen.values * c)
        found = gx.log_likelihood(scaled, model, gx.Vecchia(9)).log_likelihood
        assert found == pytest.approx(plain - 40 * np.log(c), rel=1e-12)


def test_a_large_mean_costs_no_digits():
    seen = testing.observations(60)
    design = np.ones((60, 1))
    far = gx.Observations(seen.locations, seen.values + 2.0**30)
    slopes, moved = (
        gx.Vecchia(10).prepare(part, design, True).gradient(testing.MODEL) for part in (seen, far)
    )
    for name, slope in slopes.items():
        # the values themselves are rounded: 2^30 u each
        assert moved[name] == pytest.approx(slope, rel=1e-5)


def test_the_table_grows_where_places_are_closer_than_it_reaches(monkeypatch):
    """Places of very different distances, in one pass."""
    random = np.random.default_rng(1)
    places = np.vstack((random.random((40, 2)), 0.5 + 1e-12 * random.random((10, 2))))
    seen, model = gx.Observations(places, random.standard_normal(50)), testing.MODEL
    found = gx.log_likelihood(seen, model, gx.Vecchia(49)).log_likelihood
    assert found == pytest.approx(gx.log_likelihood(seen, model).log_likelihood, rel=1e-11)


def test_slices_change_nothing_but_rounding(monkeypatch):
    seen = testing.observations(100)
    whole = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(7)).log_likelihood
    monkeypatch.setattr(blocks, "SLICE_LOCATIONS", 3)
    parts = gx.log_likelihood(seen, testing.MODEL, gx.Vecchia(7)).log_likelihood
    assert parts == pytest.approx(whole, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"neighbours": -1}, "`neighbours` must be a whole number of at least 0. Got -1"),
        ({"neighbours": 2.5}, "`neighbours` must be a whole number"),
        ({"neighbours": True}, "`neighbours` must be a whole number"),
        ({"ordering": "random"}, "`ordering` must be one of: maximin, morton, hilbert, given"),
        ({"ordering": [0, 0, 1]}, "a permutation of the rows"),
        ({"ordering": [0.5, 1.5]}, "a permutation of the rows"),
        ({"ordering": [[0, 1]]}, "a permutation of the rows"),
        ({"on": "tpu"}, '`on` must be "cpu"'),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Vecchia(**arguments)


def test_a_permutation_of_other_rows_is_refused():
    with pytest.raises(gx.InvalidInput, match=r"permutation of the 60 rows\. Got 3"):
        gx.Vecchia(ordering=[2, 0, 1]).prepare(testing.observations(60))


def test_smoothness_without_a_table_is_refused():
    with pytest.raises(gx.InvalidInput, match="at most 50"):
        gx.log_likelihood(testing.observations(), gx.Matern(1.0, 0.1, 60.0, 1.0), gx.Vecchia())
