"""Maps to isotropic coordinates, against ellipsoids written out and differences."""

from dataclasses import replace

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.covariance.anisotropy import (
    KINDS,
    Anisotropy,
    Anisotropy3D,
    AxisRatios,
    AxisRatios3D,
    anisotropy_of,
    from_parameters,
)
from geomxp.estimation.parameters import ParameterTable
from geomxp.estimation.units import Extent

MAPS = [Anisotropy(30.0, 0.4), Anisotropy3D(30.0, 20.0, -50.0, 0.6, 0.2)]
MAPS += [AxisRatios(3.0), AxisRatios3D(0.5, 0.05)]


@pytest.mark.parametrize("one", MAPS, ids=str)
def test_generators_are_slopes_of_the_matrix(one):
    matrix, values = one.matrix(), one.parameters()
    for name, generator in one.generators().items():
        high, low = (
            type(one).from_parameters(values | {name: values[name] + step}).matrix()
            for step in (1e-5, -1e-5)
        )
        np.testing.assert_allclose(generator @ matrix, (high - low) / 2e-5, atol=1e-8)


@pytest.mark.parametrize("one", MAPS, ids=str)
def test_the_range_has_its_length_along_each_principal_axis(one):
    # M'M has the inverse squares of the lengths of the ellipsoid's axes
    lengths = 1 / np.sqrt(np.linalg.eigvalsh(one.matrix().T @ one.matrix()))
    ratios = [one.parameters()[p.name] for p in one.declared if not p.unit]
    np.testing.assert_allclose(sorted(lengths), sorted([1.0, *ratios]), rtol=1e-12)


def test_the_longest_range_has_the_azimuth_and_the_dip():
    one = Anisotropy3D(30.0, 20.0, 70.0, 0.5, 0.25)
    a, b = np.radians((30.0, 20.0))
    along = np.array((np.cos(a) * np.cos(b), np.sin(a) * np.cos(b), np.sin(b)))
    np.testing.assert_allclose(one.matrix() @ along, [1.0, 0.0, 0.0], atol=1e-15)
    # without dip and roll the second one is in the plane, across the longest
    flat = Anisotropy3D(30.0, 0.0, 0.0, 0.5, 0.25).matrix()
    np.testing.assert_allclose(flat @ [-np.sin(a), np.cos(a), 0.0], [0.0, 2.0, 0.0], atol=1e-15)
    # a roll turns it towards the third axis
    turned = replace(one, angle=0.0, dip=0.0, roll=90.0).matrix()
    np.testing.assert_allclose(turned @ [0.0, 0.0, 1.0], [0.0, 2.0, 0.0], atol=1e-15)


def test_a_plane_in_space_is_the_ellipse():
    plane, space = Anisotropy(40.0, 0.3), Anisotropy3D(40.0, 0.0, 0.0, 0.3, 1.0)
    np.testing.assert_allclose(space.matrix()[:2, :2], plane.matrix(), rtol=1e-15)


def test_equal_ratios_make_the_roll_have_no_effect():
    one = Anisotropy3D(30.0, 20.0, 0.0, 0.5, 0.5)
    u = np.random.default_rng(0).standard_normal((5, 3))
    for roll in (10.0, 80.0):
        other = replace(one, roll=roll)
        np.testing.assert_allclose(
            np.linalg.norm(u @ other.matrix().T, axis=1), np.linalg.norm(u @ one.matrix().T, axis=1)
        )


@pytest.mark.parametrize("one", MAPS, ids=str)
def test_parameters_are_read_back(one):
    assert from_parameters({"range": 1.0} | one.parameters()) == one
    assert anisotropy_of(one) is one
    assert one.dimensions == len(one.matrix())


def test_wrong_maps_are_named():
    with pytest.raises(gx.InvalidInput, match="pair"):
        anisotropy_of(3)
    with pytest.raises(gx.InvalidInput, match="`anisotropy_ratio` must be greater than 0 and at"):
        Anisotropy(10.0, 1.5)
    with pytest.raises(gx.InvalidInput, match="`anisotropy_angle` needs `anisotropy_ratio`"):
        from_parameters({"anisotropy_angle": 3.0})
    with pytest.raises(gx.InvalidInput, match="`axis_ratio_3` needs `axis_ratio_2`"):
        from_parameters({"axis_ratio_3": 3.0})
    with pytest.raises(gx.InvalidInput, match="together"):
        from_parameters({"axis_ratio_2": 3.0, "anisotropy_ratio": 0.5})
    assert from_parameters({"range": 1.0}) is None
    assert len({kind.declared for kind in KINDS}) == len(KINDS)


def test_locations_of_another_number_of_axes_are_refused_with_what_they_may_have():
    model = gx.Matern(1.0, 1.0, 0.5, anisotropy=(30.0, 0.5))
    with pytest.raises(gx.InvalidInput, match=r"Got 3 .*use Anisotropy3D or AxisRatios3D"):
        model.check_valid_on("euclidean", 3)
    with pytest.raises(gx.InvalidInput, match=r"Got 2 .*great-circle.*or project the locations"):
        model.check_valid_on("great-circle", 2)


@pytest.mark.parametrize(
    "angles", [(200.0, 30.0, 20.0), (-100.0, 130.0, 50.0), (700.0, -95.0, 400.0)]
)
def test_a_search_without_derivatives_starts_at_the_ellipsoid_it_is_given(angles):
    seen = gx.Observations(testing.places(40, 3), np.arange(40.0))
    model = gx.Matern(1.0, 0.4, 0.5, 0.1, anisotropy=gx.Anisotropy3D(*angles, 0.6, 0.3))
    table = ParameterTable(model, {}, {}, seen, 1.0, Extent.of(seen))
    coordinates = table.search_coordinates()
    again = coordinates.model(coordinates.point(model))
    shape = [m.T @ m for m in (model.anisotropy.matrix(), again.anisotropy.matrix())]
    np.testing.assert_allclose(shape[1], shape[0], rtol=1e-10)


@pytest.mark.parametrize("held", [(), ("anisotropy_roll",), ("anisotropy_dip",)])
def test_equivalent_ellipsoids_have_one_set_of_angles(held):
    random, free = np.random.default_rng(0), {p.name for p in Anisotropy3D.declared} - set(held)
    for _ in range(200):
        one = Anisotropy3D(*random.uniform(-720.0, 720.0, 3), *random.uniform(0.1, 1.0, 2))
        other = one.principal(free)
        shape = [m.T @ m for m in (one.matrix(), other.matrix())]
        np.testing.assert_allclose(shape[1], shape[0], rtol=1e-8, atol=1e-8)
        assert other.principal(free) == other
        values = one.parameters()
        assert all(other.parameters()[name] == values[name] for name in held)
        if not held:
            assert 0 <= other.angle < 180
            assert -90 <= other.dip <= 90
            assert 0 <= other.roll < 180
            assert other.third_ratio <= other.ratio
            # those of the same axes from their other ends
            ends = other.angle + 180.0, -other.dip, -other.roll, other.ratio, other.third_ratio
            again = Anisotropy3D(*ends).principal().parameters().values()
            np.testing.assert_allclose(list(again), list(other.parameters().values()), atol=1e-9)


def test_a_fit_has_the_principal_angles():
    model = gx.Matern(1.0, 0.4, 0.5, 0.1, anisotropy=Anisotropy3D(20.0, -10.0, 60.0, 0.6, 0.2))
    places = testing.places(150, 3)
    seen = gx.Observations(places, gx.simulate(model, places, seed=3)[0])
    turned = replace(model, anisotropy=Anisotropy3D(200.0, 10.0, 30.0, 0.2, 0.6))
    held = ("variance", "range", "smoothness", "nugget")
    fits = [gx.fit(seen, one, fixed=held, trend="zero", progress=False) for one in (model, turned)]
    values = [np.array(list(fit.model.parameters().values())) for fit in fits]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-3)
    assert fits[1].model.anisotropy.principal() == fits[1].model.anisotropy
    errors = [list(fit.standard_errors.values())[-5:] for fit in fits]
    np.testing.assert_allclose(errors[1], errors[0], rtol=1e-2)


@pytest.mark.parametrize(
    "one",
    [AxisRatios(3.0), AxisRatios(0.3), *map(AxisRatios3D, (0.5, 2, 3, 0.2), (0.2, 0.5, 4, 3))],
    ids=str,
)
def test_one_range_for_each_axis_is_an_ellipsoid_along_the_axes(one):
    longest, other = one.ellipse()
    scaled = other.matrix().T @ other.matrix() / longest**2
    np.testing.assert_allclose(scaled, one.matrix().T @ one.matrix(), atol=1e-14)


def test_a_fit_says_which_anisotropy_cannot_be_estimated():
    seen = gx.Observations(np.arange(20.0)[:, None], np.arange(20.0))
    with pytest.raises(gx.InvalidInput, match=r"Got 1 with metric='euclidean': leave it out"):
        gx.fit(seen, axis_ranges=True, progress=False)
    seen = gx.Observations(testing.places(20), np.arange(20.0))
    model = gx.Matern(1.0, 0.4, 0.5, 0.1, anisotropy=(30.0, 0.5))
    with pytest.raises(gx.InvalidInput, match="`model` has Anisotropy, and"):
        gx.fit(seen, model, axis_ranges=True, progress=False)


def test_longitudes_and_latitudes_have_no_anisotropy():
    random = np.random.default_rng(0)
    places = np.column_stack((random.uniform(-20, 20, 20), random.uniform(-40, 40, 20)))
    seen = gx.Observations(places, np.arange(20.0), metric="chordal")
    for option in ("anisotropy", "axis_ranges"):
        with pytest.raises(gx.InvalidInput, match="needs Euclidean locations"):
            gx.fit(seen, progress=False, **{option: True})
