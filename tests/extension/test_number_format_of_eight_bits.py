"""A number format in one file: E5M2, eight bits with a wide range, as users may add one."""

import ml_dtypes
import numpy as np
import pytest

import geomxp as gx
from geomxp import linalg, plots, testing
from geomxp.linalg.formats import FORMATS, FP16, Format, quantize, register

NUMBERS = ml_dtypes.float8_e5m2


def encode(x, scale, out):
    """Out <- the bits of x·scale in E5M2."""
    out[:] = (x * scale).astype(np.float32).astype(NUMBERS).view(np.uint8)


def decode(x, scale, out):
    """Out <- E5M2 bits, widened, times scale."""
    np.multiply(x.view(NUMBERS).astype(np.float32), scale, out=out, casting="same_kind")


@pytest.fixture(scope="module", autouse=True)
def e5m2():
    """The format, known by its name while the tests of this file run."""
    yield register(
        Format(
            "e5m2",
            np.dtype(np.uint8),
            unit_roundoff=2.0**-3,
            largest=57344.0,
            smallest=2.0**-16,
            letter="E",
            color="#eeeeee",
            top=15,
            finer=FP16,
            encode=encode,
            decode=decode,
            cost=0.8,
            rounding=0.9,
        )
    )
    del FORMATS["e5m2"]


MODEL = gx.Matern(1.0, 0.1, 0.5, nugget=0.5)


def test_a_tile_keeps_the_formats_roundoff():
    numbers = np.asfortranarray(np.random.default_rng(0).standard_normal((40, 30)) * 1e-9)
    error = abs(quantize(numbers, "e5m2").widen() - numbers)
    assert (error <= 2.0**-3 * abs(numbers) + 2.0**-30 * abs(numbers).max()).all()


def test_rules_choose_it_and_maps_and_pictures_draw_it():
    formats = gx.by_tile_norm(1e-2)(np.eye(3) + 1e-3)
    assert str(formats) == "D\nED\nEED"
    plots.precision_map(formats)


def test_layers_multiply_in_it(e5m2):
    root = np.random.default_rng(1).random((300, 300))
    sigma = root @ root.T / 300 + 3 * np.eye(300)
    lower = np.tril(linalg.potrf(sigma.copy(), layers=("e5m2", "fp32")))
    error = np.linalg.norm(lower @ lower.T - sigma) / np.linalg.norm(sigma)
    assert 1e-4 < error < e5m2.unit_roundoff


@pytest.mark.parametrize("memory", [None, "1MB"])
def test_likelihood_fit_prediction_and_divergence_use_it(memory, tmp_path):
    observations = testing.observations(200)
    method = gx.Exact(gx.uniform("e5m2"), tile=64, memory=memory)
    exact = gx.log_likelihood(observations, MODEL).log_likelihood
    mixed = gx.log_likelihood(observations, MODEL, method)
    assert 0 < abs(mixed.log_likelihood - exact) < 1
    assert mixed.precision_map.counts()["e5m2"] == 6
    assert 0 < gx.kl_divergence(MODEL, observations.locations, method).kl < 1
    fit = gx.fit(observations, MODEL, method, fixed=("range", "smoothness"), progress=False)
    fit.save(tmp_path / "fit.json")
    loaded = gx.Fit.load(tmp_path / "fit.json")
    assert loaded.formats == fit.formats
    new_locations = observations.locations[:5] + 0.01
    found, expected = (gx.predict(x, new_locations) for x in (loaded, fit))
    np.testing.assert_array_equal(found.mean, expected.mean)
