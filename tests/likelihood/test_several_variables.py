"""Likelihoods, predictions and draws of several variables, beside dense formulas."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.errors import DuplicateLocations

MODELS = {
    "independent": gx.Independent((1.0, 2.0), (0.2, 0.1), (0.5, 1.0), (0.1, 0.2)),
    "parsimonious": gx.ParsimoniousMatern((1.0, 2.0), 0.15, (0.5, 1.0), 0.4, (0.1, 0.2)),
    "flexible": gx.FlexibleMatern((1.0, 2.0), (0.2, 0.1), (0.5, 1.0), -0.4, (0.1, 0.2)),
    "coregionalization": gx.Coregionalization((1.0, 0.5, 1.0), (0.2, 0.1), (0.5, 1.0), (0.1, 0.2)),
}
EACH = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
CORRELATED = {
    "parsimonious, correlated nuggets": replace(
        MODELS["parsimonious"], nugget_covariance=-0.12, nugget=(0.1, 0.2)
    ),
    "coregionalization, correlated nuggets": replace(
        MODELS["coregionalization"], nugget_covariance=0.07
    ),
}
ALL = MODELS | CORRELATED
EACH_OR_CORRELATED = pytest.mark.parametrize("model", ALL.values(), ids=ALL)


def data(seed=0, n=60, **about):
    """Values of two variables at n places each, half of them common."""
    rng = np.random.default_rng(seed)
    places = rng.random((3 * n // 2, 2))
    order = np.concatenate((np.arange(n), np.arange(n // 2, 3 * n // 2)))
    kinds = np.repeat([0, 1], n)
    # interleaved by place
    by_place = np.lexsort((kinds, order))
    order, kinds = order[by_place], kinds[by_place]
    values = rng.standard_normal(2 * n) * (1.0 + kinds)
    return gx.Observations(places[order], values, variable=kinds, **about)


def noise_of(model, seen):
    """Covariance matrix of the noise, from the parameters alone."""
    values, kinds = model.parameters(), seen.variable
    own = np.array([values["nugget_1"], values["nugget_2"]])[kinds]
    own = own if seen.replicates is None else own / seen.replicates
    own = own if seen.error_variance is None else own + seen.error_variance
    together = (seen.locations[:, None] == seen.locations).all(axis=2)
    between = together & (kinds[:, None] != kinds)
    return np.diag(own) + values.get("nugget_covariance_12", 0.0) * between


def dense(model, seen, design, reml=False):
    """ℓ, β̂ and Σ by the textbook."""
    sigma = model(seen.inputs, seen.inputs) + noise_of(model, seen)
    inverse, z, (n, p) = np.linalg.inv(sigma), seen.values, design.shape
    information = design.T @ inverse @ design
    beta = np.linalg.solve(information, design.T @ inverse @ z) if p else np.zeros(0)
    r = z - design @ beta
    logs = np.linalg.slogdet(sigma)[1]
    if reml:
        logs += np.linalg.slogdet(information)[1]
    value = -0.5 * (r @ inverse @ r + logs + (n - p * reml) * np.log(2 * np.pi))
    return value, beta, sigma


METHODS = [
    gx.Exact(),
    gx.Exact(tile=32),
    gx.Exact(tile=16, memory="1 GB"),
    gx.Exact(gx.by_tile_norm(1e-12), 32),
    gx.Exact(gx.uniform("fp32"), 32, refine="cg"),
    gx.Vecchia(119),
]


@pytest.mark.slow
@EACH_OR_CORRELATED
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("reml", [False, True])
def test_log_likelihoods_are_those_of_dense_formulas(model, method, reml):
    seen = data()
    design = np.eye(2)[seen.variable]
    evaluator = method.prepare(seen, design, reml)
    value, beta, _ = dense(model, seen, design, reml)
    evaluation = evaluator(model)
    accuracy = 1e-7 if method.noisy else 1e-11
    np.testing.assert_allclose(evaluation.log_likelihood, value, rtol=accuracy)
    np.testing.assert_allclose(evaluation.coefficients, beta, rtol=1e-5 if method.noisy else 1e-9)


@pytest.mark.slow
@EACH_OR_CORRELATED
@pytest.mark.parametrize("reml", [False, True])
def test_scores_are_slopes_and_informations_are_traces(model, reml):
    seen = data()
    design, names = np.eye(2)[seen.variable], tuple(model.parameters())
    exact, near = (m.prepare(seen, design, reml) for m in (gx.Exact(), gx.Vecchia(119)))
    slopes = []
    for name, value in model.parameters().items():
        step = 1e-5 * max(abs(value), 0.1)
        high, low = (
            dense(model.replace(**{name: value + k * step}), seen, design, reml)[0] for k in (1, -1)
        )
        slopes.append((high - low) / (2 * step))
    score = exact.derivatives(model, names).score
    np.testing.assert_allclose(score, slopes, rtol=1e-6, atol=1e-6 * np.abs(slopes).max())
    np.testing.assert_allclose(near.derivatives(model, names).score, score, rtol=1e-9, atol=1e-10)
    sigma = dense(model, seen, design)[2]
    inverse, d = np.linalg.inv(sigma), model.derivatives(seen.inputs, seen.inputs)
    noise = model.noise(seen.inputs)
    d |= {n: np.diag(noise.derivative(n)) for n in noise.names}
    products = [inverse @ d[name] for name in names]
    want = 0.5 * np.array([[np.trace(a @ b) for b in products] for a in products])
    found = near.derivatives(model, names).information
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    if not reml:
        np.testing.assert_allclose(exact.expected_information(model), want, rtol=1e-9, atol=1e-9)
    observed = exact.observed_information(model, names)
    step, name = 1e-5, names[0]
    ends = [
        exact.derivatives(model.replace(**{name: model.parameters()[name] + k * step}), names).score
        for k in (1, -1)
    ]
    np.testing.assert_allclose(observed[0], (ends[1] - ends[0]) / (2 * step), rtol=1e-4, atol=1e-3)


@EACH_OR_CORRELATED
def test_known_errors_and_means_of_several_measurements_are_noise(model):
    rng = np.random.default_rng(4)
    replicates = rng.integers(1, 5, 120) if model.nugget_covariance is None else None
    seen = data(error_variance=rng.random(120), replicates=replicates)
    design = np.eye(2)[seen.variable]
    value = dense(model, seen, design)[0]
    for method in (gx.Exact(), gx.Vecchia(119)):
        found = method.prepare(seen, design)(model).log_likelihood
        np.testing.assert_allclose(found, value, rtol=1e-11)


@EACH
def test_replicates_of_a_variable_are_reduced_to_their_means(model):
    seen = data()
    twice = gx.Observations(
        np.vstack((seen.locations, seen.locations[:9])),
        np.r_[seen.values, seen.values[:9] + 0.3],
        variable=np.r_[seen.variable, seen.variable[:9]],
    )
    value = dense(model, twice, np.zeros((129, 0)))[0]
    for method in (gx.Exact(), gx.Vecchia(128)):
        found = gx.log_likelihood(twice, model, method, trend="zero").log_likelihood
        np.testing.assert_allclose(found, value, rtol=1e-11)


@EACH_OR_CORRELATED
@pytest.mark.parametrize("variable", [0, 1])
def test_cokriging_is_that_of_dense_formulas(model, variable):
    seen = data()
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="zero")
    new = np.random.default_rng(8).random((9, 2))
    targets = gx.Inputs(new, variable=np.full(9, variable))
    _, _, sigma = dense(model, seen, np.zeros((120, 0)))
    k = model(seen.inputs, targets)
    mean = k.T @ np.linalg.solve(sigma, seen.values)
    variance = model.diagonal(targets) - np.einsum("ij,ij->j", k, np.linalg.solve(sigma, k))
    found = gx.predict(fit, new, variable=variable)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)
    np.testing.assert_allclose(found.noise, model.nugget[variable])
    near = gx.predict(fit, new, variable=variable, neighbours=120)
    np.testing.assert_allclose(near.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(near.variance, variance, rtol=1e-8)


def test_the_other_variable_helps_unless_they_are_independent():
    new = np.random.default_rng(8).random((9, 2))
    for name, model in MODELS.items():
        seen = data()
        own = seen.subset(seen.variable == 0)
        both, alone = (
            gx.predict(
                gx.fit(one, model, fixed=tuple(model.parameters()), trend="zero"), new, variable=0
            )
            for one in (seen, own)
        )
        if name == "independent":
            np.testing.assert_allclose(both.variance, alone.variance, rtol=1e-12)
        else:
            assert (both.variance < alone.variance).all()


@EACH_OR_CORRELATED
@pytest.mark.parametrize("method", [None, gx.Vecchia(10)], ids=str)
def test_draws_have_the_covariance_of_the_model(model, method):
    seen = data(n=10)
    draws = gx.simulate(
        model, seen.locations, variable=seen.variable, draws=20_000, seed=1, method=method
    )
    want = dense(model, seen, np.zeros((20, 0)))[2]
    error = np.sqrt((want**2 + np.outer(np.diag(want), np.diag(want))) / 20_000)
    if method is None:
        assert (np.abs(draws.T @ draws / 20_000 - want) < 5 * error).all()
    else:
        np.testing.assert_allclose(draws.var(axis=0), np.diag(want), rtol=0.06)


@EACH_OR_CORRELATED
def test_leaving_one_value_out_uses_the_other_variable_at_its_place(model):
    seen = data(n=20)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="zero")
    found = gx.leave_one_out(fit)
    _, _, sigma = dense(model, seen, np.zeros((40, 0)))
    inverse = np.linalg.inv(sigma)
    want = seen.values - inverse @ seen.values / np.diag(inverse)
    np.testing.assert_allclose(found.mean, want, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.variance, 1 / np.diag(inverse), rtol=1e-9)
    # refitting a fold leaves its noise correlated with that of the other variable there
    folds = gx.cross_validate(fit, folds=np.arange(40), progress=False)
    np.testing.assert_allclose(folds.mean, want, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(folds.variance, 1 / np.diag(inverse), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.gpu
@EACH_OR_CORRELATED
@pytest.mark.parametrize("tile", [None, 32])
def test_likelihoods_and_scores_are_the_same_on_a_gpu(model, tile):
    seen = data()
    design = np.eye(2)[seen.variable]
    cpu, gpu = (gx.Exact(tile=tile, on=on).prepare(seen, design) for on in ("cpu", "gpu"))
    assert gpu(model).log_likelihood == pytest.approx(cpu(model).log_likelihood, abs=1e-9)
    expected = cpu.gradient(model)
    for name, value in gpu.gradient(model).items():
        assert value == pytest.approx(expected[name], rel=1e-8, abs=1e-8), name


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("accuracy", [1e-6, 1e-3])
def test_mixed_formats_on_a_gpu_are_as_accurate_as_on_a_cpu(accuracy):
    seen, model = data(n=100), MODELS["flexible"]
    formats = ["fp64", "fp32", "fp16", "fp8"]
    exact = gx.Exact().prepare(seen)(model).log_likelihood
    for on in ("cpu", "gpu"):
        method = gx.Exact(gx.by_tile_norm(accuracy, formats=formats), 32, on=on)
        evaluation = method.prepare(seen)(model)
        assert len(evaluation.precision_map.counts()) > 1
        assert evaluation.log_likelihood == pytest.approx(exact, abs=100 * accuracy)


@pytest.mark.gpu
def test_a_gpu_is_refused_by_vecchia_with_a_remedy():
    seen, model = data(), MODELS["flexible"]
    with pytest.raises(gx.InvalidInput, match="runs on a CPU: use on="):
        gx.log_likelihood(seen, model, gx.Vecchia(10, on="gpu"), trend="zero")


TRENDS = {"zinc": "linear", "lead": "constant", "pH": "~ elev"}


def named(n=15):
    """Three named variables at common places, with a covariate."""
    random = np.random.default_rng(3)
    where, kinds = np.repeat(testing.places(n), 3, axis=0), np.tile([0, 1, 2], n)
    elevation = np.repeat(random.random(n), 3)
    about = {"covariates": elevation, "covariate_names": ("elev",)}
    values = random.standard_normal(3 * n) + kinds
    names = ("zinc", "lead", "pH")
    return gx.Observations(where, values, variable=kinds, variable_names=names, **about)


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
def test_variables_may_have_trends_of_other_columns(reml, tmp_path):
    seen = named()
    model = gx.ParsimoniousMatern((1.0, 2.0, 1.5), 0.3, (0.5, 1.0, 0.8), (0.3, 0.2, 0.1), 0.2)
    n, elevation = len(seen), seen.covariates[:, 0]
    rows = [seen.variable == k for k in range(3)]
    design = np.zeros((n, 6))
    design[rows[0], :3] = np.column_stack((np.ones(15), seen.locations[rows[0]]))
    design[rows[1], 3] = 1.0
    design[rows[2], 4:] = np.column_stack((np.ones(15), elevation[rows[2]]))
    sigma = model(seen.inputs, seen.inputs) + np.diag(model.noise(seen.inputs).variances)
    inverse = np.linalg.inv(sigma)
    information = design.T @ inverse @ design
    beta = np.linalg.solve(information, design.T @ inverse @ seen.values)
    residual = seen.values - design @ beta
    expected = -0.5 * (np.linalg.slogdet(sigma)[1] + residual @ inverse @ residual)
    expected -= 0.5 * (n - 6 * reml) * np.log(2 * np.pi)
    if reml:
        expected -= 0.5 * np.linalg.slogdet(information)[1]
    found = gx.log_likelihood(seen, model, trend=TRENDS, reml=reml)
    assert found.log_likelihood == pytest.approx(expected, rel=1e-12)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend=TRENDS, reml=reml)
    np.testing.assert_allclose(fit.coefficients, beta, rtol=1e-10)
    assert fit.trend.text == "zinc: linear; lead: constant; pH: elev"
    assert fit.trend.names == (
        *("zinc: intercept", "zinc: x", "zinc: y", "lead: intercept", "pH: intercept", "pH: elev"),
    )
    again = gx.fit(seen, model, fixed=tuple(model.parameters()), trend=fit.trend.text, reml=reml)
    assert again.log_likelihood == fit.log_likelihood
    fit.save(tmp_path / "fit.json")
    loaded = gx.Fit.load(tmp_path / "fit.json")
    assert loaded.trend == fit.trend
    # variables whose trend needs no covariate are predicted without it
    new = testing.places(3, seed=9)
    there = gx.predict(loaded, new, variable="lead")
    points = gx.Inputs(new, variable=np.ones(3, dtype=int))
    cross = model(points, seen.inputs)
    mean = beta[3] + cross @ inverse @ residual
    np.testing.assert_allclose(there.mean, mean, rtol=1e-10)
    with pytest.raises(gx.InvalidInput, match="covariates"):
        gx.predict(loaded, new, variable="pH")


@pytest.mark.parametrize(
    ("trend", "message"),
    [
        ({"zinc": "linear"}, 'There is none for lead, pH: add "constant" for a constant mean'),
        (TRENDS | {"led": "zero"}, r"zinc, lead, pH. Got 'led'. Did you mean 'lead'\?"),
        ("zinc: linear; lead: constant", "There is none for pH"),
        ("zinc: linear; zinc: zero", "names a variable twice"),
        (TRENDS | {"lead": "nothing"}, "variable 'lead': `trend` must be one of"),
        (TRENDS | {"lead": 3}, "variable 'lead': `trend` must be one of"),
    ],
)
def test_a_trend_of_each_variable_must_be_complete(trend, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.fit(named(), family="parsimonious-matern", trend=trend)


def test_names_of_variables_may_have_colons_and_semicolons(tmp_path):
    seen = replace(named(), variable_names=("soil: Zn", "b;c", "Zn"))
    model = gx.Independent((1.0, 2.0, 1.5), 0.3, 0.5, 0.1)
    trend = {"soil: Zn": "linear", "b;c": "constant", "Zn": "elev"}
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend=trend)
    fit.save(tmp_path / "fit.json")
    assert gx.Fit.load(tmp_path / "fit.json").trend == fit.trend
    again = gx.fit(seen, model, fixed=tuple(model.parameters()), trend=fit.trend.text)
    assert again.trend == fit.trend
    assert np.isfinite(gx.cross_validate(fit, folds=3, refit=True).mean).all()


@pytest.mark.parametrize("method", [gx.Exact(), gx.Exact(tile=16), gx.Vecchia(8)], ids=repr)
def test_duplicates_of_a_variable_need_its_nugget(method):
    seen = data(n=30)
    row = int(np.flatnonzero(seen.variable == 1)[0])
    twice = gx.Observations(
        np.vstack((seen.locations, seen.locations[row])),
        np.append(seen.values, 1.0),
        variable=np.append(seen.variable, 1),
    )
    model = MODELS["parsimonious"]
    said = f"rows {row + 1} and 61 .* the nugget of their variable is 0"
    with pytest.raises(DuplicateLocations, match=said):
        gx.log_likelihood(twice, model.replace(nugget_2=0.0), method)
    with pytest.raises(DuplicateLocations, match=said):
        gx.fit(twice, family="parsimonious-matern", fixed={"nugget_2": 0.0}, method=method)
    # that of the other variable does not matter
    assert np.isfinite(gx.log_likelihood(twice, model.replace(nugget_1=0.0), method).log_likelihood)
