"""Families for several variables: covariances, derivatives and validity, beside plain formulas."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.special import gamma, gammaln, kv

import geomxp as gx
from geomxp import testing
from geomxp.covariance import generate, pairs_numpy
from geomxp.covariance.sums import by_blocks, derivative_sums

THREE = {
    "independent": gx.Independent((1.0, 2.0, 0.5), (0.2, 0.3, 0.1), (0.5, 1.0, 1.5), (0.1, 0.2, 0)),
    "parsimonious": gx.ParsimoniousMatern(
        (1.0, 2.0, 0.5), 0.2, (0.5, 1.0, 1.5), (0.4, -0.2, 0.3), 0.1
    ),
    "flexible": gx.FlexibleMatern(
        (1.0, 2.0, 0.5), (0.2, 0.25, 0.1), (0.5, 1.0, 1.5), (0.4, -0.2, 0.3), 0.1
    ),
    "coregionalization": gx.Coregionalization(
        (1.0, 0.5, 1.0, 0.3, -0.4, 0.8), (0.2, 0.25, 0.1), (0.5, 1.0, 1.5), 0.1
    ),
}
MODELS = pytest.mark.parametrize("model", THREE.values(), ids=THREE)


def inputs_of(n=120, d=2, metric="euclidean", seed=0, variables=3):
    rng = np.random.default_rng(seed)
    places = rng.random((n, d)) * (1.0 if metric == "euclidean" else 5.0)
    kinds = rng.integers(0, variables, n)
    # co-located values of different variables
    places[n // 2 : n // 2 + 20], kinds[n // 2 : n // 2 + 20] = places[:20], (kinds[:20] + 1) % 3
    return gx.Inputs(places, metric, variable=kinds)


def correlation(h, length, nu):
    """Matérn's correlation by its formula."""
    r = h / length
    value = np.ones_like(r)
    r, inside = r[r > 0], r > 0
    value[inside] = 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)
    return value


def plain(model, inputs):
    """C_ij(h), from the parameters alone."""
    v, p = inputs.variable, model.parameters()
    x = inputs.points
    h = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
    c = np.zeros(h.shape)
    for i in range(3):
        for j in range(3):
            where = np.ix_(v == i, v == j)
            if model.family == "coregionalization":
                for k in range(min(i, j) + 1):
                    both = p[f"loading_{i + 1}{k + 1}"] * p[f"loading_{j + 1}{k + 1}"]
                    about = p[f"range_{k + 1}"], p[f"smoothness_{k + 1}"]
                    c[where] += both * correlation(h[where], *about)
                continue
            first, second = sorted((i + 1, j + 1))
            rho = 1.0 if i == j else p.get(f"correlation_{first}{second}", 0.0)
            nu = (p[f"smoothness_{i + 1}"] + p[f"smoothness_{j + 1}"]) / 2
            lengths = [p.get("range", p.get(f"range_{k + 1}")) for k in (i, j)]
            length = ((lengths[0] ** -2 + lengths[1] ** -2) / 2) ** -0.5
            size = np.sqrt(p[f"variance_{i + 1}"] * p[f"variance_{j + 1}"])
            c[where] = rho * size * correlation(h[where], length, nu)
    return c


@pytest.mark.slow
@MODELS
@pytest.mark.parametrize("d", [1, 2, 3])
def test_covariances_are_those_of_the_formula(model, d):
    inputs = inputs_of(d=d)
    want = plain(model, inputs)
    np.testing.assert_allclose(model(inputs, inputs), want, rtol=0, atol=2e-14)
    rows, columns = slice(10, 70), slice(30, 110)
    part = model(inputs[rows], inputs[columns])
    np.testing.assert_allclose(part, want[rows, columns], rtol=0, atol=2e-14)
    single = np.zeros((60, 80), np.float32, order="F")
    model.pairs(inputs).write("correlation", rows, columns, single)
    np.testing.assert_allclose(single, want[rows, columns], rtol=0, atol=1e-6)
    lower = np.full((120, 120), 7.0, order="F")
    model.pairs(inputs).write("correlation", slice(0, 120), slice(0, 120), lower, triangle=True)
    np.testing.assert_array_equal(np.triu(lower, 1), 7.0 * np.triu(np.ones_like(lower), 1))
    np.testing.assert_allclose(np.tril(lower), np.tril(want), rtol=0, atol=2e-14)


@MODELS
def test_the_laws_of_covariances_hold(model):
    testing.check_covariance(model, inputs_of())
    assert model.from_parameters(model.parameters()) == model
    again = eval(repr(model), {type(model).__name__: type(model)})
    assert again == model


@MODELS
def test_loops_in_numpy_write_the_same_entries(model, monkeypatch):
    inputs = inputs_of()
    want = model(inputs, inputs)
    monkeypatch.setattr(generate, "loops", lambda: pairs_numpy)
    np.testing.assert_allclose(model(inputs, inputs), want, rtol=0, atol=1e-14)


@MODELS
def test_close_pairs_extend_the_tables(model):
    places = np.array([[0.0], [1e-9], [1e-7], [0.3], [1.0]])
    inputs = gx.Inputs(places, variable=np.array([0, 1, 2, 0, 1]))
    np.testing.assert_allclose(model(inputs, inputs), plain(model, inputs), rtol=0, atol=2e-14)


@MODELS
def test_sums_over_pairs_are_those_of_blocks_and_of_dense_derivatives(model):
    inputs, rng = inputs_of(300), np.random.default_rng(3)
    weights = rng.standard_normal((300, 300))
    weights = np.asfortranarray(weights + weights.T)
    alpha, beside = rng.standard_normal(300), rng.standard_normal((300, 2))
    names = tuple(model.parameters())
    found = derivative_sums(model, inputs, names, weights, alpha, beside)
    dense, noise = model.derivatives(inputs, inputs), model.noise(inputs)
    w = np.outer(alpha, alpha) - weights + beside @ beside.T
    for k, name in enumerate(names):
        change = dense[name] if name in dense else np.diag(noise.derivative(name))
        size = np.abs(w * change).sum()
        np.testing.assert_allclose(found.weighted[k], (w * change).sum(), atol=1e-13 * size)
        np.testing.assert_allclose(found.products[:, k], change @ alpha, atol=1e-12)
    ours = [name for name in names if "nugget" not in name]
    vectors = alpha, np.ascontiguousarray(beside.T), True, slice(0, 300)
    totals, _ = by_blocks(model.pairs(inputs), ours, weights, *vectors)
    for name in ours:
        np.testing.assert_allclose(found.weighted[names.index(name)], totals[name], rtol=1e-9)


def kappa(a, b, d):
    """The largest correlation of two Matérn fields (range, smoothness), by their densities."""

    def density(w, length, nu):
        log = gammaln(nu + d / 2) - gammaln(nu) - 2 * nu * np.log(length)
        return log - (nu + d / 2) * np.log(length**-2 + w**2)

    both = ((a[0] ** -2 + b[0] ** -2) / 2) ** -0.5, (a[1] + b[1]) / 2
    w = np.concatenate(([0.0], np.geomspace(1e-6, 1e9, 200_001)))
    return np.exp(np.min((density(w, *a) + density(w, *b)) / 2 - density(w, *both)))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
def test_two_variables_have_the_largest_correlation_that_spectral_densities_allow(d):
    rng = np.random.default_rng(d)
    for _ in range(30):
        lengths, nu = np.exp(rng.normal(0, 0.7, 2)), np.exp(rng.normal(0, 0.7, 2))
        model = gx.FlexibleMatern((1.0, 1.0), lengths, nu, 0.0)
        want = kappa(*zip(lengths, nu, strict=True), d)
        np.testing.assert_allclose(model.factors(d)[0, 1], want, rtol=1e-5)
        low, high = model.limits("euclidean", d)["correlation_12"]
        np.testing.assert_allclose((low, high), (-want, want), rtol=1e-5)
        common = gx.ParsimoniousMatern((1.0, 1.0), 0.7, nu, 0.0)
        want = kappa((0.7, nu[0]), (0.7, nu[1]), d)
        np.testing.assert_allclose(common.factors(d)[0, 1], want, rtol=1e-5)
        # with equal ranges both families are the same
        equal = gx.FlexibleMatern((1.0, 1.0), (0.7, 0.7), nu, 0.0)
        np.testing.assert_allclose(equal.factors(d), common.factors(d), rtol=1e-12)


def random_correlation(p, rng):
    """A correlation matrix of rank p, or lower: the ends of what is valid."""
    factor = rng.standard_normal((p, rng.integers(1, p + 1)))
    factor /= np.linalg.norm(factor, axis=1)[:, None]
    return factor @ factor.T


def random_model(rng, p, d):
    """A model at or near the end of what is valid in d dimensions."""
    family = rng.integers(4)
    variance, lengths = np.exp(rng.normal(0, 1, p)), np.exp(rng.normal(-1, 1, p))
    nu = np.exp(rng.normal(-0.3, 0.6, p))
    if family == 0:
        return gx.Independent(variance, lengths, nu)
    if family == 1:
        return gx.Coregionalization(
            [abs(x) if i == j else x for (i, j), x in _triangle(p, rng)], lengths, nu
        )
    zero = (0.0,) * (p * (p - 1) // 2)
    if family == 2:
        model = gx.ParsimoniousMatern(variance, lengths[0], nu, zero)
    else:
        model = gx.FlexibleMatern(variance, lengths, nu, zero)
    beta = random_correlation(p, rng) * model.factors(d)
    values = {f"correlation_{i + 1}{j + 1}": beta[i, j] for i, j in combinations(range(p), 2)}
    # rounding at the end of the range
    return model.replace(**{name: x * (1 - 1e-9) for name, x in values.items()})


def _triangle(p, rng):
    return [((i, j), rng.normal()) for i in range(p) for j in range(i + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("space", ["1", "2", "3", "sphere"])
def test_random_models_are_positive_definite(space):
    rng = np.random.default_rng(int(space) if space != "sphere" else 9)
    for _ in range(60):
        p, d = int(rng.integers(2, 6)), 3 if space == "sphere" else int(space)
        model = random_model(rng, p, d)
        n = 40
        if space == "sphere":
            places = np.column_stack((rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)))
            model = model.replace(
                **{k: 3000 * v for k, v in model.parameters().items() if "range" in k}
            )
        else:
            places = rng.random((n, d))
        metric = "chordal" if space == "sphere" else "euclidean"
        inputs = gx.Inputs(places, metric, variable=rng.integers(0, p, n))
        assert model.valid_on(metric, inputs.dimensions)
        size = np.sqrt(model.diagonal(inputs))
        matrix = model(inputs, inputs) / np.outer(size, size)
        assert np.linalg.eigvalsh(matrix).min() > -1e-13 * n


def test_correlations_beyond_the_limit_are_refused_and_are_not_covariances():
    rng = np.random.default_rng(1)
    places = np.repeat(np.linspace(0, 1, 300)[:, None], 2, axis=0)
    inputs = gx.Inputs(places, variable=np.tile([0, 1], 300))
    for _ in range(5):
        nu = np.exp(rng.normal(0, 0.8, 2))
        model = gx.ParsimoniousMatern((1.0, 1.0), 0.05, nu, 0.0)
        limit = model.limits("euclidean", 1)["correlation_12"][1]
        if limit > 0.9:
            continue
        beyond = model.replace(correlation_12=1.1 * limit)
        assert not beyond.valid_on("euclidean", 1)
        assert np.linalg.eigvalsh(beyond.matrix(inputs, inputs)).min() < -1e-9
        with pytest.raises(gx.InvalidInput, match="these correlations are too large for the smoo"):
            gx.log_likelihood(
                gx.Observations(places, rng.random(600), variable=inputs.variable), beyond
            )


def test_limits_of_a_correlation_are_where_the_matrix_becomes_singular():
    model = THREE["flexible"]
    for name, (low, high) in model.limits("euclidean", 2).items():
        if not name.startswith("correlation"):
            continue
        for end, step in ((low, 1e-6), (high, -1e-6)):
            assert model.replace(**{name: end + step}).valid_on("euclidean", 2)
            assert not model.replace(**{name: end - 10 * step}).valid_on("euclidean", 2)


@MODELS
def test_a_model_near_its_marginal_models_has_them(model):
    one = [gx.Matern(1.0, 0.2, 0.5, 0.1), gx.Matern(3.0, 0.2, 1.5, 0.0), gx.Matern(2.0, 0.2, 1.0)]
    rho = np.array([[1.0, 0.99, -0.99], [0.99, 1.0, 0.99], [-0.99, 0.99, 1.0]])
    found = type(model).from_marginals(one, rho, 2)
    assert found.valid_on("euclidean", 2)
    np.testing.assert_allclose(found.variances, [1.0, 3.0, 2.0], rtol=1e-12)
    assert found.nugget == (0.1, 0.0, 0.0)
    if model.family != "coregionalization":
        assert found.marginal(1).parameters() == pytest.approx(one[1].parameters())


def test_numbers_may_stand_for_all_variables_and_matrices_for_pairs():
    matrix = [[1.0, 0.4, -0.2], [0.4, 1.0, 0.3], [-0.2, 0.3, 1.0]]
    model = gx.ParsimoniousMatern((1.0, 2.0, 0.5), 0.2, (0.5, 1.0, 1.5), matrix, 0.1)
    assert model == THREE["parsimonious"]
    assert gx.ParsimoniousMatern(1.0, 0.2, 0.5, 0.3).variables == 2
    lower = [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.3, -0.4, 0.8]]
    again = gx.Coregionalization(lower, (0.2, 0.25, 0.1), (0.5, 1.0, 1.5), 0.1)
    assert again == THREE["coregionalization"]
    np.testing.assert_allclose(model.correlations, matrix, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gx.Independent((1.0, 2.0), (1.0, 2.0, 3.0), 0.5), "Got numbers of variables: var"),
        (lambda: gx.Independent((1.0,), 0.5, 0.5), r"needs 2 variables or more\. Got 1"),
        (lambda: gx.Independent((1.0, -2.0), 0.5, 0.5), "`variance_2` must be greater than 0"),
        (
            lambda: gx.Independent((1.0, "a"), 0.5, 0.5),
            "`variance` must be 2 numbers, one for each",
        ),
        (lambda: gx.ParsimoniousMatern(1.0, (0.2, 0.3), 0.5, 0.3), "`range` must be one number"),
        (lambda: gx.ParsimoniousMatern(1.0, 0.2, 0.5, 1.5), "`correlation_12` must be at least -1"),
        (
            lambda: gx.ParsimoniousMatern(1.0, 0.2, 0.5, [[1.0, 0.4], [0.3, 1.0]]),
            "symmetric matrix with ones",
        ),
        (
            lambda: gx.Coregionalization([[1.0, 0.2], [0.5, 1.0]], 0.2, 0.5),
            "must be a lower triangle",
        ),
        (lambda: gx.Coregionalization((1.0, 0.5, -1.0), 0.2, 0.5), "`loading_22` must be greater"),
        (lambda: gx.Independent(1.0, 0.5, 0.5, microscale=0.1), "have no microscale"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(gx.InvalidInput, match=words):
        make()


@MODELS
def test_inputs_of_another_kind_are_refused(model):
    places = np.random.default_rng(0).random((4, 2))
    with pytest.raises(gx.InvalidInput, match="needs the variable of each location"):
        model(gx.Inputs(places), gx.Inputs(places))
    other = gx.Inputs(places, variable=np.array([0, 1, 2, 3]))
    with pytest.raises(gx.InvalidInput, match=r"has 3 variables, numbered from 0. Got variable 3"):
        model(other, other)
    sphere = gx.Inputs(places, "great-circle", variable=np.array([0, 1, 2, 0]))
    with pytest.raises(gx.InvalidInput, match="use the chordal metric"):
        model(sphere, sphere)


# Nugget covariances

NOISY = {
    name: replace(model, nugget=(0.1, 0.2, 0.3), nugget_covariance=(0.1, -0.05, 0.08))
    for name, model in THREE.items()
}
NOISES = pytest.mark.parametrize("model", NOISY.values(), ids=NOISY)


@pytest.mark.slow
@NOISES
def test_variables_at_one_location_share_noise(model):
    inputs = inputs_of()
    together = (inputs.locations[:, None] == inputs.locations).all(axis=2)
    eta = np.array([[0.0, 0.1, -0.05], [0.1, 0.0, 0.08], [-0.05, 0.08, 0.0]])
    shared = eta[np.ix_(inputs.variable, inputs.variable)] * together
    assert np.count_nonzero(shared) == 40
    field = plain(model, inputs)
    np.testing.assert_allclose(model(inputs, inputs), field, rtol=0, atol=2e-14)
    np.testing.assert_allclose(model.matrix(inputs, inputs), field + shared, rtol=0, atol=2e-14)
    single = np.zeros((120, 120), np.float32, order="F")
    model.pairs(inputs).write("correlation", slice(0, 120), slice(0, 120), single)
    np.testing.assert_allclose(single, field + shared, rtol=0, atol=1e-6)
    testing.check_covariance(model, inputs)
    slopes = model.derivatives(inputs, inputs)
    for name, (i, j) in {"12": (0, 1), "13": (0, 2), "23": (1, 2)}.items():
        change = np.zeros((3, 3))
        change[i, j] = change[j, i] = 1.0
        want = change[np.ix_(inputs.variable, inputs.variable)] * together
        np.testing.assert_array_equal(slopes[f"nugget_covariance_{name}"], want)
    again = eval(repr(model), {type(model).__name__: type(model)})
    assert again == model == model.from_parameters(model.parameters())
    matrix = replace(model, nugget_covariance=model.nugget_matrix)
    assert matrix == model


@NOISES
def test_noise_is_shared_by_places_that_are_equal_not_close(model):
    places = np.array([[0.3], [0.3], [0.3 + 1e-9], [0.3 + 1e-15], [1.0]])
    inputs = gx.Inputs(places, variable=np.array([0, 1, 2, 2, 1]))
    shared = model.matrix(inputs, inputs) - model(inputs, inputs)
    want = np.zeros((5, 5))
    want[0, 1] = want[1, 0] = 0.1
    np.testing.assert_allclose(shared, want, rtol=0, atol=1e-15)


@NOISES
def test_covariances_of_0_are_the_model_without_them(model):
    inputs = inputs_of()
    without, zero = replace(model, nugget_covariance=None), replace(model, nugget_covariance=0.0)
    np.testing.assert_array_equal(zero.matrix(inputs, inputs), without.matrix(inputs, inputs))
    np.testing.assert_array_equal(zero.noise(inputs).variances, without.noise(inputs).variances)
    for method in (gx.Exact(), gx.Exact(gx.by_tile_norm(1e-6), 32), gx.Vecchia(20)):
        seen = gx.Observations(inputs.locations, np.sin(np.arange(120.0)), variable=inputs.variable)
        found, want = (gx.log_likelihood(seen, one, method) for one in (zero, without))
        assert found.log_likelihood == pytest.approx(want.log_likelihood, rel=1e-14)


@pytest.mark.slow
def test_covariances_within_their_limits_are_positive_semidefinite():
    rng = np.random.default_rng(5)
    ends = []
    for k in range(1_000):
        p = 2 + k % 3
        nugget = 10.0 ** rng.uniform(-3, 3, p)
        model = gx.Independent((1.0,) * p, 0.3, 0.5, nugget, nugget_covariance=0.0)
        for name in rng.permutation([p.name for p in model.table if "covariance" in p.name]):
            low, high = model.limits("euclidean", 2)[name]
            share = rng.choice([0.0, rng.random(), 1.0])
            model = model.replace(**{name: low + share * (high - low)})
        assert model.valid_on("euclidean", 2)
        root = np.sqrt(nugget)
        least = np.linalg.eigvalsh(model.nugget_matrix / np.outer(root, root))[0]
        assert least > -1e-12
        ends.append(least)
    assert np.mean(np.array(ends) < 1e-9) > 0.3


@pytest.mark.parametrize(
    ("nugget", "covariance", "message"),
    [
        ((0.1, 0.2), 0.2, "the nuggets 0.1, 0.2 and the covariances 0.2 do not form a pos"),
        ((0.0, 0.2), 0.01, "Use larger nuggets, or nugget covariances nearer to 0"),
    ],
)
def test_covariances_beyond_their_limits_are_refused(nugget, covariance, message):
    model = gx.Independent((1.0, 2.0), 0.2, 0.5, nugget, nugget_covariance=covariance)
    assert not model.valid_on("euclidean", 2)
    seen = gx.Observations(testing.places(20), np.arange(20.0), variable=np.arange(20) % 2)
    with pytest.raises(gx.InvalidInput, match=message):
        gx.log_likelihood(seen, model)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((0.1, 0.2), "must be of the same number of variables"),
        ([[1.0, 0.1], [0.1, 0.2]], "a symmetric matrix with the nuggets on its diagonal"),
        (np.nan, "finite"),
        ("much", "must be"),
    ],
)
def test_nugget_covariances_must_be_numbers_of_pairs(value, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Independent((1.0, 2.0), 0.2, 0.5, (0.1, 0.2), nugget_covariance=value)


def test_the_number_of_variables_of_a_model_is_said():
    message = r"an independent model needs 2 variables or more\. Got 1\."
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Independent((1.0,), (0.5,), (0.5,))


@pytest.mark.parametrize("p", [2, 3, 8])
def test_numbers_of_pairs_and_triangles_say_how_many_variables_there_are(p):
    pairs = [0.1] * (p * (p - 1) // 2)
    assert gx.ParsimoniousMatern(1.0, 0.2, 0.5, pairs).variables == p
    triangle = np.eye(p)[np.tril_indices(p)].tolist()
    assert gx.Coregionalization(triangle, 0.2, 0.5).variables == p


def test_a_marginal_model_is_of_one_of_the_variables_and_one_matern_model():
    model = THREE["coregionalization"]
    assert model.marginal(0) == gx.Matern(1.0, 0.2, 0.5, 0.1)
    with pytest.raises(gx.InvalidInput, match=r"variable 1 .* is a sum of 2 matern fields"):
        model.marginal(1)
    for variable in (-1, 3):
        with pytest.raises(gx.InvalidInput, match=f"from 0 to 2. Got {variable}"):
            model.marginal(variable)


def test_models_are_not_made_of_some_of_their_parameters():
    values = gx.ParsimoniousMatern((1.0, 2.0), 0.2, 0.5, 0.3).parameters()
    del values["range"], values["nugget_2"]
    with pytest.raises(gx.InvalidInput, match="2 variables needs values of range, nugget_2 too"):
        gx.ParsimoniousMatern.from_parameters(values)
