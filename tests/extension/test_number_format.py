"""Drill: a number format of scaled 16-bit integers (fixed point)."""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.linalg.formats import FORMATS, FP32, Format, quantize, register

MODEL = gx.Matern(1.0, 0.2, 0.5, 0.05)


def encode(x, scale, out):
    """Write x·scale, rounded to the nearest integer."""
    out[...] = np.clip(np.rint(x * scale), -32767, 32767)


FIXED = Format(
    "fixed16",
    np.dtype(np.int16),
    # relative to the largest entry of a tile, which is scaled to [2^14, 2^15)
    unit_roundoff=2.0**-15,
    largest=32767.0,
    smallest=1.0,
    letter="I",
    color="#cccccc",
    top=15,
    finer=FP32,
    encode=encode,
    decode=lambda x, scale, out: np.multiply(x, scale, out=out, casting="same_kind"),
    rounding=1.0,
)


@pytest.fixture(autouse=True)
def known():
    """Register the format, for one test."""
    register(FIXED)
    yield
    del FORMATS["fixed16"]


def test_a_tile_errs_by_at_most_half_a_unit():
    values = np.asfortranarray(np.random.default_rng(0).standard_normal((30, 20)))
    for dtype in (np.float64, np.float32):
        tile = quantize(values.astype(dtype, order="F"), "fixed16")
        assert tile.values.dtype == np.int16
        assert np.abs(tile.widen() - values).max() <= 2.0**-15 * np.abs(values).max() * 1.01


@pytest.mark.parametrize("rule", ["uniform", "by band", "layered"])
def test_likelihoods_and_divergences_are_near_those_of_fp64(rule):
    rules = {
        "uniform": gx.uniform("fixed16"),
        "by band": gx.by_band(("fp64", 1), "fixed16"),
        "layered": gx.layered("fixed16", "fp32", "fp64"),
    }
    seen, method = testing.observations(150), gx.Exact(rules[rule], 32)
    found, exact = gx.log_likelihood(seen, MODEL, method), gx.log_likelihood(seen, MODEL)
    assert found.precision_map.counts()["fixed16"] > 0
    assert found.promotions == 0
    # quadratic forms err by cond(Σ) u at most; here by far less
    assert abs(found.log_likelihood - exact.log_likelihood) <= 16 * 150 * 2.0**-15
    divergence = gx.kl_divergence(MODEL, seen.locations, method)
    assert abs(divergence.kl) < 1e-4
    assert divergence.formats.counts()["fixed16"] > 0


def test_out_of_core_and_several_devices_have_the_bits_of_one_memory():
    seen, rule = testing.observations(150), gx.by_band(("fp64", 1), "fixed16")
    expected = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 32)).log_likelihood
    for options in ({"device_memory": "1MB"}, {"memory": "1MB"}, {"on": "cpu,cpu"}):
        found = gx.log_likelihood(seen, MODEL, gx.Exact(rule, 32, **options))
        assert found.log_likelihood == expected


def test_a_fit_predicts_and_is_saved(tmp_path):
    seen, there = testing.observations(80), testing.places(5, seed=9)
    method = gx.Exact(gx.by_band(("fp64", 1), "fixed16"), 16)
    fit = gx.fit(seen, MODEL, method, fixed=("smoothness", "nugget", "range"))
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.method == method
    np.testing.assert_array_equal(gx.predict(again, there).mean, gx.predict(fit, there).mean)
