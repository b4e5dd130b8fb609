"""What GPU code may cost: launches, and waits of the host, counted on the emulator."""

import numpy as np
import pytest

import geomxp as gx
from geomxp import testing
from geomxp.linalg import nested
from geomxp.tiles import layout as layouts

LEAF, RANGES = 16, {"weak": 0.02627, "strong": 0.210158}
LAYERS = (("fp64",), ("fp32",), ("fp16", "fp32"), ("fp16",) * 5 + ("fp32",), ("fp16", "fp64"))
LAYERS += (("bf16", "fp32"), ("tf32", "fp32"), ("fp8", "fp16", "fp32"))


@pytest.fixture
def count(pytestconfig):
    """Return the counts of a call that is not the first of its shape: kernels are compiled."""
    if pytestconfig.getoption("--gpu") == "real":
        pytest.skip("operations are counted on the emulator only")
    from cuda_emulator import machine

    done = set()

    def counted(prepare, work, shape):
        for _ in range(1 if shape in done else 2):
            prepare()
            machine.synchronize_device()
            with machine.counting() as counts:
                work()
        done.add(shape)
        return counts

    return counted


def matrix(name, n, nugget):
    if name == "random":
        return np.random.default_rng(0).random((n, n)) + n * np.eye(n)
    places = testing.places(n)
    return gx.Matern(1.0, RANGES[name], 0.5)(places, places) + nugget * np.eye(n)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layers", LAYERS, ids="-".join)
def test_a_nested_factorization_waits_twice_and_launches_in_proportion_to_its_blocks(count, layers):
    import cupy

    launches = {}
    for name in ("random", "weak", "strong"):
        for leaves in (8, 16) if name == "random" else (8,):
            # FP8 keeps only well conditioned matrices positive definite
            nugget = 2.0 if "fp8" in layers else 0.01
            numbers = np.asfortranarray(matrix(name, LEAF * leaves, nugget))
            a = cupy.asarray(numbers)
            counts = count(
                lambda a=a, numbers=numbers: a.set(numbers),
                lambda a=a: nested.potrf(a, layers, leaf=LEAF),
                a.shape,
            )
            assert counts["synchronizations"] <= 2, name
            launches[name, leaves] = counts["launches"]
    # every level has as many columns of blocks as there are leaves, half of them off the diagonal
    most = {leaves: leaves / 2 * np.log2(leaves) for leaves in (8, 16)}
    for (name, leaves), found in launches.items():
        assert found == launches["random", leaves], name
        assert found <= 50 * most[leaves]
    assert launches["random", 16] / most[16] <= 1.25 * launches["random", 8] / most[8]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["weak", "strong"])
@pytest.mark.parametrize("accuracy", [1e-5, 1e-8])
def test_a_tree_waits_twice_and_launches_less_than_tiles_of_its_cells(
    count, monkeypatch, name, accuracy
):
    monkeypatch.setattr(layouts, "GPU_CELL", LEAF)
    seen, model = testing.observations(16 * LEAF), gx.Matern(1.0, RANGES[name], 0.5, 0.01)
    counts = {}
    for tile in ("whole", LEAF):
        method = gx.Exact(gx.by_tile_norm(accuracy), tile, on="gpu")
        factorize = method.prepare(seen).factorize
        counts[tile] = count(lambda: None, lambda f=factorize: f(model), (tile, name, accuracy))
    # norms of groups and of cells, and the factorization
    assert counts["whole"]["synchronizations"] <= 3
    assert counts["whole"]["launches"] < 0.7 * counts[LEAF]["launches"]
