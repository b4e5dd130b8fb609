"""Too little memory is an error before the norms of tiles or a reference are computed."""

import re

import numpy as np
import pytest

import geomxp as gx
from geomxp.cli.main import main
from geomxp.covariance import generate, neighbours
from geomxp.likelihood import cost, divergence, factors
from geomxp.runtime import devices
from geomxp.tiles import placement
from geomxp.tiles.layout import Layout

MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)


@pytest.fixture
def tiles(monkeypatch):
    """The number of generated entries, with 10 MB of free memory on any machine."""
    count, write = [0], generate.TablePairs.write

    def counted(self, what, rows, columns, out, **options):
        write(self, what, rows, columns, out, **options)
        count[0] += out.size

    monkeypatch.setattr(generate.TablePairs, "write", counted)
    for module in (devices, factors, placement):
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
    monkeypatch.setattr(factors, "SLOW_NORMS_LOCATIONS", 2000)
    n = 3000
    with pytest.raises(gx.NotEnoughMemory, match=r"the tiles need .* 10\.0 MB free"):
        gx.log_likelihood(observations(n), MODEL, gx.Exact(gx.by_tile_norm(1e-12), tile=128))
    assert 0 < tiles[0] < n**2 / 2 / 40


@pytest.mark.slow
def test_the_estimate_of_the_memory_is_close(monkeypatch):
    needed = []
    monkeypatch.setattr(factors, "SLOW_NORMS_LOCATIONS", 2000)
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


def test_neighbours_that_do_not_fit_are_not_sought(monkeypatch):
    for module in (devices, cost):
        monkeypatch.setattr(module, "free_memory", lambda: 2 * 10**6)
    monkeypatch.setattr(neighbours, "tree_of", None)
    seen = observations(3000)
    words = (
        r"a graph of 900 neighbours for each of 3,000 locations needs .* at most (\d+), such as 30 "
    )
    with pytest.raises(gx.NotEnoughMemory, match=words) as caught:
        gx.log_likelihood(seen, MODEL, gx.Vecchia(900))
    fitting = int(re.search(words, str(caught.value))[1])
    cost.check_neighbours(3000, fitting)
    with pytest.raises(gx.NotEnoughMemory, match="use at most"):
        cost.check_neighbours(3000, fitting + 1)
    # in a fit with all others as neighbours the exact likelihood needs less
    monkeypatch.setattr(cost, "free_memory", lambda: 28 * 10**6)
    with pytest.raises(gx.NotEnoughMemory, match=r"which fits \(--method exact, gx.Exact\(\)\)"):
        cost.check_neighbours(1000, 5000)


def test_predictions_from_neighbours_that_do_not_fit_are_an_error_first(monkeypatch):
    seen = gx.Observations(*(x[:400] for x in (observations(400).locations, np.arange(400.0))))
    fit = gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()), progress=False)
    for module in (devices, cost):
        monkeypatch.setattr(module, "free_memory", lambda: 10**6)
    with pytest.raises(gx.NotEnoughMemory, match="neighbours for each of 2 locations needs"):
        gx.predict(fit, seen.locations[:2], neighbours=400)
    assert np.isfinite(gx.predict(fit, seen.locations[:2], neighbours=30).mean).all()


def test_more_tiles_than_memory_holds_are_an_error_with_larger_tiles_as_remedy():
    with pytest.raises(gx.NotEnoughMemory, match=r"tiles of 1 row\(s\) needs .*--tile 512"):
        Layout.of(2 * 10**6, 1).check_room()
    Layout.of(2 * 10**6, 4096).check_room()
    with pytest.raises(gx.NotEnoughMemory, match="larger tiles"):
        gx.log_likelihood(observations(60_000), MODEL, gx.Exact(tile=1, memory="1GB"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("simulate --n 1000000000 {}", 1, "the exact method for 1,000,000,000 locations needs"),
        ("simulate --n 16 --draws 100000000000000 {}", 1, "draw at most .* at a time"),
        ("bench cholesky --n 4000000", 1, "with n = 4,000,000 needs .*: use matrices of order"),
        ("bench nested --n 4000000", 1, "use matrices of order"),
        ("bench matern --n 4000000", 1, "use matrices of order"),
        ("bench likelihood --n 4000000", 1, "use matrices of order"),
        ("bench ceilings --n 4000000", 1, "use matrices of order"),
        (f"bench ceilings --n 1{'0' * 30}", 2, "`n` must be a whole number from 1 to"),
        (f"simulate --n 1{'0' * 30} {{}}", 2, "`n` must be a whole number from 1 to"),
        (f"simulate --n 9 --draws 1{'0' * 30} {{}}", 2, "`draws` must be a whole number from 1 to"),
        (f"fit jura --evaluations 1{'0' * 30}", 2, "`evaluations` must be a whole number from 1"),
        (f"fit jura --tile 1{'0' * 5000}", 2, "--tile must be a number of rows"),
        (f"compare --n 25 --neighbours 5,1{'0' * 30} {{}}", 2, "--neighbours must be whole"),
    ],
)
def test_requests_beyond_this_machine_name_their_own_remedy(capsys, line, status, words):
    model = "--variance 1 --range 0.1 --smoothness 0.5"
    assert main(line.format(model).split()) == status
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(words, last), last
    assert "Error" not in last
