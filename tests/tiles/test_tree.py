import tracemalloc

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp import testing
from geomxp.likelihood.factors import originals_of, tile_factor
from geomxp.linalg.precision import by_band, by_tile_norm, for_divergence, uniform
from geomxp.runtime.devices import Device
from geomxp.tiles import layout as layouts
from geomxp.tiles.assemble import Originals
from geomxp.tiles.layout import Layout
from geomxp.tiles.placement import InMemory, Placement
from geomxp.tiles.tree import Tree, largest_block_bytes
from geomxp.tiles.tree_on_gpu import GpuTree

MODEL = gx.Matern(1.0, 0.05, 0.5, 0.01)
RULES = {
    **{name: uniform(name) for name in ("fp64", "fp32", "fp16", "bf16", "tf32", "fp8")},
    **{f"by norm {accuracy:g}": by_tile_norm(accuracy) for accuracy in (1e-3, 1e-5, 1e-7, 1e-9)},
    "no scale": by_tile_norm(1e-3, scale=False),
    "divergence": for_divergence(1e-3),
    "bands": by_band(("fp64", 1), ("fp32", 1), "fp16"),
    "coarse beside the diagonal": by_band(("fp8", 1), ("fp16", 1), "fp64"),
    "stored in fp32": by_band(("fp32", 1), "fp32-fp16"),
}
in_all_rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    """Cut matrices of a few hundred rows into cells of 32, also for GPUs."""
    monkeypatch.setattr(layouts, "LARGEST_CPU_CELL", 32)
    monkeypatch.setattr(layouts, "GPU_CELL", 32)


def sigma_of(seen, model=MODEL):
    return model.matrix(seen.inputs, seen.inputs) + model.nugget * np.eye(len(seen))


def error_of(factor, sigma):
    """Return ‖Σ - LL'‖_F / ‖Σ‖_F."""
    lower, order = factor.dense(), factor.order
    return np.linalg.norm(lower @ lower.T - sigma[np.ix_(order, order)]) / np.linalg.norm(sigma)


def whole(seen, rule, on="cpu", model=MODEL):
    return tile_factor(model, seen, rule, "whole", Placement.of(on))


@in_all_rules
@pytest.mark.parametrize("n", [130, 500])
def test_the_error_is_that_of_the_formats(rule, n):
    seen = testing.observations(n)
    factor = whole(seen, rule)
    assert isinstance(factor.store, Tree)
    # FP32 sums, of at most 500 terms, beside the formats
    sums = 0.0 if factor.precision_map.all_fp64 else 4 * 2.0**-24
    assert error_of(factor, sigma_of(seen)) < 4 * factor.precision_map.error + sums * 0.1
    if rule.accuracy:
        assert factor.precision_map.error <= rule.accuracy
        assert error_of(factor, sigma_of(seen)) < 2 * rule.accuracy


def test_a_factor_in_fp64_is_cholesky_s():
    for n in (3, 31, 33, 97, 160, 450):
        seen = testing.observations(n)
        factor = whole(seen, uniform("fp64"))
        lower = np.linalg.cholesky(sigma_of(seen)[np.ix_(factor.order, factor.order)])
        np.testing.assert_allclose(factor.dense(), lower, atol=1e-13)


@in_all_rules
def test_operations_are_those_of_the_factor(rule):
    seen, random = testing.observations(300), np.random.default_rng(0)
    model = gx.Matern(4e6, 0.05, 0.5, 4e4)
    factor = whole(seen, rule, model=model)
    lower, order, back = factor.dense(), factor.order, np.argsort(factor.order)
    b = random.standard_normal((300, 3))
    b[order[:70]] = 0.0
    half = scipy.linalg.solve_triangular(lower, b[order], lower=True)
    np.testing.assert_allclose(factor.half_solve(b), half, rtol=1e-8, atol=1e-11)
    solved = scipy.linalg.solve_triangular(lower.T, half)[back]
    np.testing.assert_allclose(factor.solve(b), solved, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(factor.solve(b[:, 0]), solved[:, 0], rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(factor.multiply(b), (lower @ b)[back], rtol=1e-9, atol=1e-9)
    expected = 2 * np.log(lower.diagonal()).sum()
    assert factor.log_determinant() == pytest.approx(expected, rel=1e-12)


def test_blocks_are_larger_than_cells_and_take_the_bytes_of_the_map():
    seen = testing.observations(500)
    factor = whole(seen, by_tile_norm(1e-4))
    tree = factor.store
    cells = tree.layout.tiles * (tree.layout.tiles + 1) // 2
    assert len(tree.parts) < 0.8 * cells
    stored = sum(tile.values.nbytes for _, _, tile in tree.blocks())
    assert stored == factor.nbytes == factor.precision_map.bytes(tree.layout)
    assert not any(tile.casts for _, _, tile in tree.blocks())
    method = gx.Exact(by_tile_norm(1e-4), tile="whole")
    assert method.plan(seen, MODEL).bytes == stored


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    seen, found = testing.observations(500), []
    for cores in (1, 2, 3):
        monkeypatch.setattr("geomxp.tiles.cholesky.usable_cores", lambda cores=cores: cores)
        found.append(whole(seen, by_tile_norm(1e-5)).dense())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_more_bytes_than_a_quarter_of_fp64_are_never_taken_for_a_block():
    seen = testing.observations(2000)
    method = gx.Exact(by_tile_norm(1e-4), tile="whole")
    evaluator = method.prepare(seen)
    evaluator(MODEL)
    tracemalloc.start()
    factor = evaluator.factorize(MODEL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # beside the tree two threads have a block each, and scratch arrays
    assert peak < factor.nbytes + 2 * largest_block_bytes(factor.store.layout)


@pytest.mark.parametrize("on", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_a_matrix_without_a_factor_in_its_formats_gets_finer_ones(on):
    seen = testing.observations(300)
    smooth = gx.Matern(1.0, 0.3, 1.5, 1e-5)
    with pytest.warns(gx.GeomxpWarning, match="cells were promoted to finer formats"):
        found = gx.log_likelihood(seen, smooth, gx.Exact(by_tile_norm(1e-2), "whole", on=on))
    assert found.promotions > 0
    exact = gx.log_likelihood(seen, smooth)
    assert found.log_likelihood == pytest.approx(exact.log_likelihood, rel=0.05)
    places = testing.places(300)
    places[41] = places[7] + 1e-15
    twins = gx.Observations(places, np.zeros(300))
    with pytest.raises(gx.NotPositiveDefinite, match="rows 8 and 42"):
        gx.log_likelihood(
            twins, gx.Matern(1.0, 3.0, 8.0), gx.Exact(by_tile_norm(1e-8), "whole", on=on)
        )


@pytest.mark.parametrize("rule", [by_tile_norm(1e-3), for_divergence(1e-2)], ids=str)
def test_random_vectors_measure_the_divergence_of_a_tree(rule):
    places, method = testing.places(600), gx.Exact(rule, "whole")
    exact = gx.kl_divergence(MODEL, places, method).kl
    found = gx.estimate_divergence(MODEL, places, method, probes=64)
    assert abs(found.kl - exact) < 4 * found.standard_error + 0.2 * exact
    with pytest.raises(gx.InvalidInput, match='formats by norm or divergence with tile="whole"'):
        gx.estimate_divergence(MODEL, places, gx.Exact(gx.layered("fp16", "fp32"), "whole"))


def test_the_layout_of_cells():
    assert Layout.of_cells(500) == Layout(500, 32, 1)
    assert Layout.of_cells(500, on_gpu=True) == Layout(500, 32, 2)
    assert Layout.of_cells(100, on_gpu=True).joined == 1
    # at most 256 cells in a dimension
    assert Layout.of_cells(10_000) == Layout(10_000, 128, 1)
    assert Layout.of_cells(3) == Layout(3, 3, 1)


def test_memory_is_checked_first(monkeypatch):
    monkeypatch.setattr(Device, "free_memory", lambda _: 2**24 + 100_000)
    with pytest.raises(gx.NotEnoughMemory, match="the tiles need"):
        whole(testing.observations(500), by_tile_norm(1e-5))


def grouped(n, cell):
    class Placed(InMemory):
        def layout(self, n, tile=None):
            return Layout(n, cell, 2)

    return originals_of(MODEL, testing.observations(n), "whole", Placed())[2]


@pytest.mark.parametrize("n", [200, 201, 64, 32])
def test_norms_of_groups_have_the_sums_of_their_cells(n):
    originals = grouped(n, 16)
    cells, groups = originals.norms(), originals.norms_for(by_tile_norm(1e-5))
    assert originals.norms_for(uniform("fp32")) == pytest.approx(cells)
    tiles = len(cells)
    for i, k in np.ndindex(tiles, tiles):
        of = np.s_[i // 2 * 2 : i // 2 * 2 + 2, k // 2 * 2 : k // 2 * 2 + 2]
        if i // 2 == k // 2:
            assert groups[i, k] == pytest.approx(cells[i, k])
        else:
            assert np.linalg.norm(groups[of]) == pytest.approx(np.linalg.norm(cells[of]))


# on a GPU


@pytest.mark.gpu
@in_all_rules
def test_a_gpu_computes_what_the_cpu_does(monkeypatch, rule):
    seen, b = testing.observations(400), np.random.default_rng(1).standard_normal((400, 2))
    monkeypatch.setattr(Layout, "of_cells", lambda n, on_gpu=False: Layout(n, 32, 1))
    here, there = (whole(seen, rule, on) for on in ("cpu", "gpu"))
    assert isinstance(there.store, GpuTree)
    assert there.precision_map.rows == here.precision_map.rows
    error = error_of(here, sigma_of(seen))
    assert error_of(there, sigma_of(seen)) <= 1.2 * error + 1e-15
    scale = 100 * error + 1e-12
    np.testing.assert_allclose(there.log_determinant(), here.log_determinant(), rtol=scale)
    ours, theirs = here.half_solve(b), there.half_solve(b)
    assert np.linalg.norm(theirs - ours) <= scale * np.linalg.norm(ours)
    ours, theirs = here.solve(b), there.solve(b)
    assert np.linalg.norm(theirs - ours) <= 100 * scale * np.linalg.norm(ours)
    np.testing.assert_allclose(there.multiply(b), here.multiply(b), atol=scale)


@pytest.mark.gpu
@pytest.mark.parametrize("smoothness", [1.5, 2.5])
@pytest.mark.parametrize("accuracy", [1e-5, 1e-7])
def test_solves_on_a_gpu_are_accurate_with_ill_conditioned_cells(monkeypatch, smoothness, accuracy):
    monkeypatch.setattr(Layout, "of_cells", lambda n, on_gpu=False: Layout(n, 128, 1))
    model, seen = gx.Matern(1.0, 0.3, smoothness, 1e-4), testing.observations(600)
    here, there = (whole(seen, by_tile_norm(accuracy), on, model) for on in ("cpu", "gpu"))
    sigma = sigma_of(seen, model)
    assert error_of(there, sigma) <= 1.5 * error_of(here, sigma)


@pytest.mark.gpu
def test_two_runs_on_a_gpu_have_the_same_bits():
    seen = testing.observations(400)
    one, two = (whole(seen, by_tile_norm(1e-5), "gpu").dense() for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.gpu
def test_a_table_that_does_not_reach_all_pairs_is_extended():
    places = testing.places(300)
    places[1::2] = places[::2] + 1e-9
    # of a smoothness of its own: other tests may have extended the table of theirs
    model, seen = gx.Matern(1.0, 0.1, 0.7321, 0.1), gx.Observations(places, np.zeros(300))
    factor = whole(seen, by_tile_norm(1e-9), "gpu", model)
    assert error_of(factor, sigma_of(seen, model)) < 1e-8


@pytest.mark.gpu
def test_numbers_that_are_not_finite_are_an_error(monkeypatch):
    seen = testing.observations(300)
    plain = Originals.block

    def spoiled(self, rows, columns, form, panels=None):
        array = plain(self, rows, columns, form, panels)
        if rows != columns:
            array[0, 0] = np.nan
        return array

    monkeypatch.setattr(Originals, "block", spoiled)
    with pytest.raises((gx.InvalidInput, gx.NotPositiveDefinite)):
        whole(seen, uniform("fp16"), "gpu")
