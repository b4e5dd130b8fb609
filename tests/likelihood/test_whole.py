import json
import tracemalloc

import numpy as np
import pytest
import scipy.linalg

import geomxp as gx
from geomxp import testing
from geomxp.cli.main import main
from geomxp.covariance.ordering import hilbert
from geomxp.likelihood.cost import bytes_for, predicted_cost
from geomxp.linalg import nested, recursive
from geomxp.linalg.formats import FP16, FP32, FP64
from geomxp.linalg.nested import SymmetricTree
from geomxp.linalg.precision import layered_map
from geomxp.tiles.assemble import Originals
from geomxp.tiles.layout import Layout

MODEL = gx.Matern(1.0, 0.1, 0.5, 0.01)
LAYERS = [
    *(("fp64",), ("fp32",), ("fp16", "fp32"), ("bf16", "fp32", "fp64"), ("fp8", "fp16", "fp32")),
    *(("fp32", "fp64"), ("fp16", "fp32", "fp64")),
]
in_all_layers = pytest.mark.parametrize("layers", LAYERS, ids="-".join)


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    """Halve matrices of a few hundred rows several times."""
    for table in (
        recursive.EQUAL_SPEED_LEAVES,
        recursive.FAST_PRODUCT_LEAVES,
        recursive.GPU_LEAVES,
    ):
        monkeypatch.setitem(table, "tree", 16)


def whole(*layers, **options):
    return gx.Exact(gx.layered(*layers), tile="whole", **options)


def sigma_of(seen, model=MODEL):
    return model.matrix(seen.inputs, seen.inputs) + model.nugget * np.eye(len(seen))


@pytest.mark.slow
@pytest.mark.parametrize("law", testing.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("layers", "unit"), [(("fp64",), 2.0**-53), (("fp32",), 2.0**-24)])
def test_matrices_factored_as_a_whole_obey(law, layers, unit):
    testing.check_likelihood(whole(*layers), unit_roundoff=unit, laws=[law])


@pytest.mark.slow
@in_all_layers
def test_the_divergence_is_that_of_the_rounded_blocks(layers):
    seen = testing.observations(300)
    found = gx.kl_divergence(MODEL, seen, whole(*layers))
    coarsest = max(layers, key=UNITS.get)
    # ¼‖Σ^-½ E Σ^-½‖², with |E_ij| of at most a few units of the coarsest format
    inverse = np.linalg.inv(sigma_of(seen))
    bound = 0.25 * (4 * UNITS[coarsest]) ** 2 * inverse.diagonal().sum() ** 2
    assert -1e-9 <= found.kl <= bound + 1e-9
    if coarsest in ("fp8", "bf16", "fp16"):
        assert found.kl > 1e-9


UNITS = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8": 2.0**-4}


@pytest.mark.slow
@in_all_layers
@pytest.mark.parametrize("ratio", [0.0, 1.0], ids=["one noise", "noise of its own"])
def test_the_tree_is_that_of_the_assembled_matrix(layers, ratio):
    seen = testing.observations(200)
    inputs = seen.inputs
    if ratio:
        variances = np.random.default_rng(1).uniform(0.0, 2.0, len(seen))
        seen = gx.Observations(seen.locations, seen.values, error_variance=variances)
        inputs = seen.inputs
    order = hilbert(MODEL.isotropic(inputs))
    factor = whole(*layers).prepare(seen).factorize(MODEL)
    np.testing.assert_array_equal(factor.order, order)
    layout = Layout.of(len(seen), len(seen))
    originals = Originals(MODEL, inputs[order], "euclidean", layout)
    fine = originals.block(slice(0, 200), slice(0, 200), FP64)
    coarse = originals.block(slice(0, 200), slice(0, 200), FP16)
    assert coarse.dtype == np.float32
    np.testing.assert_allclose(coarse, fine, rtol=1e-5, atol=1e-6)
    dense = SymmetricTree(fine, layers).potrf().to_dense()
    np.testing.assert_allclose(
        factor.dense(), dense * 2.0**factor.exponent, atol=8 * UNITS[max(layers, key=UNITS.get)]
    )
    if layers in (("fp64",), ("fp32",)):
        np.testing.assert_array_equal(factor.dense(), dense * 2.0**factor.exponent)


@pytest.mark.slow
@in_all_layers
@pytest.mark.parametrize("columns", [None, 1, 3])
def test_products_and_solves_are_those_of_the_factor(layers, columns):
    seen, rng = testing.observations(150), np.random.default_rng(0)
    model = gx.Matern(4e6, 0.1, 0.5, 4e4)
    factor = whole(*layers).prepare(seen).factorize(model)
    lower = factor.dense()
    b = rng.normal(size=150 if columns is None else (150, columns))
    half = scipy.linalg.solve_triangular(lower, b[factor.order], lower=True)
    np.testing.assert_allclose(factor.half_solve(b), half, rtol=1e-9, atol=1e-12)
    back = np.argsort(factor.order)
    solved = scipy.linalg.solve_triangular(lower.T, half)[back]
    np.testing.assert_allclose(factor.solve(b), solved, rtol=1e-8, atol=1e-15)
    if columns is not None:
        np.testing.assert_allclose(factor.multiply(b), (lower @ b)[back], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(factor.inner(b), half.T @ half, rtol=1e-9, atol=1e-12)
    expected = 2 * np.log(lower.diagonal()).sum()
    assert factor.log_determinant() == pytest.approx(expected, rel=1e-13)
    inverse = np.linalg.inv((lower @ lower.T)[np.ix_(back, back)])
    np.testing.assert_allclose(
        np.tril(factor.into_inverse()), np.tril(inverse), rtol=1e-7, atol=1e-9 * inverse.max()
    )


def test_blocks_are_stored_in_their_formats():
    seen = testing.observations(256)
    factor = whole("fp16", "fp32").prepare(seen).factorize(MODEL)
    # A21 of 128 rows and columns in FP16, two triangles in FP32 of which leaves count half
    assert factor.nbytes == 2 * 128**2 + 2 * (4 * 128 * 129 // 2)
    assert factor.precision_map.counts() == {"fp32": 20, "fp16": 16}
    # above FP64 leaves FP32 blocks take half of their bytes
    fine = whole("fp32", "fp64").prepare(seen).factorize(MODEL)
    assert fine.nbytes == 4 * 128**2 + 2 * (8 * 128 * 129 // 2)
    assert fine.precision_map.counts() == {"fp64": 20, "fp32": 16}
    three = whole("fp16", "fp32", "fp64").prepare(seen).factorize(MODEL)
    assert three.nbytes == 2 * 128**2 + 4 * 2 * 64**2 + 4 * (8 * 64 * 65 // 2)
    assert three.precision_map.counts() == {"fp64": 12, "fp32": 8, "fp16": 16}
    # of the squares on the diagonal the tree stores leaves of 16 rows, half of each
    planned = whole("fp16", "fp32").plan(256).bytes
    assert planned == factor.nbytes + 8 * 4 * (32**2 - 2 * (16 * 17 // 2) - 16**2)


def test_the_map_shows_the_halvings_as_they_are_stored():
    assert str(layered_map((FP16, FP32), 64)) == "S\nSS\nHHS\nHHSS"
    assert str(layered_map((FP16, FP32, FP64), 64)) == "D\nSD\nHHD\nHHSD"
    assert str(layered_map((FP32, FP64), 64)) == "D\nDD\nSSD\nSSDD"
    # blocks in a format finer than the leaves' are stored as the leaves are
    assert str(layered_map((FP64, FP16, FP32), 64)) == "S\nHS\nSSS\nSSHS"
    # no more than the matrix has
    assert str(layered_map((FP16, FP32), 16)) == "S"


@pytest.mark.slow
@in_all_layers
def test_the_plan_has_the_bytes_of_the_tree(layers):
    seen = testing.observations(500)
    stored = whole(*layers).prepare(seen).factorize(MODEL).nbytes
    assert stored < whole(*layers).plan(500).bytes < 1.15 * stored


@pytest.mark.slow
def test_the_matrix_is_never_stored_in_fp64():
    seen = testing.observations(600)
    method = whole("fp16", "fp32")
    evaluator = method.prepare(seen)
    evaluator(MODEL)
    tracemalloc.start()
    factor = evaluator.factorize(MODEL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n = len(seen)
    # the tree, and while it is computed a quarter of the matrix in FP32 with its casts
    most = factor.nbytes + 3 * 4 * (n / 2) ** 2 + 64 * n
    assert peak < most < 0.6 * 8 * n * n


@pytest.mark.slow
def test_a_fit_in_layers_is_close_to_that_in_fp64(tmp_path):
    places = testing.places(300)
    truth = MODEL.replace(nugget=0.2)
    seen = gx.Observations(places, gx.simulate(truth, places, seed=3)[0])
    about = {"fixed": {"smoothness": 0.5}, "progress": False}
    fine = gx.fit(seen, **about)
    method = whole("fp16", "fp32")
    coarse = gx.fit(seen, method=method, **about)
    for name in ("variance", "range", "nugget"):
        error = fine.standard_errors[name]
        assert abs(getattr(coarse.model, name) - getattr(fine.model, name)) < 0.2 * error
    new = np.array([[0.5, 0.5], [0.1, 0.9]])
    here, there = (gx.predict(fit, new) for fit in (coarse, fine))
    np.testing.assert_allclose(here.mean, there.mean, atol=0.05)
    coarse.save(tmp_path / "fit.json")
    document = json.loads((tmp_path / "fit.json").read_text())
    assert document["method"]["tile"] == "whole"
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.method == method
    np.testing.assert_array_equal(gx.predict(again, new).mean, here.mean)


@pytest.mark.slow
def test_a_matrix_without_a_factor_in_its_layers_gets_finer_ones():
    seen = testing.observations(200)
    smooth = gx.Matern(1.0, 0.3, 1.5, 1e-5)
    with pytest.raises(gx.NotPositiveDefinite):
        nested.potrf(np.asfortranarray(sigma_of(seen, smooth)), ("fp8", "fp32"), leaf=16)
    with pytest.warns(gx.GeomxpWarning, match="promoted to finer formats"):
        found = gx.log_likelihood(seen, smooth, whole("fp8", "fp64"))
    assert found.promotions == 16
    assert found.precision_map.counts() == {"fp64": 36}
    exact = gx.log_likelihood(seen, smooth)
    assert found.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-5)


def test_a_singular_matrix_is_an_error_that_names_the_locations():
    places = testing.places(60)
    places[41] = places[7] + 1e-15
    seen = gx.Observations(places, np.zeros(60))
    with pytest.raises(gx.NotPositiveDefinite, match="rows 8 and 42"):
        gx.log_likelihood(seen, gx.Matern(1.0, 3.0, 20.0), whole("fp16", "fp32"))


def test_restricted_likelihood_and_derivatives_are_those_of_fp64():
    seen = testing.observations(120)
    design = np.column_stack((np.ones(120), seen.locations))
    names = ("variance", "range", "nugget")
    ours, exact = (
        method.prepare(seen, design, True).derivatives(MODEL, names, curvature=True)
        for method in (whole("fp64"), gx.Exact())
    )
    np.testing.assert_allclose(ours.score, exact.score, rtol=1e-8)
    np.testing.assert_allclose(ours.observed, exact.observed, rtol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": gx.layered("fp32", "fp16")}, "must end with fp32 or fp64"),
        ({"precision": gx.uniform("bf16")}, "must end with fp32 or fp64"),
        ({"tile": "all"}, "`tile` must be a number of rows, or \"whole\". Got 'all'"),
        ({"precision": gx.layered("fp32-fp16", "fp32")}, "no layers in fp32-fp16, .*: use fp16"),
        ({"tile": [1, 2]}, '`tile` must be a number of rows, or "whole"'),
        ({"tile": np.array([1, 2])}, "`tile` must be a number of rows"),
        ({"tile": 2.0}, "`tile` must be a number of rows"),
        ({"tile": True}, "`tile` must be a number of rows"),
        ({"memory": "1GB"}, "cannot be combined with `memory`: leave one out"),
        ({"refine": "cg"}, "cannot be combined with `refine`"),
        ({"on": ["cpu", "cpu"]}, "is for one device"),
        ({"on": "tcp://127.0.0.1:1"}, "is for one device"),
    ],
)
def test_what_does_not_go_with_a_whole_matrix_is_refused(options, message):
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Exact(**{"precision": gx.layered("fp16", "fp32"), "tile": "whole"} | options)


def test_memory_is_checked_first_and_predicted(monkeypatch):
    from geomxp.likelihood import factors

    method, n = whole("fp16", "fp16", "fp32"), 4096
    plan = method.plan(n)
    assert plan.bytes == layered_map(method.layers, n).bytes(Layout.of(n, n // 32))
    assert predicted_cost(method, n).bytes == plan.bytes < 0.18 * 8 * n * n
    seen = testing.observations(300)
    monkeypatch.setattr(factors, "free_memory", lambda: 100_000)
    with pytest.raises(gx.NotEnoughMemory):
        gx.log_likelihood(seen, MODEL, method)


def test_the_command_line_takes_whole(capsys):
    words = ["compare", "--n", "200", "--variance", "1", "--range", "0.1", "--smoothness", "0.5"]
    words += ["--nugget", "0.01", "--layers", "fp16,fp32", "--tile", "whole", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["formats"] == {"fp32": 20, "fp16": 16}


def test_a_finer_attempt_is_made_only_if_it_fits(monkeypatch):
    from geomxp.likelihood import factors

    seen = testing.observations(400)
    smooth = gx.Matern(1.0, 0.3, 1.5, 1e-5)
    method = whole("fp8", "fp32")
    # the tree and three blocks of a quarter of the matrix in FP32
    least = bytes_for(400, (method.plan(400).bytes + 3 * 400**2) / (8 * 400**2))
    monkeypatch.setattr(factors, "free_memory", lambda: least + 1)
    with pytest.raises(gx.NotEnoughMemory):
        gx.log_likelihood(seen, smooth, method)


@pytest.mark.slow
def test_a_report_and_a_plan_say_how_the_matrix_is_stored(tmp_path):
    seen, fixed = testing.observations(60), {"smoothness": 0.5}
    fit = gx.fit(seen, method=whole("fp16", "fp32"), fixed=fixed, progress=False)
    gx.report(fit, tmp_path / "fit.html", level="quick", progress=False)
    text = (tmp_path / "fit.html").read_text()
    assert "one matrix, halved: 6 FP32, 4 FP16" in " ".join(text.split())
    alone = str(gx.Exact(gx.uniform("fp32"), tile="whole").plan(10))
    assert "one matrix       400 bytes in FP32" in alone
    assert not whole("fp64").noisy
    assert whole("fp16", "fp64").noisy


@pytest.mark.gpu
def test_the_map_of_a_gpu_has_the_leaves_of_a_gpu(monkeypatch):
    monkeypatch.setitem(recursive.GPU_LEAVES, "tree", 64)
    seen = testing.observations(200)
    here, there = (
        whole("fp16", "fp32", on=on).prepare(seen).factorize(MODEL) for on in ("cpu", "gpu")
    )
    assert (len(here.precision_map), len(there.precision_map)) == (8, 4)
    assert there.nbytes < whole("fp16", "fp32", on="gpu").plan(200).bytes < 1.5 * there.nbytes


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("layers", [("fp64",), ("fp16", "fp32"), ("fp32", "fp64")], ids="-".join)
def test_a_gpu_computes_what_the_cpu_does(layers):
    seen = testing.observations(200)
    here, there = (gx.log_likelihood(seen, MODEL, whole(*layers, on=on)) for on in ("cpu", "gpu"))
    unit = UNITS[layers[0]]
    assert abs(there.log_likelihood - here.log_likelihood) <= 100 * unit * abs(here.log_likelihood)
    names = ("variance", "range", "nugget")
    ours, theirs = (
        whole(*layers, on=on).prepare(seen).derivatives(MODEL, names) for on in ("cpu", "gpu")
    )
    np.testing.assert_allclose(theirs.score, ours.score, rtol=1e3 * unit, atol=1e3 * unit)
