"""Drill: a tile store that keeps each tile in a file of its own."""

import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.linalg.formats import Tile
from geomxp.tiles.stores import Store

MODEL = gx.Matern(1.0, 0.2, 0.5, 0.01)
RULES = [gx.uniform("fp64"), gx.by_tile_norm(1e-4), gx.layered("fp16", "fp32")]


class FileStore(Store):
    """Each final tile in a file of NumPy's format."""

    def __init__(self, originals, formats):
        super().__init__(originals, formats)
        self.directory = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.directory)
        self.about = {}

    def path(self, i, k):
        return self.directory / f"{i}-{k}.npy"

    def save(self, i, k, tile):
        np.save(self.path(i, k), np.asfortranarray(tile.values))
        self.about[i, k] = tile.form, tile.exponent

    def load(self, i, k):
        form, exponent = self.about[i, k]
        return Tile(form, np.load(self.path(i, k)), exponent)

    def has(self, i, k):
        return (i, k) in self.about

    def forget(self, i, k):
        del self.about[i, k]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_likelihoods_and_divergences_have_the_bits_of_one_memory(rule):
    seen = testing.observations(150)
    own, usual = gx.Exact(rule, 32, store=FileStore), gx.Exact(rule, 32)
    one, other = (gx.log_likelihood(seen, MODEL, m, trend="constant") for m in (own, usual))
    assert one.log_likelihood == other.log_likelihood
    assert one.precision_map == other.precision_map
    assert isinstance(own.prepare(seen).factorize(MODEL).store, FileStore)
    one, other = (gx.kl_divergence(MODEL, seen.locations, m).kl for m in (own, usual))
    assert one == other


def test_promotions_are_those_of_one_memory():
    seen, model = testing.observations(150), gx.Matern(1.0, 0.3, 1.5, 1e-5)
    own, usual = (
        gx.Exact(gx.uniform("fp8"), 32, store=store).prepare(seen) for store in (FileStore, None)
    )
    one, other = own.factorize(model), usual.factorize(model)
    assert one.promotions == other.promotions > 0
    np.testing.assert_array_equal(one.dense(), other.dense())


@pytest.mark.slow
def test_a_fit_predicts_and_is_saved(tmp_path):
    there = testing.places(10, seed=9)
    values = gx.simulate(MODEL, testing.places(80), seed=1)[0]
    seen = gx.Observations(testing.places(80), values)
    held = ("smoothness", "nugget")
    fits = [
        gx.fit(seen, MODEL, gx.Exact(gx.by_tile_norm(1e-6), 16, store=store), fixed=held)
        for store in (FileStore, None)
    ]
    assert fits[0].model == fits[1].model
    one, other = (gx.predict(fit, there) for fit in fits)
    np.testing.assert_array_equal(one.mean, other.mean)
    fits[0].save(tmp_path / "fit.json")
    again = gx.predict(gx.Fit.load(tmp_path / "fit.json"), there)
    np.testing.assert_array_equal(again.mean, one.mean)


def test_a_store_is_for_one_memory():
    for options in ({"memory": "1MB"}, {"device_memory": "1MB"}, {"on": "cpu,cpu"}):
        with pytest.raises(gx.InvalidInput, match="`store` keeps the tiles of on"):
            gx.Exact(store=FileStore, **options).prepare(testing.observations(20))
