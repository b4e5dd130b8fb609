"""Too little memory is an error before the norms of tiles or a reference are computed."""

import numpy as np
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.likelihood import divergence, exact
from geomxp.runtime import devices
from geomxp.tiles import assemble, placement

MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)


@pytest.fixture
def tiles(monkeypatch):
    """The number of generated entries, with 10 MB of free memory on any machine."""
    count, tile = [0], assemble.Originals.tile

    def counted(self, *rest, **options):
        found = tile(self, *rest, **options)
        count[0] += found.size
        return found

    monkeypatch.setattr(assemble.Originals, "tile", counted)
    for module in (devices, exact, placement):
        monkeypatch.setattr(module, "free_memory", lambda: 10**7)
    return count


def observations(n):
    return gx.Observations(np.random.default_rng(0).random((n, 2)), np.zeros(n))


@pytest.mark.parametrize("rule", [gx.by_tile_norm(1e-6), gx.for_divergence(1e-3)])
def test_tiles_that_do_not_fit_in_any_format_are_not_generated(tiles, rule):
    with pytest.raises(gx.NotEnoughMemory, match=r"the tiles need .* 10\.0 MB free"):
        gx.log_likelihood(observations(6000), MODEL, gx.Exact(rule, tile=256))
    assert tiles == [0]


def test_tiles_that_fit_in_the_coarsest_format_only_cost_a_64th_of_their_norms(tiles, monkeypatch):
    monkeypatch.setattr(exact, "LARGE", 2000)
    n = 3000
    with pytest.raises(gx.NotEnoughMemory, match=r"the tiles need .* 10\.0 MB free"):
        gx.log_likelihood(observations(n), MODEL, gx.Exact(gx.by_tile_norm(1e-12), tile=128))
    assert 0 < tiles[0] < n**2 / 2 / 40


def test_the_estimate_of_the_memory_is_close(monkeypatch):
    needed = []
    monkeypatch.setattr(exact, "LARGE", 2000)
    monkeypatch.setattr(placement.InMemory, "check_room", lambda self, count: needed.append(count))
    seen = observations(3000)
    found = gx.log_likelihood(seen, MODEL, gx.Exact(gx.by_tile_norm(1e-6), tile=128))
    layout = placement.Layout(3000, 128)
    assert needed[-1] / 0.8 == pytest.approx(found.precision_map.bytes(layout), rel=0.1)


def test_a_comparison_checks_the_memory_of_its_reference_first(tiles, monkeypatch):
    monkeypatch.setattr(divergence, "hilbert", None)
    with pytest.raises(gx.NotEnoughMemory, match="the exact method for 6,000 locations needs"):
        gx.kl_divergence(MODEL, observations(6000).locations, gx.Vecchia(10))


@pytest.mark.parametrize("method", [["--accuracies", "1e-6"], ["--neighbours", "10"]])
def test_a_comparison_of_very_many_locations_does_not_place_them(capsys, monkeypatch, method):
    monkeypatch.setattr("geomxp.cli.commands.lay_out", None)
    words = ["--variance", "1", "--range", "0.1", "--smoothness", "0.5"]
    assert main(["compare", "--n", "99999999", *words, *method]) == 1
    assert "the exact method for 99,999,999 locations needs" in capsys.readouterr().err
