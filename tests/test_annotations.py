"""Type checkers know what users may write, and what they get."""

import inspect
import re
import shutil
import subprocess
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typed_user
from reports import briefly

import geomxp as gx

ROOT = Path(__file__).parent.parent

PLACES = (
    *("geomxp", "geomxp.data.datasets", "geomxp.prediction.scores", "geomxp.plots"),
    *("geomxp.linalg", "geomxp.linalg.batched", "geomxp.tiles.refine", "geomxp.sklearn"),
    *("geomxp.linalg.precision", "geomxp.linalg.formats"),
)
"""Where public names are."""

CONFIGURATION = """
[mypy]
strict = True
show_error_codes = True
[mypy-geomxp.*]
ignore_errors = True
"""

MISTAKES = """
import geomxp as gx

seen = gx.datasets.load("meuse")
gx.Matern("1", 200.0, 0.5)
gx.Observations(seen.locations)
gx.fit(seen, trend=3)
fit = gx.fit(seen, fixed=0.5)
fit.model.length_scale
gx.predict(fit, seen).interval(of="nugget")
number: int = gx.leave_one_out(fit).scores()
gx.Exact(precision="fp32")
gx.kl_divergence(fit.model, seen)
"""
"""From the fifth line on, each line has one."""


def public(module):
    """Yield the public names of a module, and the functions and methods behind them."""
    names = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    ]
    for name in names:
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            yield from methods(name, thing)


def methods(name, kind):
    """Yield the public methods and properties that a class of ours defines."""
    special = {"__init__", "__call__", "__len__", "__getitem__", "__str__"}
    for key, thing in vars(kind).items():
        if isinstance(thing, property):
            thing = thing.fget
        elif isinstance(thing, (staticmethod, classmethod)):
            thing = thing.__func__
        elif isinstance(thing, cached_property):
            thing = thing.func
        if inspect.isfunction(thing) and (key in special or not key.startswith("_")):
            yield f"{name}.{key}", thing


FUNCTIONS = {
    f"{place}.{name}": thing for place in PLACES for name, thing in public(import_module(place))
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_are_annotated(name):
    signature = inspect.signature(FUNCTIONS[name])
    bare = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
    ]
    assert not bare
    assert signature.return_annotation is not signature.empty


@pytest.fixture(scope="module")
def checked(request, tmp_path_factory):
    """What mypy says of scripts that use geomxp, as {file: lines}."""
    folder = tmp_path_factory.mktemp("mypy")
    # what mypy knows of other packages lasts, unless pytest runs with -p no:cacheprovider
    cache = getattr(request.config, "cache", None)
    known = cache.mkdir("mypy") if cache else folder / "known"
    shutil.copy(ROOT / "tests" / "typed_user.py", folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    for number, block in enumerate(blocks):
        (folder / f"readme_{number}.py").write_text(block)
    (folder / "mistakes.py").write_text(MISTAKES)
    (folder / "mypy.ini").write_text(CONFIGURATION)
    scripts = sorted(path.name for path in folder.glob("*.py"))
    options = ["--config-file", "mypy.ini", "--cache-dir", known, "--no-error-summary"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *scripts],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    lines = [line for line in run.stdout.splitlines() if ": note: " not in line]
    return {name: [line for line in lines if line.startswith(name)] for name in scripts}


@pytest.mark.slow
def test_a_strict_checker_accepts_what_users_write(checked):
    scripts = checked.keys() - {"mistakes.py"}
    assert len(scripts) > 3
    assert not [line for name in scripts for line in checked[name]]


def test_a_checker_finds_each_mistake(checked):
    lines = {int(line.split(":")[1]) for line in checked["mistakes.py"]}
    assert lines == set(range(5, len(MISTAKES.splitlines()) + 1))


@pytest.fixture(scope="module")
def seen():
    return typed_user.read(gx.datasets.path("meuse"))


@pytest.fixture(scope="module")
def fit(seen):
    return typed_user.estimate(seen)


def test_what_the_script_promises_of_models_holds():
    assert len(typed_user.observe()) == 4
    turned, further, _ = typed_user.models()
    assert further.anisotropy.angle == turned.anisotropy.angle + 10
    assert len(typed_user.ways()) == 5


@pytest.mark.slow
def test_what_the_script_promises_of_fits_holds(seen, fit, tmp_path):
    assert typed_user.evaluate(seen, fit.model) == {"fp64": 6}
    assert typed_user.predict(fit, seen.locations).shape == (4, len(seen))
    assert typed_user.keep(fit, tmp_path).good
    with briefly():
        assert typed_user.show(fit, tmp_path)
    assert typed_user.look(seen, tmp_path).startswith("geomxp fit ")
    assert (tmp_path / "explore.html").stat().st_size > 0
    assert (tmp_path / "fit.html").stat().st_size > 0


@pytest.mark.slow
def test_what_the_script_promises_of_judgements_holds(seen, fit):
    number, validation = typed_user.judge(fit, seen)
    assert number > 0
    assert len(validation) == len(seen)
    ranked, ratio = typed_user.compare(seen, fit)
    assert ranked.criterion == "bic"
    assert ratio.statistic > 0


def test_what_the_script_promises_of_arrays_holds(seen):
    a = np.array([[4.0, 2.0, 0.0], [2.0, 5.0, 1.0], [0.0, 1.0, 3.0]])
    lower = np.linalg.cholesky(a)
    # nested.potrf leaves the upper triangle as it was
    expected = lower + np.triu(a, 1)
    # u = 2^-53, and each entry a sum of three terms
    assert abs(typed_user.solve(a) - expected).max() <= 32 * 2.0**-53 * np.linalg.cond(a)
    mean, error = typed_user.regress(seen)
    assert mean.shape == error.shape == (len(seen),)


def test_dir_shows_public_names_only():
    assert dir(gx) == sorted([*gx.__all__, "__version__"])
    assert all(hasattr(gx, name) for name in dir(gx))
