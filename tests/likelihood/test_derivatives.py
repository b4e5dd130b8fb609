import tracemalloc

import numpy as np
import pytest
from cases import by_pairs

import geomxp as gx
from geomxp import testing
from geomxp.covariance import sums
from geomxp.likelihood import derivatives, exact, inverse
from geomxp.linalg import recursive
from geomxp.runtime.devices import Device

MODELS = {
    "plane": (gx.Matern(1.7, 0.2, 0.8, 0.1), "euclidean"),
    "short range": (gx.Matern(1.7, 2e-3, 0.8, 0.1), "euclidean"),
    "without nugget": (gx.Matern(1.7, 0.2, 0.8), "euclidean"),
    "anisotropic": (gx.Matern(1.7, 0.2, 0.8, 0.1, gx.Anisotropy(30.0, 0.6)), "euclidean"),
    "smoother than any table": (gx.Matern(1.7, 0.01, 60.0, 0.1), "euclidean"),
    "arcs": (gx.Matern(1.7, 900.0, 0.4, 0.1), "great-circle"),
}


def evaluator_of(kind, reml, method=None, n=60):
    model, metric = MODELS[kind]
    plain = testing.observations(n)
    extent = 1.0 if metric == "euclidean" else 30.0
    seen = gx.Observations(extent * plain.locations, plain.values, metric=metric)
    design = np.column_stack((np.ones(n), seen.locations[:, 0]))
    return model, (method or gx.Exact()).prepare(seen, design, reml)


def definitions(model, evaluator):
    """P or Σ⁻¹, P, α and the derivatives of Σ, dense."""
    seen, x = evaluator.observations, evaluator.design
    whole, names = slice(0, len(seen)), tuple(model.parameters())
    generator = model.pairs(gx.Inputs(seen.locations, seen.metric))
    smooth = [name for name in names if name != "nugget"]
    changes = generator.derivatives(whole, whole, smooth) | {"nugget": np.eye(len(seen))}
    sigma = model(seen.locations, seen.locations, seen.metric) + model.nugget * np.eye(len(seen))
    inverse = np.linalg.inv(sigma)
    p = inverse - inverse @ x @ np.linalg.solve(x.T @ inverse @ x, x.T @ inverse)
    changes = [changes[name] for name in names]
    return (p if evaluator.reml else inverse), p, p @ seen.values, changes


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_score_and_information_are_their_definitions(kind, reml):
    model, evaluator = evaluator_of(kind, reml)
    q, p, alpha, changes = definitions(model, evaluator)
    names = tuple(model.parameters())
    found = evaluator.derivatives(model, names, curvature=True)
    score = [0.5 * (alpha @ d @ alpha - np.trace(q @ d)) for d in changes]
    average = [[0.5 * alpha @ d @ p @ e @ alpha for e in changes] for d in changes]
    expected = [[0.5 * np.sum((q @ d) * (q @ e).T) for e in changes] for d in changes]
    # inverse, products and sums of 60 places, and the condition number below 1e5
    scale = np.sqrt(np.diag(expected))
    sizes = np.outer(scale, scale)
    np.testing.assert_allclose(list(found.gradient().values()) / scale, score / scale, atol=1e-8)
    np.testing.assert_allclose(found.information / sizes, average / sizes, atol=1e-8)
    np.testing.assert_allclose(found.expected / sizes, expected / sizes, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_observed_information_is_minus_the_slope_of_the_score(kind, reml):
    model, evaluator = evaluator_of(kind, reml)
    names, values = tuple(model.parameters()), model.parameters()
    found = evaluator.observed_information(model)
    rows = []
    for name in names:
        if values[name] == 0:
            rows.append(np.full(len(names), np.nan))
            continue
        step = 1e-4 * values[name]
        moved = [
            gx.Matern.from_parameters(values | {name: values[name] + k * step})
            for k in (1, -1, 2, -2)
        ]
        up, down, above, below = (
            np.array(list(evaluator.gradient(m, names).values())) for m in moved
        )
        rows.append(-(8 * (up - down) - (above - below)) / (12 * step))
    scale = np.sqrt(np.abs(np.diag(evaluator.expected_information(model))))
    ours, theirs = found / np.outer(scale, scale), np.array(rows) / np.outer(scale, scale)
    known = np.isfinite(theirs)
    # second derivatives of Σ are by differences too: their step squared
    np.testing.assert_allclose(ours[known], theirs[known], atol=3e-6)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("reml", [False, True])
def test_tiles_give_the_derivatives_of_the_whole(reml):
    names = tuple(MODELS["plane"][0].parameters())
    model, whole = evaluator_of("plane", reml)
    _, tiled = evaluator_of("plane", reml, gx.Exact(tile=16))
    ours = tiled.derivatives(model, names, curvature=True)
    theirs = whole.derivatives(model, names, curvature=True)
    scale = np.sqrt(np.diag(theirs.expected))
    sizes = np.outer(scale, scale)
    for field, size in {
        **{"quadratic": scale, "trace": scale},
        **{"information": sizes, "expected": sizes, "observed": sizes},
    }.items():
        # in units of the information: what is left of large terms may be small
        ours_, theirs_ = getattr(ours, field) / size, getattr(theirs, field) / size
        np.testing.assert_allclose(ours_, theirs_, rtol=1e-9, atol=1e-8)


WAYS_BY_COLUMNS = {
    "fp64": gx.Exact(tile=16),
    "by norm": gx.Exact(gx.by_tile_norm(1e-6), tile=16),
    "tree": gx.Exact(gx.by_tile_norm(1e-6), tile="whole"),
    "layers": gx.Exact(gx.layered("fp32", "fp64"), tile="whole"),
    "refined": gx.Exact(gx.by_tile_norm(1e-6), tile=16, refine="cg"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reml", "way"), by_pairs(list(MODELS), [False, True], list(WAYS_BY_COLUMNS))
)
def test_panels_of_columns_give_the_derivatives_of_the_whole(monkeypatch, kind, reml, way):
    model, whole = evaluator_of(kind, reml, WAYS_BY_COLUMNS[way], 100)
    _, parts = evaluator_of(kind, reml, WAYS_BY_COLUMNS[way], 100)
    monkeypatch.setattr(parts, "_room_for", lambda *a: False)
    # three panels of Σ⁻¹, and more of these with whitened derivatives
    monkeypatch.setattr(parts, "_columns_in_memory", lambda *a: 37)
    names, about = tuple(model.parameters()), {"curvature": way != "layers"}
    theirs = whole.derivatives(model, names, **about)
    ours = parts.derivatives(model, names, **about)
    single = theirs.error is not None
    # FP32 where the inverse has it
    assert single == (ours.error is not None) == (way in ("by norm", "tree", "refined"))
    for field in ("score", "information", "quadratic", "trace", "expected", "observed"):
        a, b = getattr(ours, field), getattr(theirs, field)
        if b is None:
            assert a is None
            continue
        # second derivatives are differences of sums with FP32 weights
        rounding = (1e-3 if field == "observed" else 5e-5) if single else 1e-10
        tolerance = rounding * np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)
    assert parts(model).log_likelihood == whole(model).log_likelihood


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("rule", [gx.uniform("fp64"), gx.by_tile_norm(1e-6)], ids=["fp64", "norm"])
def test_panels_of_tiles_on_a_gpu_give_the_derivatives_of_the_cpu(monkeypatch, rule):
    found = []
    for on in ("cpu", "gpu"):
        model, evaluator = evaluator_of("plane", True, gx.Exact(rule, tile=32, on=on), 150)
        monkeypatch.setattr(evaluator, "_room_for", lambda *a: False)
        monkeypatch.setattr(evaluator, "_columns_in_memory", lambda *a: 70)
        found.append(evaluator.derivatives(model, tuple(model.parameters()), curvature=True))
    tolerance = 1e-9 if rule == gx.uniform("fp64") else 1e-4
    for field in ("score", "information", "expected"):
        ours, theirs = (getattr(each, field) for each in found)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


def test_panels_in_fp32_with_a_large_error_are_computed_in_fp64(monkeypatch):
    monkeypatch.setattr(exact, "LARGEST_SCORE_ERROR", 0.0)
    method = gx.Exact(gx.by_tile_norm(1e-6), tile=16)
    model, whole = evaluator_of("plane", True, method, 100)
    _, parts = evaluator_of("plane", True, method, 100)
    monkeypatch.setattr(parts, "_room_for", lambda *a: False)
    monkeypatch.setattr(parts, "_columns_in_memory", lambda *a: 60)
    dtypes, real = [], derivatives.differentiate
    # the type of the inverse is the ninth argument
    monkeypatch.setattr(exact, "differentiate", lambda *a: dtypes.append(a[8]) or real(*a))
    found = parts.derivatives(model, tuple(model.parameters()))
    assert dtypes == [np.float32, np.float64]
    monkeypatch.setattr(exact, "differentiate", real)
    expected = whole.derivatives(model, tuple(model.parameters()))
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-9)


def test_a_score_in_a_bounded_memory_comes_from_panels_within_it(tmp_path):
    n, memory = 1500, 40_000_000
    model, evaluator = evaluator_of("plane", False, gx.Exact(tile=128), n=n)
    names = tuple(model.parameters())
    bounded = gx.Exact(tile=128, memory=memory, scratch=tmp_path)
    _, on_disk = evaluator_of("plane", False, bounded, n=n)
    assert on_disk.scoring
    assert not on_disk._room_for(0)
    assert 750 < on_disk._columns_in_memory(0) < 1500
    theirs = evaluator.derivatives(model, names)
    tracemalloc.start()
    ours = on_disk.derivatives(model, names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # one panel of 9 MB at a time
    assert peak < 14e6
    np.testing.assert_allclose(ours.score, theirs.score, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(ours.information, theirs.information, rtol=1e-9)


def test_panels_cover_all_columns():
    for n, width in ((1, 5), (10, 3), (12, 4), (5, 5), (7, 1)):
        panels = inverse.panels_of(n, width)
        assert [k for panel in panels for k in range(panel.start, panel.stop)] == list(range(n))
        assert max(panel.stop - panel.start for panel in panels) <= width


@pytest.mark.parametrize("rule", [gx.uniform("fp64"), gx.by_tile_norm(1e-5)], ids=["fp64", "norm"])
def test_columns_grow_with_the_memory_and_those_in_fp64_take_no_more(monkeypatch, rule):
    counts = []
    for memory in ("24MB", "32MB", "45MB", "60MB"):
        method = gx.Exact(rule, tile=128, memory=memory)
        _, evaluator = evaluator_of("plane", False, method, n=2600)
        counts.append(evaluator._columns_in_memory(0))
        assert evaluator.scoring == (counts[-1] > 0)
        assert evaluator._columns_in_memory(3) <= counts[-1]
    assert counts[0] == 0
    assert counts == sorted(set(counts))
    # in extreme units the inverse is FP64, which may take no more memory
    taken, real = [], derivatives.differentiate
    monkeypatch.setattr(exact, "differentiate", lambda *a: taken.append(a[8:]) or real(*a))
    model = gx.Matern(1.7 * 4.0**40, 0.2, 0.8, 0.1 * 4.0**40)
    evaluator.derivatives(model, ("range",))
    ((dtype, space, width),) = taken
    assert (dtype, space) == (np.float64, None)
    assert width == (counts[-1] if rule == gx.uniform("fp64") else -(-counts[-1] // 2))


def test_information_asked_for_by_name_stays_within_the_memory():
    n, memory = 1500, 52_000_000
    method = gx.Exact(tile=128, memory=memory)
    model, evaluator = evaluator_of("plane", False, method, n=n)
    names = ("variance", "range", "nugget")
    assert not evaluator.has_curvature(names)
    # loops are compiled, and tables made
    _, small = evaluator_of("plane", False, gx.Exact(tile=128), n=200)
    small._room_for, small._columns_in_memory = (lambda *a: False), (lambda *a: 100)
    small.expected_information(model, names)
    tracemalloc.start()
    found = evaluator.expected_information(model, names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # a matrix has 18 MB
    assert peak < 12e6
    _, whole = evaluator_of("plane", False, n=n)
    np.testing.assert_allclose(found, whole.expected_information(model, names), rtol=1e-9)


def test_derivatives_and_evaluation_of_the_last_model_are_kept():
    model, evaluator = evaluator_of("plane", False)
    direct = evaluator(model)
    assert not evaluator.keeps(model)
    found = evaluator.derivatives(model, ("range", "nugget"))
    assert evaluator.keeps(model)
    assert evaluator.derivatives(model, ("nugget",)) is found
    assert evaluator(model).log_likelihood == direct.log_likelihood
    other = gx.Matern(1.7, 0.21, 0.8, 0.1)
    assert evaluator(other).log_likelihood != direct.log_likelihood


def test_information_in_one_parameter_is_a_part_of_the_whole():
    model, evaluator = evaluator_of("plane", False)
    whole = evaluator.expected_information(model)
    lone = evaluator_of("plane", False)[1].expected_information(model, ("range",))
    assert lone[0, 0] == pytest.approx(whole[1, 1], rel=1e-12)


def test_the_observed_information_of_isotropy_is_the_limit_of_anisotropy():
    _, evaluator = evaluator_of("plane", False)
    near, there = (
        evaluator.observed_information(gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, ratio)))
        for ratio in (1 - 2e-4, 1.0)
    )
    # extrapolated from two ratios on this side of 1: their distance squared
    far = evaluator.observed_information(gx.Matern(1.7, 0.2, 0.8, 0.1, (30.0, 1 - 4e-4)))
    scale = np.sqrt(np.abs(np.diag(near)))
    scale[4] = scale[5] / 100  # the angle means nothing at 1, where its information is 0
    sizes = np.outer(scale, scale)
    np.testing.assert_allclose(there / sizes, (2 * near - far) / sizes, atol=1e-5)


def assert_same_derivatives(ours, theirs, condition, n):
    """Up to c·n·u·κ, in units of the expected information."""
    scale = np.sqrt(np.diag(theirs.expected))
    sizes = np.outer(scale, scale)
    for field, size in {
        **{"quadratic": scale, "trace": scale},
        **{"information": sizes, "expected": sizes, "observed": sizes},
    }.items():
        a, b = getattr(ours, field) / size, getattr(theirs, field) / size
        # second derivatives of Σ are differences, which divide rounding by their step
        unit = 2.0**-53 / (derivatives.SECOND_DERIVATIVE_STEP if field == "observed" else 1.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=20 * n * unit * condition * abs(b).max())


@pytest.mark.slow
@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_derivatives_in_the_place_of_the_factor_are_those_beside_it(monkeypatch, kind, reml):
    model, evaluator = evaluator_of(kind, reml, n=100)
    names = tuple(model.parameters())
    theirs = evaluator.derivatives(model, names, curvature=True)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 32)
    monkeypatch.setattr(inverse, "in_ram", inverse.in_place)
    ours = evaluator_of(kind, reml, n=100)[1].derivatives(model, names, curvature=True)
    assert (ours.trace != theirs.trace).any()  # another order of summation
    assert_same_derivatives(
        ours, theirs, testing.condition_number(model, evaluator.observations), 100
    )


def test_score_and_average_information_need_no_second_matrix(monkeypatch):
    n = 1000
    model, evaluator = evaluator_of("anisotropic", True, n=n)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 64)
    names = tuple(model.parameters())
    lower = evaluator.factorize(model).lower
    places = gx.Inputs(evaluator.observations.locations, "euclidean")
    alpha, beside = np.ones(n), np.ones((n, 2))
    tracemalloc.start()
    given = [model], places, names, alpha, beside
    q = inverse.in_place(lower, False, *given).products
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # L has 8 MB; the table of the correlation less than one
    assert q.shape == (n, len(names))
    assert peak < lower.nbytes / 3


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "reml", "tile", "stay"),
    [
        (kind, reml, *way)
        for kind, reml, way in by_pairs(
            [kind for kind in MODELS if "any table" not in kind],
            [False, True],
            [(None, True), (None, False), (50, True)],
        )
    ],
)
def test_derivatives_on_a_gpu_are_those_of_the_cpu(monkeypatch, kind, reml, tile, stay):
    n = 150
    model, evaluator = evaluator_of(kind, reml, n=n)
    names = tuple(model.parameters())
    theirs = evaluator.derivatives(model, names, curvature=True)
    # by halves, and by blocks
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 64)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 64)
    condition = testing.condition_number(model, evaluator.observations)
    on_gpu = evaluator_of(kind, reml, gx.Exact(tile=tile, on="gpu"), n=n)[1]
    # whitened derivatives stay on the GPU if there is room
    assert on_gpu._whitened_stay(len(names))
    if not stay:
        monkeypatch.setattr(on_gpu, "_whitened_stay", lambda count: False)
    ours = on_gpu.derivatives(model, names, curvature=True)
    assert_same_derivatives(ours, theirs, condition, n)


@pytest.mark.gpu
def test_tiles_on_a_gpu_are_assembled_there_if_they_fit(monkeypatch):
    scores, used = [], []
    for free in (2**40, 2**24 + 10**6):
        monkeypatch.setattr(Device, "free_memory", lambda self, free=free: free)
        model, evaluator = evaluator_of("plane", False, gx.Exact(tile=100, on="gpu"), n=300)
        way = "in_place" if free > 2**30 else "in_ram"
        real = getattr(inverse, way)
        monkeypatch.setattr(
            inverse, way, lambda lower, *a, real=real: used.append(lower) or real(lower, *a)
        )
        scores.append(evaluator.derivatives(model, tuple(model.parameters())).score)
    assert [isinstance(lower, np.ndarray) for lower in used] == [False, True]
    # the place is chosen once, before the tiles take their memory
    monkeypatch.setattr(Device, "free_memory", lambda self: 2**40)
    model, evaluator = evaluator_of("plane", False, gx.Exact(tile=100, on="gpu"), n=300)
    places = [evaluator._assembled_on(0)]
    monkeypatch.setattr(evaluator, "_assembled_on", lambda count: places.pop())
    monkeypatch.setattr(evaluator, "_matrices", lambda *a: ())
    evaluator.derivatives(model, tuple(model.parameters()))
    assert not isinstance(used[-1], np.ndarray)
    np.testing.assert_allclose(*scores, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.gpu
def test_a_gpu_needs_one_matrix_for_score_and_average_information(monkeypatch):
    import cupy

    n, pool = 1500, cupy.get_default_memory_pool()
    monkeypatch.setattr(recursive, "GPU_LEAF_ORDER", 1024)
    monkeypatch.setattr(sums, "BLOCK_ORDER", 128)
    model, evaluator = evaluator_of("plane", False, gx.Exact(on="gpu"), n=n)
    pool.free_all_blocks()
    # beside L, which is not in the pool: cuSOLVER's workspace and the blocks, not a second matrix
    pool.set_limit(size=pool.total_bytes() + int(0.9 * 8 * n * n))
    try:
        found = evaluator.derivatives(model, tuple(model.parameters()))
    finally:
        pool.set_limit(size=0)
    assert np.isfinite(found.information).all()
