"""Families combined: their formula, their laws, and counterexamples beyond their conditions."""

import pickle
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance import combined
from geomxp.covariance.base import family_of
from geomxp.covariance.gneiting import GneitingInTime
from geomxp.covariance.matern_space_time import CoordinateInTime

TITLES = combined.titles()
VALUES = {"variance": 1.3, "range": 0.4, "time_range": 2.0, "nugget": 0.1, "smoothness": 0.8}
VALUES |= {"loading": 0.7, "correlation": 0.3, "power": 0.9, "decay": 1.5, "shape": 1.2}
VALUES |= {"time_smoothness": 0.6, "time_power": 0.7, "interaction": 0.6, "time_decay": 0.4}


def model_of(title, **other):
    """A model of a family of two variables, or one, without special values."""
    values, kind = VALUES | other, family_of(title)
    if "wendland" in title:
        values |= {"smoothness": 1.0, "shape": 6.0}
    return kind.from_parameters({p.name: values[p.group] for p in kind.declared_for(2)})


def inputs_of(kind, n=60, metric="euclidean", d=2):
    random = np.random.default_rng(0)
    places = testing.places(n, d)
    if metric != "euclidean":
        places = np.column_stack((random.uniform(-180, 180, n), random.uniform(-90, 90, n)))
    time = np.round(random.random(n) * 5) if "time" in kind.uses else None
    variable = random.integers(0, 2, n) if "variable" in kind.uses else None
    return gx.Inputs(places, metric, time, variable)


@pytest.mark.slow
@pytest.mark.parametrize("title", TITLES)
def test_combinations_obey_the_laws(title):
    # a correlation with a support has no derivative by the range at its end
    other = {"range": 5.0} if "spherical" in title else {}
    model = model_of(title, **other)
    testing.check_covariance(model, inputs_of(model))
    turned = replace(model, anisotropy=gx.Anisotropy3D(30.0, 20.0, 10.0, 0.6, 0.3))
    if turned.valid_on("euclidean", 3):
        testing.check_covariance(turned, inputs_of(model, d=3))


def correlation(model, name, r):
    """Correlation in space by the formula of the family."""
    kind = family_of(name)
    values = (getattr(model, shape.name) for shape in kind.shapes)
    shapes = [x[0] if isinstance(x, tuple) else x for x in values]
    return np.asarray(kind(1.0, 1.0, *shapes).evaluate("correlation", r), dtype=float)


@pytest.mark.parametrize("space", ["spherical", "cauchy", "powered-exponential"])
def test_one_variable_in_time_is_the_formula(space):
    a = inputs_of(gx.Separable)
    h = np.linalg.norm(a.locations[:, None] - a.locations, axis=-1)
    u = np.abs(np.subtract.outer(a.time, a.time))
    model = model_of(f"separable-{space}")
    lag = gx.Matern(1.0, 2.0, 0.6).correlation(u)
    expected = 1.3 * lag * correlation(model, space, h / 0.4)
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-13)
    model = model_of(f"metric-{space}")
    expected = 1.3 * correlation(model, space, np.hypot(h / 0.4, u / 2.0))
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-13)
    if space != "spherical":
        model = model_of(f"gneiting-{space}")
        psi = 1 + (u / 2.0) ** (2 * 0.7)
        expected = 1.3 * psi ** -(0.4 + 0.6) * correlation(model, space, h / 0.4 / psi**0.3)
        np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("space", ["coregionalization-spherical", "parsimonious-matern"])
def test_several_variables_in_time_are_the_formula(space):
    alone, model = model_of(space), model_of(f"separable-{space}")
    a = inputs_of(model)
    lag = gx.Matern(1.0, 2.0, 0.6).correlation(np.abs(np.subtract.outer(a.time, a.time)))
    expected = alone(replace(a, time=None), replace(a, time=None)) * lag
    np.testing.assert_allclose(model(a, a), expected, rtol=0, atol=1e-13)
    model = model_of("gneiting-coregionalization-cauchy")
    h = np.linalg.norm(a.locations[:, None] - a.locations, axis=-1)
    psi = 1 + (np.abs(np.subtract.outer(a.time, a.time)) / 2.0) ** (2 * 0.7)
    rho = correlation(model, "cauchy", h / 0.4 / psi**0.3) * psi ** -(0.4 + 0.6)
    loads = np.array([[0.7, 0.0], [0.7, 0.7]])[a.variable]
    np.testing.assert_allclose(model(a, a), loads @ loads.T * rho, rtol=0, atol=1e-13)


def test_nuggets_of_one_place_and_time_are_correlated():
    kind = family_of("gneiting-coregionalization")
    values = model_of("gneiting-coregionalization").parameters() | {"nugget_covariance_12": 0.05}
    model = kind.from_parameters(values)
    places, time = np.zeros((4, 2)), np.array([0.0, 0.0, 1.0, 1.0])
    a = gx.Inputs(places, time=time, variable=np.array([0, 1, 0, 1]))
    rest = model.matrix(a, a) - replace(model, nugget_covariance=None).matrix(a, a)
    expected = np.zeros((4, 4))
    expected[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.05
    np.testing.assert_allclose(rest, expected, atol=1e-15)
    seen = gx.Observations(
        places + testing.places(4), np.arange(4.0), time=time, variable=a.variable
    )
    found = [gx.log_likelihood(seen, model, m).log_likelihood for m in (gx.Exact(), gx.Vecchia(3))]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def lattice(n, d, variables=1):
    """A grid of places, each at four times, of all variables."""
    grid = 0.3 * np.array(np.meshgrid(*[np.arange(float(n))] * d)).reshape(d, -1).T
    places, time = np.repeat(grid, 4, axis=0), np.tile(np.arange(4.0), len(grid))
    if variables == 1:
        return gx.Inputs(places, time=time)
    variable = np.tile(np.arange(variables), len(time))
    return gx.Inputs(np.repeat(places, 2, axis=0), time=np.repeat(time, 2), variable=variable)


class Unguarded(GneitingInTime):
    """Gneiting's model without its condition on the correlation in space."""

    needs_mixture = False


def test_a_stretched_correlation_with_a_support_is_no_covariance():
    with pytest.raises(gx.InvalidInput, match=r"family 'spherical' is not. Use a \"separable\""):
        family_of("gneiting-spherical")
    with mock.patch.dict(combined.IN_TIME, unguarded=(Unguarded, gx.Gneiting)):
        kind = combined.in_time("unguarded", gx.Spherical)
    a = lattice(6, 2)
    assert np.linalg.eigvalsh(kind(1.0, 1.0, 3.0, 1.0, 1.0, 0.0).matrix(a, a))[0] < -5e-3
    right = family_of("gneiting-powered-exponential")(1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 0.0)
    assert np.linalg.eigvalsh(right.matrix(a, a))[0] > 0


def test_correlations_that_are_valid_in_the_plane_are_too_large_where_time_stretches():
    alone = gx.ParsimoniousMatern((1.0, 1.0), 1.0, (0.5, 2.5), 0.72)
    assert alone.valid_on("euclidean", 2)
    shapes = {"time_range": 1.0, "time_power": 1.0, "interaction": 1.0, "time_decay": 0.0}
    kind = family_of("gneiting-parsimonious-matern")
    model = kind((1.0, 1.0), 1.0, (0.5, 2.5), 0.72, **shapes)
    with pytest.raises(gx.InvalidInput, match="in all dimensions these correlations are too large"):
        model.check_valid_on("euclidean", 2)
    a = lattice(5, 2, 2)
    assert np.linalg.eigvalsh(model.matrix(a, a))[0] < -0.01
    # the limit in all dimensions: Γ(3/2) / √(Γ(1/2) Γ(5/2)) = 1/√3
    least = kind((1.0, 1.0), 1.0, (0.5, 2.5), 0.577, **shapes)
    assert least.valid_on("euclidean", 2)
    assert not replace(least, correlation=(0.578,)).valid_on("euclidean", 2)
    assert np.linalg.eigvalsh(least.matrix(a, a))[0] > -1e-12
    separable = family_of("separable-parsimonious-matern")
    one = separable((1.0, 1.0), 1.0, (0.5, 2.5), 0.72, time_range=1.0, time_smoothness=0.5)
    assert one.valid_on("euclidean", 2)
    assert np.linalg.eigvalsh(one.matrix(a, a))[0] > -1e-12


def test_time_as_a_coordinate_needs_one_dimension_more():
    model = model_of("metric-spherical")
    assert model.valid_on("euclidean", 2)
    with pytest.raises(gx.InvalidInput, match="in 4 dimensions"):
        model.check_valid_on("euclidean", 3)
    assert CoordinateInTime.further_axes == 1


@pytest.mark.parametrize("title", ["independent", "coregionalization", "parsimonious-matern"])
def test_several_variables_are_valid_on_the_sphere_for_rough_fields(title):
    random = np.random.default_rng(1)
    for seed in range(20):
        rough = model_of(title, smoothness=0.4, range=10.0 ** random.uniform(2, 5))
        if title == "parsimonious-matern":
            nu = tuple(random.uniform(0.05, 0.5, 2))
            rough = replace(rough, smoothness=nu)
            kappa = rough.factors_on_sphere()[0, 1]
            rough = replace(rough, correlation=(random.choice([-1, 1]) * kappa,))
        a = inputs_of(rough, 80, "great-circle")
        rough.check_inputs(a)
        matrix = rough.matrix(a, a)
        assert np.linalg.eigvalsh(matrix)[0] > -1e-12 * np.abs(matrix).max(), (seed, rough)
    smooth = model_of(title, smoothness=0.7)
    with pytest.raises(gx.InvalidInput, match=r"great-circle.*smoothness.* at most 0\.5"):
        smooth.check_valid_on("great-circle", 2)


def test_correlations_on_the_sphere_have_a_limit():
    model = gx.ParsimoniousMatern((1.0, 1.0), 500.0, (0.1, 0.4), 0.0)
    kappa = model.factors_on_sphere()[0, 1]
    assert 0.5 < kappa < 1.0
    assert replace(model, correlation=(kappa,)).valid_on("great-circle", 2)
    with pytest.raises(gx.InvalidInput, match="with great-circle distances these correlations"):
        replace(model, correlation=(kappa + 0.01,)).check_valid_on("great-circle", 2)
    same = gx.ParsimoniousMatern((1.0, 1.0), 500.0, (0.5, 0.5), 0.99)
    assert same.valid_on("great-circle", 2)
    flexible = gx.FlexibleMatern((1.0, 1.0), (500.0, 400.0), 0.5, 0.1)
    with pytest.raises(gx.InvalidInput, match="use the chordal metric"):
        flexible.check_valid_on("great-circle", 2)


def test_names_are_those_of_the_parts():
    assert family_of("separable-matern") is gx.Separable
    assert family_of("coregionalization-matern") is gx.Coregionalization
    assert family_of("metric-matern") is gx.MaternSpaceTime
    for title in TITLES:
        kind = family_of(title)
        assert title in (kind.family, f"{title.partition('-')[0]}-matern")
    with pytest.raises(gx.InvalidInput, match="Did you mean 'separable-spherical'"):
        family_of("separable-sperical")
    with pytest.raises(gx.InvalidInput, match="a combination of them such as"):
        family_of("separable-gneiting")


@pytest.mark.parametrize("title", ["separable-spherical", "gneiting-coregionalization-cauchy"])
def test_models_are_pickled_also_for_a_process_that_has_not_made_them(title):
    model = model_of(title)
    assert pickle.loads(pickle.dumps(model)) == model
    name = type(model).__name__
    assert getattr(combined, name) is type(model)
    with pytest.raises(AttributeError, match="NoSuchFamily"):
        combined.NoSuchFamily  # noqa: B018


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("independent-spherical", "coregionalization-spherical"),
        ("separable-independent", "separable-flexible-matern"),
        ("gneiting-parsimonious-matern", "gneiting-flexible-matern"),
    ],
)
def test_families_contain_those_with_the_same_functions_of_space_and_time(inside, outside):
    model, kind = replace(model_of(inside), anisotropy=(30.0, 0.5)), family_of(outside)
    other, names = model.as_member_of(kind)
    assert type(other) is kind
    assert set(names) <= set(model.parameters())
    a = inputs_of(model)
    np.testing.assert_allclose(other(a, a), model(a, a), rtol=1e-14)
    for family in ("flexible-matern", "coregionalization", "metric-flexible-matern"):
        assert model.as_member_of(family_of(family)) is None


def test_limits_of_shapes_of_several_variables_are_those_of_each_correlation():
    for title, least in (
        ("coregionalization-wendland", 2.5),
        ("separable-independent-wendland", 2.5),
        ("metric-coregionalization-wendland", 3.0),
    ):
        limits = model_of(title).limits("euclidean", 2)
        assert [limits[f"shape_{k}"][0] for k in (1, 2)] == [least, least]


def test_nested_families_of_several_variables_are_members_of_each_other():
    for base in ("", "separable-", "gneiting-"):
        values = {"transform": "log", "anisotropy": (30.0, 0.5)}
        independent = replace(model_of(f"{base}independent"), **values)
        parsimonious = replace(model_of(f"{base}parsimonious-matern"), **values)
        for model, name in (
            (independent, "flexible-matern"),
            (independent, "coregionalization"),
            (parsimonious, "flexible-matern"),
        ):
            other, names = model.as_member_of(family_of(f"{base}{name}"))
            assert type(other) is family_of(f"{base}{name}")
            assert (other.transform, other.anisotropy) == (model.transform, model.anisotropy)
            assert set(model.parameters()) - set(names) <= set(other.parameters())
            a = inputs_of(model)
            np.testing.assert_allclose(other(a, a), model(a, a), rtol=1e-12)
    model = model_of("independent-spherical")
    other, names = model.as_member_of(family_of("coregionalization-spherical"))
    assert names == {"variance_1": "loading_11", "variance_2": "loading_22"}
    a = inputs_of(model)
    np.testing.assert_allclose(other(a, a), model(a, a), rtol=1e-12)
    for name in ("flexible-matern", "coregionalization", "separable-coregionalization-spherical"):
        assert model.as_member_of(family_of(name)) is None
    assert model_of("independent-wendland").as_member_of(gx.FlexibleMatern) is None


def test_shapes_of_two_variables_end_at_their_limits():
    places = testing.places(50, seed=2)
    model = model_of("independent-wendland").replace(shape_1=2.5, shape_2=2.5, nugget_1=1.0)
    variable = np.repeat([0, 1], 50)
    inputs = gx.Inputs(np.vstack([places, places]), variable=variable)
    values = gx.simulate(model, inputs.locations, variable=variable, seed=4)[0]
    seen = gx.Observations(inputs.locations, values, variable=variable)
    held = {"smoothness_1": 1.0, "smoothness_2": 1.0}
    fit = gx.fit(seen, family="independent-wendland", fixed=held, progress=False)
    assert fit.outcome.ending != "STALLED"
    assert min(fit.model.shape) >= 2.5
