"""Every family against mpmath, other packages, and its own declared validity."""

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.base import FAMILIES, Isotropic, family_of
from geomxp.covariance.distance import EARTH_RADIUS

REFERENCES = Path(__file__).parent.parent / "references"
TABLES = json.loads((REFERENCES / "families.json").read_text())
KRIGING = json.loads((REFERENCES / "families_kriging.json").read_text())
CASES = [
    pytest.param(name, entry["distances"], case, id=f"{name}-{index}")
    for name, entry in TABLES["families"].items()
    for index, case in enumerate(entry["cases"])
]
LIKELIHOODS = [
    pytest.param(case, id=f"{case['data']}-{case['metric']}-{case['family']}-{index}")
    for index, case in enumerate(KRIGING["cases"])
]


def numbers(texts):
    return np.array([float(text) for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "distances", "case"), CASES)
def test_correlations_and_derivatives_are_those_of_mpmath(family, distances, case):
    model = FAMILIES[family](variance=1.0, range=1.0, **case["parameters"])
    r, origin = np.array(distances), np.zeros((1, 1))
    exact = numbers(case["correlation"])
    np.testing.assert_allclose(model.correlation(r), exact, rtol=0, atol=1e-14)
    np.testing.assert_allclose(model(r[:, None], origin)[:, 0], exact, rtol=0, atol=1e-14)
    found = model.derivatives(r[:, None], origin)
    for name, texts in case["derivatives"].items():
        column = found["range" if name == "log_range" else name][:, 0]
        np.testing.assert_allclose(column, numbers(texts), rtol=0, atol=1e-14, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", LIKELIHOODS)
def test_likelihoods_scores_and_kriging_are_those_of_other_implementations(case):
    data = KRIGING["data"][case["data"]]
    model = FAMILIES[case["family"]](**case["parameters"])
    seen = gx.Observations(data["locations"], data["values"], metric=case["metric"])
    found = gx.log_likelihood(seen, model, gx.Exact())
    assert found.log_likelihood == pytest.approx(float(case["log_likelihood"]), rel=1e-8)
    score = gx.Exact().prepare(seen).gradient(model)
    for name, value in case["score"].items():
        own = name.removeprefix("log_")
        factor = model.parameters()[own] if name != own else 1.0
        assert factor * score[own] == pytest.approx(float(value), rel=1e-8, abs=1e-8), name
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), trend="zero")
    prediction = gx.predict(fit, np.array(data["new_locations"]))
    np.testing.assert_allclose(prediction.mean, numbers(case["kriging_mean"]), rtol=1e-8)
    np.testing.assert_allclose(prediction.variance, numbers(case["kriging_variance"]), rtol=1e-8)


MAXIMA = json.loads((REFERENCES / "families_maxima.json").read_text())["cases"]
NAMES = [f"{case['family']}-{'-'.join(case['held'])}" for case in MAXIMA]


@pytest.mark.slow
@pytest.mark.parametrize("case", MAXIMA, ids=NAMES)
def test_fits_reach_the_maximum_of_an_independent_optimizer(case):
    seen = gx.Observations(case["locations"], case["values"])
    held = {name: float(case["parameters"][name]) for name in case["held"]}
    fit = gx.fit(seen, family=case["family"], fixed=held, trend="zero", progress=False)
    assert fit.outcome.good
    assert fit.log_likelihood == pytest.approx(float(case["log_likelihood"]), rel=0, abs=1e-6)


def places_on_the_sphere(n=250):
    normal = np.random.default_rng(1).standard_normal((n, 3))
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    return np.degrees(
        np.column_stack((np.arctan2(normal[:, 1], normal[:, 0]), np.arcsin(normal[:, 2])))
    )


@pytest.mark.parametrize("case", TABLES["validity"]["great_circle"])
def test_great_circles_are_accepted_where_the_model_is_positive_definite(case):
    reach = case["range_in_radians"] * EARTH_RADIUS
    model = FAMILIES[case["family"]](variance=1.0, range=reach, **case["parameters"])
    assert model.valid_on("great-circle", 2) == case["valid"]
    if not case["valid"]:
        with pytest.raises(gx.InvalidInput, match="chordal"):
            model.check_valid_on("great-circle", 2)
        return
    places = places_on_the_sphere()
    least = np.linalg.eigvalsh(model(places, places, "great-circle"))[0]
    assert least == pytest.approx(case["least_eigenvalue_of_250"], rel=0.01, abs=1e-6)


@pytest.mark.parametrize("case", TABLES["validity"]["wendland_in_euclidean_space"])
def test_wendland_is_accepted_in_the_dimensions_where_its_spectrum_is_positive(case):
    model = gx.Wendland(1.0, 1.0, case["smoothness"], case["shape"])
    assert model.valid_on("euclidean", case["dimension"]) == case["valid"]


SHAPES = {
    "matern": (0.8,),
    "gaussian": (),
    "powered-exponential": (1.4,),
    "cauchy": (1.3, 0.7),
    "rational-quadratic": (0.6,),
    "spherical": (),
    "wendland": (0.6, 3.1),
}


ISOTROPIC = [name for name, family in FAMILIES.items() if issubclass(family, Isotropic)]


def example(name, variance=1.3, reach=0.4, nugget=0.1, anisotropy=None):
    """A model of each family with no special shape parameters."""
    return FAMILIES[name](variance, reach, *SHAPES[name], nugget, anisotropy)


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_covariance_matrices_are_positive_definite_where_the_family_says_so(name, d):
    places = np.random.default_rng(d).random((150, d))
    model = example(name, nugget=0.0)
    model.check_valid_on("euclidean", d)
    assert np.linalg.eigvalsh(model(places, places))[0] > -1e-13


@pytest.mark.parametrize("name", ISOTROPIC)
def test_a_model_is_made_again_from_its_parameters(name):
    model = example(name, anisotropy=(30.0, 0.6))
    assert type(model).from_parameters(model.parameters()) == model
    assert [p.name for p in model.table] == list(model.parameters())
    assert model.replace(range=2.0).range == 2.0
    with pytest.raises(gx.InvalidInput, match="needs `anisotropy_ratio`"):
        example(name).replace(anisotropy_angle=30.0)
    assert family_of(name) is family_of(model) is family_of(type(model)) is type(model)
    assert model.scaled(4.0).parameters() == model.parameters() | {
        "variance": 4 * model.variance,
        "nugget": 4 * model.nugget,
    }


@pytest.mark.parametrize("name", ISOTROPIC)
def test_the_practical_range_is_a_multiple_of_the_range(name):
    one, two = example(name), example(name, reach=0.8)
    assert two.practical_range() == pytest.approx(2 * one.practical_range())
    assert 0.05 < one.correlation(one.practical_range()) < 0.6


@pytest.mark.parametrize("name", ISOTROPIC)
def test_derivatives_by_all_parameters_are_slopes(name):
    model = example(name, anisotropy=(30.0, 0.6))
    a, b = np.random.default_rng(3).random((2, 40, 2))
    found = model.derivatives(a, b)
    for key, value in model.parameters().items():
        if key == "nugget":
            continue
        step = 1e-5 * (100 if key == "anisotropy_angle" else value)
        high, low = (model.replace(**{key: value + k * step})(a, b) for k in (1, -1))
        np.testing.assert_allclose(found[key], (high - low) / (2 * step), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ISOTROPIC)
def test_numpys_loops_and_formulas_agree_with_the_compiled_loops(name, monkeypatch):
    from geomxp.covariance import generate, pairs_numpy

    model, places = example(name), np.random.default_rng(4).random((90, 2))
    expected = model(places, places)
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    # SciPy's Bessel function, which Matérn's formula calls, is off by 1e-13
    np.testing.assert_allclose(expected, model.covariance(distance), rtol=0, atol=2e-13)
    monkeypatch.setattr(generate, "loops", lambda: pairs_numpy)
    np.testing.assert_allclose(model(places, places), expected, rtol=0, atol=1e-15)
    single = np.empty((90, 90), np.float32, order="F")
    monkeypatch.undo()
    whole = slice(0, 90)
    model.pairs(gx.Inputs(places)).write("correlation", whole, whole, single)
    np.testing.assert_allclose(single, expected, rtol=0, atol=4e-7)


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tables_hold_where_their_variable_changes(name, dtype):
    # squared distances of half of the squared range, as between diagonal neighbours on a grid
    model, places = example(name).replace(range=2.0), np.array([[0.0, 0.0], [1.0, 1.0]])
    pairs = model.pairs(gx.Inputs(places))
    entry = np.empty((1, 1), dtype, order="F")
    pairs.write("correlation", slice(0, 1), slice(1, 2), entry)
    atol = 2e-13 if dtype == "float64" else 4e-7
    np.testing.assert_allclose(entry, model.covariance(np.sqrt(2.0)), rtol=0, atol=atol)
    for key, found in model.derivatives(places[:1], places[1:]).items():
        value, step = model.parameters()[key], 1e-5
        if key == "nugget":
            continue
        high, low = (
            float(model.replace(**{key: value + k * step}).covariance(np.sqrt(2.0)))
            for k in (1, -1)
        )
        np.testing.assert_allclose(found, (high - low) / (2 * step), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ISOTROPIC)
def test_simulated_fields_and_divergences_exist_for_every_family(name):
    places = np.random.default_rng(5).random((120, 2))
    model = example(name)
    assert np.isfinite(gx.simulate(model, places, draws=2, seed=0)).all()
    method = gx.Exact(gx.by_tile_norm(1e-6), tile=40)
    assert 0 <= gx.kl_divergence(model, places, method).kl < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_gpu_writes_the_bits_of_the_cpu(name, dtype):
    import cupy

    places = np.random.default_rng(6).random((300, 2))
    pairs, whole = example(name).pairs(gx.Inputs(places)), slice(0, 300)
    expected = np.empty((300, 300), dtype, order="F")
    pairs.write("correlation", whole, whole, expected)
    out = cupy.empty((300, 300), dtype, order="F")
    pairs.write_on_gpu("correlation", whole, whole, out)
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


@pytest.mark.parametrize(
    ("name", "package", "theirs"),
    [
        ("gaussian", "scikit-learn", lambda p, h: np.exp(-(h**2) / (2 * p["length_scale"] ** 2))),
        (
            "gaussian",
            "gstools",
            lambda p, h: np.exp(-((np.sqrt(np.pi) / 2 * h / p["len_scale"]) ** 2)),
        ),
        (
            "rational-quadratic",
            "scikit-learn",
            lambda p, h: (1 + h**2 / (2 * p["alpha"] * p["length_scale"] ** 2)) ** -p["alpha"],
        ),
        (
            "rational-quadratic",
            "gstools",
            lambda p, h: (1 + (h / p["len_scale"]) ** 2 / p["alpha"]) ** -p["alpha"],
        ),
        (
            "powered-exponential",
            "gstools",
            lambda p, h: np.exp(-((h / p["len_scale"]) ** p["alpha"])),
        ),
        ("powered-exponential", "gstat", lambda p, h: np.exp(-((h / p["range"]) ** p["kappa"]))),
    ],
)
def test_conventions_reproduce_other_packages(name, package, theirs):
    model, h = example(name), np.linspace(0.0, 2.0, 30)
    np.testing.assert_allclose(model.correlation(h), theirs(model.to_convention(package), h))


@pytest.mark.filterwarnings("ignore:gpytorch evaluates this model:geomxp.GeomxpWarning")
@pytest.mark.parametrize("name", ISOTROPIC)
def test_conventions_go_there_and_back(name):
    model = example(name)
    for package in type(model).conventions:
        back = type(model).from_convention(package, **model.to_convention(package))
        assert list(back.parameters().values()) == pytest.approx(list(model.parameters().values()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.PoweredExponential(1.0, 1.0, 2.5), "greater than 0 and at most 2. Got power=2"),
        (lambda: gx.Cauchy(1.0, 1.0, 1.0, 0.0), "`decay` must be greater than 0. Got decay=0.0"),
        (
            lambda: gx.Wendland(1.0, 1.0, -0.1, 3.0),
            "`smoothness` must be at least 0 and at most 100. Got smoothne",
        ),
        (lambda: family_of("spheric"), "Did you mean 'spherical'"),
        (
            lambda: gx.Matern(1.0, 2.0, 0.5).replace(rang=3.0),
            "variance, range, smoothness, nugget. Got 'rang'. Did you mean 'range'?",
        ),
        (
            lambda: gx.Matern(1.0, 2.0, 0.5).replace(transform="log"),
            "Use dataclasses.replace(model, transform=...)",
        ),
        (
            lambda: gx.Wendland(1.0, 1.0, 1.0, 2.0).check_valid_on("chordal", 2),
            "in 3 dimensions a wendland model needs shape at least 3. Got shape=2",
        ),
    ],
)
def test_errors_name_the_parameter_and_the_remedy(make, message):
    with pytest.raises(gx.InvalidInput) as error:
        make()
    assert message in str(error.value)


def test_all_families_are_exported():
    for family in FAMILIES.values():
        assert getattr(gx, family.__name__) is family


def exact_wendland(kappa, mu, r):
    """ρ by the hypergeometric function of Bevilacqua et al. (2019), equation 9, in 40 digits."""
    with mpmath.workdps(40):
        k, m, z = mpmath.mpf(kappa), mpmath.mpf(mu), 1 - mpmath.mpf(r) ** 2
        scale = 2 ** (-2 * k - m) * mpmath.sqrt(mpmath.pi) * mpmath.gamma(2 * k + m + 1)
        scale /= mpmath.gamma(k + 0.5) * mpmath.gamma(k + m + 1)
        return float(scale * z ** (k + m) * mpmath.hyp2f1(m / 2, (m + 1) / 2, k + m + 1, z))


@pytest.mark.parametrize(
    ("kappa", "mu"), [(0.5, 3.5), (3, 300), (10, 80), (10, 300), (30, 120), (30, 1000), (100, 300)]
)
def test_wendland_is_exact_for_large_smoothness_and_shape(kappa, mu):
    r = np.array([0.001, 0.01, 0.1, 0.3, 0.6, 0.75, 0.9])
    found = gx.Wendland(1.0, 1.0, kappa, mu).correlation(r)
    np.testing.assert_allclose(found, [exact_wendland(kappa, mu, x) for x in r], rtol=0, atol=1e-15)


@pytest.mark.parametrize(("kappa", "mu"), [(0.5, 3.5), (3, 41), (10, 80), (2, 100)])
def test_wendland_has_small_relative_errors_near_the_end_of_its_support(kappa, mu):
    r = np.array([0.72, 0.8, 0.9, 0.95])
    found = gx.Wendland(1.0, 1.0, kappa, mu).at_squares(r**2, 1 - r**2)("correlation")
    np.testing.assert_allclose(found, [exact_wendland(kappa, mu, x) for x in r], rtol=1e-13)


def test_wendland_refuses_shapes_whose_sums_have_no_end():
    with pytest.raises(gx.InvalidInput, match=r"`shape` must be .* at most 1000"):
        gx.Wendland(1.0, 1.0, 0.5, 1e10)
    with pytest.raises(gx.InvalidInput, match=r"`smoothness` must be .* at most 100"):
        gx.Wendland(1.0, 1.0, 1e300, 3.0)


def test_an_effective_range_beyond_all_numbers_is_infinite():
    assert gx.RationalQuadratic(1.0, 1.0, 5e-324).effective_range() == np.inf


def test_a_parameter_beyond_all_numbers_is_refused():
    with pytest.raises(gx.InvalidInput, match="`variance` must be a number"):
        gx.Matern(10**400, 1.0, 0.5)


def test_a_range_whose_square_overflows_is_valid_on_great_circles():
    places = np.random.default_rng(0).random((9, 2))
    sigma = gx.Matern(2.0, 1e200, 0.5)(places, places, "great-circle")
    np.testing.assert_array_equal(sigma, 2.0)


@pytest.mark.parametrize(
    "model",
    [
        gx.Cauchy(1.0, 1e-200, 2.0, 0.06),
        gx.RationalQuadratic(1.0, 1e-200, 0.01),
        gx.PoweredExponential(1.0, 5e-324, 0.001),
    ],
    ids=lambda model: model.family,
)
def test_long_tails_beyond_squares_of_numbers_are_refused(model):
    seen = gx.Observations(np.random.default_rng(0).random((40, 2)), np.arange(40.0))
    for method in (gx.Exact(), gx.Vecchia(5)):
        with pytest.raises(gx.InvalidInput, match="still correlated at 1e150 times the range"):
            gx.log_likelihood(seen, model, method)
        near = gx.log_likelihood(seen, model.replace(range=1e-149), method)
        assert np.isfinite(near.log_likelihood)
        short = gx.log_likelihood(seen, gx.Matern(1.0, 5e-324, 0.5), method).log_likelihood
        assert short == pytest.approx(-20 * np.log(2 * np.pi) - np.sum(np.arange(40.0) ** 2) / 2)


def test_the_smallest_power_is_valid():
    places = np.random.default_rng(0).random((5, 1))
    model = gx.PoweredExponential(1.0, 1.0, 5e-324)
    expected = np.where(np.eye(5), 1.0, np.exp(-1.0))
    np.testing.assert_allclose(model(places, places), expected, rtol=1e-15)
