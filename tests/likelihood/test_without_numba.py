"""Computations without numba: all of them on a GPU; on a CPU a warning or an error."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import geomxp as gx
from geomxp.covariance.bessel import correlation

# this process, too, may run without numba
pytestmark = pytest.mark.filterwarnings("ignore:numba cannot be imported")

MODEL = gx.Matern(1.0, 0.25, 0.8, 0.2)
RUN = """
import json, sys, warnings

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

MISSING = sys.argv[1].split(",")
sys.meta_path.insert(0, Missing())

import numpy as np
import geomxp as gx

data = np.load(sys.argv[2])
seen, there = gx.Observations(data["locations"], data["values"]), data["there"]
model = gx.Matern(*data["model"])
found = {}

def keep(fit):
    found["fit"] = fit.log_likelihood, list(fit.model.parameters().values())
    found["errors"] = [fit.standard_errors[name] for name in fit.model.parameters()]

def keep_predictions(prediction, name="prediction"):
    found[name] = prediction.mean.tolist(), prediction.variance.tolist()
"""
NUMBA = "numba,llvmlite"
ALL = f"{NUMBA},nlopt,psutil,threadpoolctl,pandas,pyarrow,formulaic,matplotlib,jinja2,rich,typer"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Observations of a Matérn field, new places, and the file that has them."""
    random = np.random.default_rng(11)
    places, there = random.random((100, 2)), random.random((25, 2))
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    sigma = correlation(apart / MODEL.range, MODEL.smoothness) + MODEL.nugget * np.eye(100)
    values = 3.0 + np.linalg.cholesky(sigma) @ random.standard_normal(100)
    path = tmp_path_factory.mktemp("without") / "data.npz"
    model = [MODEL.variance, MODEL.range, MODEL.smoothness, MODEL.nugget]
    np.savez(path, locations=places, values=values, there=there, model=model)
    return gx.Observations(places, values), there, path


def without(missing, path, code):
    """Return what a process finds in which some packages are missing."""
    command = [sys.executable, "-c", f"{RUN}\n{code}\nprint(json.dumps(found))", missing, str(path)]
    # with the CuPy of this process, a real or an emulated one
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def check_fit(found, fit, tolerance):
    value, parameters = found["fit"]
    assert value == pytest.approx(fit.log_likelihood, abs=tolerance)
    # a maximum known to this tolerance has parameters known to its root
    errors = np.array(list(fit.standard_errors.values()))
    change = np.array(parameters) - list(fit.model.parameters().values())
    assert (np.abs(change) <= 2 * np.sqrt(tolerance) * errors).all()
    np.testing.assert_allclose(found["errors"], errors, rtol=10 * np.sqrt(tolerance))


@pytest.mark.slow
@pytest.mark.gpu
def test_a_gpu_computes_with_nothing_but_numpy_scipy_and_cupy(data):
    seen, there, path = data
    found = without(
        ALL,
        path,
        """
warnings.simplefilter("error", gx.GeomxpWarning)
gpu = gx.Exact(on="gpu")
found["value"] = gx.log_likelihood(seen, model, gpu).log_likelihood
keep(fit := gx.fit(seen, None, gpu, progress=False))
held = gx.fit(seen, model, gpu, fixed=tuple(model.parameters()))
keep_predictions(gx.predict(held, there))
keep_predictions(gx.predict(held, there, block=0.1), "block")
""",
    )
    value = gx.log_likelihood(seen, MODEL).log_likelihood
    assert found["value"] == pytest.approx(value, rel=1e-9)
    check_fit(found, gx.fit(seen), 1e-6)
    held = gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()))
    for name, expected in (
        ("prediction", gx.predict(held, there)),
        ("block", gx.predict(held, there, block=0.1)),
    ):
        np.testing.assert_allclose(
            found[name], (expected.mean, expected.variance), rtol=0, atol=1e-8
        )


@pytest.mark.slow
@pytest.mark.gpu
def test_tiles_in_mixed_formats_on_a_gpu_need_no_numba(data):
    seen, there, path = data
    found = without(
        NUMBA,
        path,
        """
tiles = gx.Exact(gx.by_tile_norm(1e-7), tile=48, on="gpu")
evaluation = gx.log_likelihood(seen, model, tiles)
found["value"], found["formats"] = evaluation.log_likelihood, evaluation.precision_map.counts()
keep(gx.fit(seen, None, tiles, progress=False))
keep_predictions(gx.predict(gx.fit(seen, model, tiles, fixed=tuple(model.parameters())), there))
""",
    )
    assert found["formats"].keys() - {"fp64"}
    exact = gx.log_likelihood(seen, MODEL).log_likelihood
    assert found["value"] == pytest.approx(exact, rel=1e-6)
    check_fit(found, gx.fit(seen), 1e-4)
    held = gx.predict(gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters())), there)
    np.testing.assert_allclose(found["prediction"], (held.mean, held.variance), atol=1e-6)


@pytest.mark.slow
@pytest.mark.gpu
def test_without_numba_the_start_is_the_maximum_on_some_locations(data):
    seen, _, path = data
    found = without(
        NUMBA,
        path,
        """
from geomxp.estimation import starts

starts.EXACT_GRID_LOCATIONS = 60
climbed = starts._climbed

def told(problem, model, held=False):
    found["locations"] = len(problem.observations)
    return climbed(problem, model, held)

starts._climbed = told
keep(gx.fit(seen, None, gx.Exact(on="gpu"), progress=False))
""",
    )
    assert found["locations"] == 61
    check_fit(found, gx.fit(seen), 1e-6)


@pytest.mark.slow
def test_a_cpu_without_numba_warns_that_it_is_slow_and_finds_the_same(data):
    seen, there, path = data
    found = without(
        ALL,
        path,
        """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["value"] = gx.log_likelihood(seen, model).log_likelihood
    tiles = gx.Exact(gx.uniform("fp64"), tile=48)
    found["tiles"] = gx.log_likelihood(seen, model, tiles).log_likelihood
    keep(fit := gx.fit(seen, progress=False))
    held = gx.fit(seen, model, fixed=tuple(model.parameters()))
    keep_predictions(gx.predict(held, there, block=0.1, discretisation=2))
found["caught"] = [str(one.message) for one in caught]
""",
    )
    (message,) = found["caught"]
    assert "pip install numba" in message
    value = gx.log_likelihood(seen, MODEL).log_likelihood
    assert found["value"] == pytest.approx(value, rel=1e-12)
    assert found["tiles"] == pytest.approx(value, rel=1e-12)
    check_fit(found, gx.fit(seen), 1e-6)
    held = gx.fit(seen, MODEL, fixed=tuple(MODEL.parameters()))
    expected = gx.predict(held, there, block=0.1, discretisation=2)
    np.testing.assert_allclose(found["prediction"], (expected.mean, expected.variance), atol=1e-10)


@pytest.mark.slow
def test_what_needs_a_package_says_which_and_how_to_install_it(data):
    _, _, path = data
    found = without(
        ALL,
        path,
        """
warnings.simplefilter("ignore")
for name, call in {
    "vecchia": lambda: gx.log_likelihood(seen, model, gx.Vecchia(5)),
    "tiles": lambda: gx.log_likelihood(seen, model, gx.Exact(gx.by_tile_norm(1e-6), tile=48)),
    "search": lambda: gx.fit(seen, model, search="bobyqa", progress=False),
}.items():
    try:
        call()
    except gx.MissingPackage as error:
        found[name] = str(error)
""",
    )
    for name, package in (("vecchia", "numba"), ("tiles", "numba"), ("search", "nlopt")):
        assert f"pip install {package}" in found[name]
