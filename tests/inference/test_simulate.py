import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.inference.simulate import lay_out


def test_draws_have_the_covariance_of_the_model():
    places, draws = testing.places(6), 40_000
    z = gx.simulate(testing.MODEL, places, draws, seed=1)
    sigma = testing.MODEL(places, places) + testing.MODEL.nugget * np.eye(6)
    # standard deviation of a sample covariance: √((σ_ii σ_jj + σ_ij²)/draws)
    allowed = 5 * np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / draws)
    assert (np.abs(z.T @ z / draws - sigma) < allowed).all()


def test_the_same_seed_gives_the_same_field_and_another_does_not():
    places = testing.places(30)
    first, again = (gx.simulate(testing.MODEL, places, 2, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, gx.simulate(testing.MODEL, places, 2, seed=8))


@pytest.mark.parametrize(
    ("name", "length"), [("weak", 0.02627), ("medium", 0.078809), ("strong", 0.210158)]
)
def test_shipped_fields_are_what_their_readme_says(name, length):
    seen = gx.datasets.load(name)
    places = lay_out(1600, "jittered", 1600)
    np.testing.assert_array_equal(seen.locations, places)
    field = gx.simulate(gx.Matern(1.0, length, 0.5), places, seed=1600)[0]
    # another LAPACK may round differently
    np.testing.assert_allclose(seen.values, field, rtol=0, atol=1e-10)


def test_layouts_fill_the_unit_square():
    grid = lay_out(16, "grid")
    assert sorted(set(grid[:, 0])) == [0.125, 0.375, 0.625, 0.875]
    jittered = lay_out(16, "jittered", 3)
    assert (np.abs(jittered - grid) <= 0.1).all()
    assert not np.array_equal(jittered, grid)
    uniform = lay_out(17, "uniform", 3)
    assert uniform.shape == (17, 2)
    assert ((uniform >= 0) & (uniform < 1)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lay_out(10, "grid"), "square number of places. Got 10; try 9"),
        (lambda: lay_out(9, "hexagonal"), "`layout` must be one of"),
        (lambda: lay_out(0), "`n` must be"),
        (lambda: gx.simulate(testing.MODEL, testing.places(5), 0), "`draws` must be"),
        (lambda: gx.simulate(testing.MODEL, [[0.0, 100.0]], metric="chordal"), "latitudes"),
    ],
)
def test_wrong_layouts_are_named(call, message):
    with pytest.raises(gx.InvalidInput, match=message):
        call()
