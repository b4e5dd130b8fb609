import math

import numpy as np
import pytest

import geomxp as gx
from geomxp.likelihood import cost
from geomxp.likelihood.cost import predicted_cost


def test_the_exact_method_costs_n_cubed_and_vecchia_n():
    exact = [predicted_cost(gx.Exact(), n).seconds_of_evaluation for n in (10**6, 2 * 10**6)]
    assert exact[1] / exact[0] == pytest.approx(8, rel=0.02)
    vecchia = [predicted_cost(gx.Vecchia(30), n).seconds_of_evaluation for n in (10**6, 2 * 10**6)]
    assert vecchia[1] / vecchia[0] == pytest.approx(2, rel=0.02)


def test_each_location_more_and_each_neighbour_more_cost_more():
    sizes = 100, 1000, 10_000
    for method in (gx.Exact(), gx.Vecchia(30)):
        costs = [predicted_cost(method, n) for n in sizes]
        for name in ("seconds_of_evaluation", "seconds_of_fit", "bytes"):
            values = [getattr(one, name) for one in costs]
            assert values == sorted(values), name
            assert values[0] < values[-1], name
    few, many = (predicted_cost(gx.Vecchia(m), 10_000) for m in (10, 60))
    assert few.seconds_of_fit < many.seconds_of_fit
    assert few.bytes < many.bytes
    small, large = (predicted_cost(gx.Exact(), 5_000, free=free) for free in (1, 6))
    assert small.seconds_of_fit < large.seconds_of_fit


def test_a_fit_costs_more_than_an_evaluation_and_less_than_a_hundred():
    for method, n in ((gx.Exact(), 20_000), (gx.Vecchia(30), 10**6)):
        predicted = predicted_cost(method, n)
        evaluations = predicted.seconds_of_fit / predicted.seconds_of_evaluation
        assert 5 < evaluations < 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "typical"),
    [(gx.Exact(), cost.EXACT_EVALUATIONS), (gx.Vecchia(30), cost.VECCHIA_EVALUATIONS)],
)
def test_the_counts_of_evaluations_are_those_of_fits(method, typical):
    counts = []
    for seed in range(3):
        locations = np.random.default_rng(seed).random((500, 2))
        (values,) = gx.simulate(gx.Matern(1.0, 0.05, 1.0, 0.1), locations, seed=seed)
        fit = gx.fit(gx.Observations(locations, values), method=method, progress=False)
        counts.append(fit.evaluations)
    assert typical / 2 < np.median(counts) < 2 * typical


def test_bytes_are_those_of_the_matrix_of_the_tiles_or_of_the_bound():
    n = 20_000
    assert predicted_cost(gx.Exact(), n).bytes == pytest.approx(8 * n**2, rel=0.03)
    half = gx.Exact(gx.uniform("fp32"), tile=500)
    assert predicted_cost(half, n).bytes == half.plan(n).bytes
    bounded = gx.Exact(tile=1000, memory="500MB")
    assert predicted_cost(bounded, n).bytes == 500_000_000
    # formats that depend on the matrix are at most FP64
    adaptive = predicted_cost(gx.Exact(gx.by_tile_norm(1e-8)), n)
    assert adaptive.bytes == pytest.approx(4 * n**2, rel=0.03)


def test_a_folder_that_does_not_exist_yet_is_no_error(tmp_path):
    method = gx.Exact(tile=1000, memory="500MB", scratch=tmp_path / "new")
    assert predicted_cost(method, 20_000).bytes == 500_000_000


def test_a_limit_that_is_too_small_is_an_error():
    with pytest.raises(gx.NotEnoughMemory, match="allow more"):
        predicted_cost(gx.Exact(tile=1000, memory="1MB"), 20_000)


@pytest.mark.parametrize(
    "method", [gx.Exact(), gx.Exact(tile=500), gx.Exact(gx.by_tile_norm(1e-8)), gx.Vecchia(30)]
)
def test_what_exceeds_the_free_memory_does_not_fit(method, monkeypatch):
    needed = predicted_cost(method, 3_000).bytes
    for free, fits in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr("geomxp.likelihood.cost.free_memory", lambda free=free: free)
        monkeypatch.setattr("geomxp.runtime.devices.free_memory", lambda free=free: free)
        assert predicted_cost(method, 3_000).fits is fits


def test_seconds_on_a_cluster_and_whether_it_fits_are_unknown():
    on = "tcp://127.0.0.1:8786"
    for method in (gx.Exact(on=on), gx.Exact(gx.by_tile_norm(1e-8), on=on), gx.Vecchia(30, on=on)):
        predicted = predicted_cost(method, 5_000)
        assert predicted.seconds_of_evaluation is predicted.seconds_of_fit is predicted.fits is None
        assert predicted.bytes > 0
        assert "about" not in str(predicted)


@pytest.mark.gpu
def test_seconds_on_a_gpu_are_unknown_and_its_memory_counts():
    predicted = predicted_cost(gx.Exact(on="gpu"), 1_000)
    assert predicted.seconds_of_fit is None
    assert predicted.fits is True
    assert predicted_cost(gx.Exact(on="gpu"), 10**6).fits is False


def test_a_rate_is_measured_once():
    assert cost.rate_of_core() == cost.rate_of_core() > 0
    assert math.isfinite(cost.rate())
    assert cost.rate() > 0


def test_a_cost_reads_as_text():
    text = str(predicted_cost(gx.Exact(), 50_000))
    assert text.endswith(" and 20.4 GB")
    assert text.startswith("about ")
