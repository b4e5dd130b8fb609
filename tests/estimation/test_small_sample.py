"""Inference on trends that allows for estimated covariance parameters, and sandwich errors."""

from math import log

import numpy as np
import pytest
from scipy import stats

import geomxp as gx
from geomxp.estimation.profile import problem_of
from geomxp.estimation.small_sample import MOST_CORRECTED_LOCATIONS, trend_inference

HALF = {"smoothness": 0.5}


def design_of(fit):
    return fit.trend.design(fit.observations.locations, fit.observations.covariates)


@pytest.fixture(scope="module")
def field():
    places = np.random.default_rng(5).random((70, 2))
    values = gx.simulate(gx.Matern(2.0, 0.1, 0.5, 0.3), places, seed=4)[0]
    return gx.Observations(places, values, covariates=np.sin(9 * places[:, :1]))


@pytest.mark.parametrize("reml", [False, True])
def test_without_spatial_correlation_it_is_the_t_of_least_squares(reml):
    rng = np.random.default_rng(1)
    seen = gx.Observations(rng.random((25, 2)), rng.standard_normal(25), rng.random((25, 2)))
    held = {"range": 1e-9, "smoothness": 0.5, "nugget": 0.0}
    fit = gx.fit(seen, fixed=held, trend="covariates", reml=reml)
    x = design_of(fit)
    rest = seen.values - x @ np.linalg.lstsq(x, seen.values, rcond=None)[0]
    errors = np.sqrt(rest @ rest / 22 * np.diag(np.linalg.inv(x.T @ x)))
    table = fit.coefficient_table(0.9)
    np.testing.assert_allclose(table.standard_error, errors, rtol=1e-9)
    np.testing.assert_allclose(table.degrees_of_freedom, 22, rtol=1e-9)
    half = stats.t.ppf(0.95, 22) * errors
    np.testing.assert_allclose(table.upper, fit.coefficients + half, rtol=1e-9)
    np.testing.assert_allclose(table.lower, fit.coefficients - half, rtol=1e-9)
    ratio = np.abs(fit.coefficients) / errors
    np.testing.assert_allclose(table.p_value, 2 * stats.t.sf(ratio, 22), rtol=1e-7)
    # the F of least squares, for both covariates
    small = seen.values - seen.values.mean()
    expected = ((small @ small - rest @ rest) / 2) / (rest @ rest / 22)
    test = fit.coefficient_test(["covariate1", "covariate2"])
    assert test.statistic == pytest.approx(expected, rel=1e-8)
    assert test.degrees_of_freedom == pytest.approx((2, 22), rel=1e-8)
    assert test.p_value == pytest.approx(stats.f.sf(expected, 2, 22), rel=1e-7)


def test_a_balanced_design_has_the_exact_degrees_of_freedom():
    # clusters far apart whose members nearly coincide: the one-way analysis of variance
    groups, members = 9, 4
    rng = np.random.default_rng(2)
    centre = np.repeat(1e4 * np.arange(groups), members)
    places = np.column_stack((centre, 1e-7 * np.tile(np.arange(members), groups)))
    effect = np.repeat(rng.standard_normal(groups), members)
    inside = np.tile([-3.0, -1.0, 1.0, 3.0], groups)
    between = np.repeat(np.tile([-1.0, 0.0, 1.0], 3), members)
    values = effect + 0.7 * rng.standard_normal(len(centre))
    seen = gx.Observations(places, values, np.column_stack((inside, between)))
    fit = gx.fit(seen, fixed=HALF | {"range": 1.0}, trend="covariates", reml=True)
    assert set(fit.free) == {"variance", "nugget"}
    table = fit.coefficient_table()
    # two coefficients are of the 9 means, one of the 27 differences
    expected = [groups - 2, groups * (members - 1) - 1, groups - 2]
    np.testing.assert_allclose(table.degrees_of_freedom, expected, rtol=1e-4)
    np.testing.assert_allclose(table.standard_error, fit.coefficient_errors, rtol=1e-6)


def kenward_roger(fit, contrasts):
    """Covariance, degrees of freedom and scale by the formulas of 1997 in P_i, Q_ij and Θ."""
    x, seen, model = design_of(fit), fit.observations, fit.model
    sigma = model(seen.locations, seen.locations) + model.nugget * np.eye(len(seen))
    inverse = np.linalg.inv(sigma)
    changes = []
    for name in fit.free:
        value = model.parameters()[name]
        ends = []
        for sign in (1, -1):
            moved = model.replace(**{name: value * (1 + sign * 1e-5)})
            nugget = moved.nugget * np.eye(len(seen))
            ends.append(moved(seen.locations, seen.locations) + nugget)
        changes.append((ends[0] - ends[1]) / (2e-5 * value))
    phi = np.linalg.inv(x.T @ inverse @ x)
    project = inverse - inverse @ x @ phi @ x.T @ inverse
    k, p = len(changes), len(phi)
    information = [[np.trace(project @ a @ project @ b) / 2 for b in changes] for a in changes]
    w = np.linalg.inv(information)
    first = [-x.T @ inverse @ a @ inverse @ x for a in changes]
    spread = np.zeros((p, p))
    for i in range(k):
        for j in range(k):
            q = x.T @ inverse @ changes[i] @ inverse @ changes[j] @ inverse @ x
            spread += w[i, j] * (q - first[i] @ phi @ first[j])
    adjusted = phi + 2 * phi @ spread @ phi
    c, size = contrasts.T, len(contrasts)
    theta = c @ np.linalg.inv(c.T @ phi @ c) @ c.T
    each = [theta @ phi @ matrix @ phi for matrix in first]
    a1 = sum(w[i, j] * np.trace(each[i]) * np.trace(each[j]) for i in range(k) for j in range(k))
    a2 = sum(w[i, j] * np.trace(each[i] @ each[j]) for i in range(k) for j in range(k))
    b = (a1 + 6 * a2) / (2 * size)
    g = ((size + 1) * a1 - (size + 4) * a2) / ((size + 2) * a2)
    c1, c2, c3 = (n / (3 * size + 2 * (1 - g)) for n in (g, size - g, size + 2 - g))
    mean = 1 / (1 - a2 / size)
    variance = (2 / size) * (1 + c1 * b) / ((1 - c2 * b) ** 2 * (1 - c3 * b))
    rho = variance / (2 * mean**2)
    m = 4 + (size + 2) / (size * rho - 1)
    return adjusted, m, m / (mean * (m - 2))


def test_it_equals_the_published_formulas_in_other_coordinates(field):
    fit = gx.fit(field, fixed=HALF, trend="covariates", reml=True)
    assert fit.free == ("variance", "range", "nugget")
    found = trend_inference(fit)
    for contrast, degrees in zip(np.eye(2), found.degrees_of_freedom, strict=True):
        covariance, m, scale = kenward_roger(fit, contrast[None])
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6)
        assert degrees == pytest.approx(m, rel=1e-6)
        assert scale == pytest.approx(1.0, rel=1e-6)


def test_the_f_test_equals_the_published_formulas():
    # short correlation and many locations: the moments exist
    places = np.random.default_rng(6).random((160, 2))
    values = gx.simulate(gx.Matern(1.0, 0.03, 0.5, 0.5), places, seed=11)[0]
    seen = gx.Observations(places, values, covariates=np.sin(25 * places))
    fit = gx.fit(seen, fixed=HALF, trend="covariates", reml=True)
    contrasts = np.eye(3)[1:]
    covariance, m, scale = kenward_roger(fit, contrasts)
    values = fit.coefficients[1:]
    statistic = scale / 2 * values @ np.linalg.solve(covariance[1:, 1:], values)
    test = fit.coefficient_test(["covariate1", "covariate2"])
    assert test.statistic == pytest.approx(statistic, rel=1e-6)
    assert test.degrees_of_freedom == pytest.approx((2, m), rel=1e-6)
    assert m > 10


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
def test_units_of_values_and_locations_do_not_matter(field, reml):
    other = gx.Observations(3e5 * field.locations, 7e3 * field.values, field.covariates)
    fits = [gx.fit(seen, fixed=HALF, trend="covariates", reml=reml) for seen in (field, other)]
    ours, theirs = (fit.coefficient_table() for fit in fits)
    np.testing.assert_allclose(theirs.standard_error, 7e3 * ours.standard_error, rtol=1e-4)
    np.testing.assert_allclose(theirs.degrees_of_freedom, ours.degrees_of_freedom, rtol=1e-3)
    np.testing.assert_allclose(theirs.p_value, ours.p_value, rtol=1e-3)


def test_ml_comes_near_reml(field):
    ml, reml = (gx.fit(field, fixed=HALF, trend="covariates", reml=reml) for reml in (False, True))
    target = reml.coefficient_table().standard_error
    away = [abs(np.log(errors / target)) for errors in
            (ml.coefficient_table().standard_error, ml.coefficient_errors)]  # fmt: skip
    assert (away[0] < away[1]).all()


def test_the_table_is_printed_saved_and_of_many_locations_plain(field, tmp_path):
    fit = gx.fit(field, fixed=HALF, trend="covariates")
    table = fit.coefficient_table()
    frame = fit.to_frame().set_index("parameter")
    assert frame.standard_error["intercept"] == table.standard_error[0]
    assert f"95 % {table.lower[1]:.6g} to {table.upper[1]:.6g}" in str(fit)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json").coefficient_table()
    assert again.equals(table)
    entry = fit.to_dict()["trend"]["table"]
    assert entry["p_value"] == table.p_value.tolist()
    places = np.random.default_rng(0).random((MOST_CORRECTED_LOCATIONS + 1, 2))
    many = gx.Observations(places, np.sin(30 * places[:, 0]) + places[:, 1])
    held = {"range": 0.1, "smoothness": 0.5, "nugget": 0.1}
    plain = gx.fit(many, method=gx.Vecchia(5), fixed=held)
    assert plain.coefficient_table().standard_error[0] == plain.coefficient_errors[0]
    assert plain.to_dict()["trend"]["table"]["degrees_of_freedom"] == [None]
    with pytest.raises(gx.InvalidInput, match=r"at most 1,500 locations.*likelihood_ratio_test"):
        plain.coefficient_test()
    with pytest.raises(gx.InvalidInput, match=r"must be of: intercept, covariate1\. Got 'depth'"):
        fit.coefficient_test(["depth"])


def test_a_fit_without_a_trend_has_an_empty_table(field):
    fit = gx.fit(field, fixed=HALF, trend="zero")
    assert len(fit.coefficient_table()) == 0
    assert "trend:" not in str(fit)


# The Bartlett correction of likelihood ratios


def test_bartlett_of_independent_data_is_the_mean_of_the_exact_statistic():
    rng = np.random.default_rng(1)
    n, q, p = 400, 3, 5
    seen = gx.Observations(rng.random((n, 2)), rng.standard_normal(n), rng.random((n, p - 1)))
    held = {"range": 1e-9, "smoothness": 0.5, "nugget": 0.0}
    fit = gx.fit(seen, fixed=held, trend="covariates")
    mean = trend_inference(fit, restricted=False).bartlett(np.eye(p)[-q:])
    # LR = -n log B with B of the beta distribution
    from scipy.special import digamma

    exact = n * (digamma((n - p + q) / 2) - digamma((n - p) / 2)) / q
    assert abs(mean - exact) < 4 * (exact - 1) ** 2
    assert mean - 1 == pytest.approx((p + 1 - q / 2) / (n - p), rel=1e-9)


@pytest.mark.slow
def test_bartlett_is_near_the_mean_of_simulated_statistics():
    places, draws = np.random.default_rng(3).random((50, 2)), 90
    truth = gx.Matern(1.0, 0.08, 0.5)
    statistics, means = [], []
    held = HALF | {"nugget": 0.0}
    for values in gx.simulate(truth, places, draws=draws, seed=8):
        seen = gx.Observations(places, values)
        fits = [gx.fit(seen, fixed=held, trend=trend) for trend in ("constant", "linear")]
        statistics.append(2 * (fits[1].log_likelihood - fits[0].log_likelihood))
        found = trend_inference(fits[1], restricted=False)
        means.append(found.bartlett(np.eye(3)[1:]))
    error = np.std(statistics) / np.sqrt(draws) / 2
    assert np.mean(means) > 1 + 2 * error
    assert abs(np.mean(statistics) / 2 - np.mean(means)) < 3 * error


# Sandwich errors of Vecchia fits


@pytest.fixture(scope="module")
def smooth():
    places = np.random.default_rng(8).random((150, 2))
    return gx.Observations(places, gx.simulate(gx.Matern(1.0, 0.1, 1.5, 0.05), places, seed=3)[0])


def test_the_variance_of_the_score_is_that_of_the_exact_model(smooth, monkeypatch):
    model, names = gx.Matern(1.0, 0.1, 1.5, 0.05), ("variance", "range", "nugget")
    evaluator = gx.Vecchia(3).prepare(smooth)
    one = np.eye(len(smooth))
    sigma = model(smooth.locations, smooth.locations) + model.nugget * one
    forms = []
    for name in names:
        value, step = model.parameters()[name], 1e-5
        ends = [
            evaluator.factorize(model.replace(**{name: value * (1 + s * step)})).solve(one)
            for s in (1, -1)
        ]
        forms.append((ends[0] - ends[1]) / (2 * step * value) @ sigma)
    exact = np.array([[np.trace(a @ b) / 2 for b in forms] for a in forms])
    information = evaluator.expected_information(model, names)
    root = np.linalg.cholesky(information)
    # four Monte Carlo errors
    monkeypatch.setattr("geomxp.likelihood.vecchia.SCORE_DRAWS", 4096)
    ours = np.linalg.solve(root, np.linalg.solve(root, evaluator.score_variance(model, names)).T)
    theirs = np.linalg.solve(root, np.linalg.solve(root, exact).T)
    # the approximation is far from exact
    assert np.linalg.eigvalsh(theirs)[-1] > 1.1
    np.testing.assert_allclose(ours, theirs, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
def test_with_all_neighbours_the_sandwich_is_the_information(smooth, reml):
    fit = gx.fit(smooth, method=gx.Vecchia(149), fixed={"smoothness": 1.5}, reml=reml)
    np.testing.assert_allclose(fit.score_variance, fit.information, rtol=1e-5)
    exact = gx.fit(smooth, fixed={"smoothness": 1.5}, reml=reml)
    assert exact.score_variance is None
    for name in fit.free:
        assert fit.standard_errors[name] == pytest.approx(exact.standard_errors[name], rel=1e-3)


def test_wald_intervals_and_files_have_the_sandwich(smooth, tmp_path):
    fit = gx.fit(smooth, method=gx.Vecchia(6), fixed={"smoothness": 1.5})
    inverse = np.linalg.inv(fit.information)
    covariance = inverse @ fit.score_variance @ inverse
    lower, upper = fit.confidence_intervals(0.95, names=["range"])["range"]
    j = fit.free.index("range")
    assert log(upper / lower) / 2 == pytest.approx(1.959964 * covariance[j, j] ** 0.5, rel=1e-6)
    relative = fit.standard_errors["range"] / fit.model.range
    assert relative == pytest.approx(covariance[j, j] ** 0.5, rel=1e-9)
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.score_variance, fit.score_variance)
    assert again.confidence_intervals() == fit.confidence_intervals()


def test_draws_of_many_locations_come_from_a_richer_approximation(smooth, monkeypatch):
    model, names = gx.Matern(1.0, 0.1, 1.5, 0.05), ("variance", "range", "nugget")
    evaluator = gx.Vecchia(6).prepare(smooth)
    exact = evaluator.score_variance(model, names)
    monkeypatch.setattr("geomxp.likelihood.vecchia.EXACT_DRAWS_LOCATIONS", 10)
    np.testing.assert_allclose(evaluator.score_variance(model, names), exact, rtol=0.03)


def test_the_evaluator_is_unchanged_by_the_variance_of_its_score(smooth):
    fit = gx.fit(smooth, method=gx.Vecchia(6), fixed={"smoothness": 1.5})
    problem, model, _ = problem_of(fit)
    before = problem.evaluator(model).log_likelihood
    problem.evaluator.score_variance(model, fit.free)
    assert problem.evaluator(model.replace()).log_likelihood == before


def test_a_model_that_cannot_be_simulated_keeps_its_errors_and_warns(smooth, monkeypatch):
    monkeypatch.setattr("geomxp.likelihood.vecchia.EXACT_DRAWS_LOCATIONS", 0)
    # three neighbours have a Cholesky factor in FP64, sixty have none
    model, held = gx.Matern(1.0, 0.2, 10.0), ("range", "smoothness", "nugget")
    with pytest.warns(gx.GeomxpWarning, match=r"without the correction.*method=gx.Exact\(\)"):
        fit = gx.fit(smooth, model, gx.Vecchia(3), fixed=held)
    assert fit.score_variance is None
    error = np.linalg.inv(fit.information)[0, 0] ** 0.5
    assert fit.standard_errors["variance"] == pytest.approx(error * fit.model.variance)
