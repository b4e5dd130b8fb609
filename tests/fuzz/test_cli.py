"""The command line with valid, extreme and wrong arguments."""

import contextlib
import io
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzzing import EXTREMES, LONGEST, PATIENCE, check_message, patience, target
from hypothesis import strategies as st

from geomxp.cli.main import main

WORDS = st.one_of(
    st.sampled_from(("", "x", "-1", "0", "nan", "inf", "1e400", "1e-320", "a=b", "1:2", "é", "\0")),
    st.sampled_from(("range=1", "smoothness=0.5", "cpu", "gpu", "gpu:7", "none", "--", "-", ",,")),
    st.text(max_size=6).filter(lambda word: "/" not in word and word not in (".", "..")),
)
"""Words that may be wrong as a value of an option."""

NUMBERS = st.one_of(
    st.sampled_from(("0.1", "0.5", "1", "2", "0.03")),
    st.sampled_from(EXTREMES).map(repr),
)
COUNTS = st.integers(1, 30).map(str)


def either(*words):
    return st.sampled_from(words)


OPTIONS = {
    "--locations": either("x,y", "x", "lon,lat", "x,y,w", "y,x"),
    "--value": either("z", "w", "name"),
    "--covariates": either("w", "w,x", "name"),
    "--trend": either("zero", "constant", "linear", "covariates"),
    "--formula": either("w", "x + y", "poly(x, 2)", "log(x)", "0", "name", "import os", "x:"),
    "--metric": either("euclidean", "chordal", "great-circle"),
    "--crs": either("EPSG:28992", "EPSG:4326", "EPSG:1"),
    "--family": either(
        "matern", "gaussian", "spherical", "cauchy", "wendland", "powered-exponential"
    ),
    "--error-variance": either("w", "name", "z"),
    "--transform": either("log", "sqrt", "boxcox", "logit", "tukey-gh"),
    "--microscale": either("yes", "no"),
    "--fix": either("smoothness=0.5", "nugget=0", "range=1e300", "power=1"),
    "--start": either("range=0.1", "variance=1e-300", "nugget=0.1"),
    "--bounds": either("range=0.01:1", "nugget=1:0", "smoothness=0.1:3"),
    "--search": either("scoring", "bobyqa", "lbfgs", "slsqp"),
    "--starts": either("1", "2"),
    "--tolerance": NUMBERS,
    "--evaluations": COUNTS,
    "--checkpoint": either("state.json", "fit.json", "table.csv", "no/such.json"),
    "--seed": COUNTS,
    "--method": either("exact", "vecchia"),
    "--accuracy": NUMBERS,
    "--kl": NUMBERS,
    "--layers": either("fp16,fp32,fp64", "fp8", "fp99", "fp32"),
    "--tile": st.one_of(COUNTS, st.just("whole")),
    "--neighbours": COUNTS,
    "--refine": either("ir", "cg", "gmres", "none"),
    "--memory": either("1GB", "4KB", "0", "1e400GB"),
    "--device-memory": either("1GB", "1"),
    "--scratch": either("tiles", "table.csv"),
    "--variance": NUMBERS,
    "--range": NUMBERS,
    "--smoothness": NUMBERS,
    "--nugget": either("0", "0.1", "1e300"),
    "--parameter": either("power=1", "decay=1", "shape=4", "smoothness=0.5"),
    "--level": either("0.95", "0.5", "1", "0"),
    "--intervals": either("wald", "profile"),
    "--output": either("out.csv", "out.json", "out.parquet", "out.npz", "no/such.csv", "table.csv"),
    "--figure": either("out.png", "out.txt"),
    "--block": either("0.1,0.1", "0.1", "0,0", "1e300"),
    "--cells": either("3", "10"),
    "--resolution": NUMBERS,
    "--extent": either("0,0,1,1", "1,1,0,0"),
    "--at": either("places.csv", "meuse", "none.csv"),
    "--draws": either("1", "3"),
    "--layout": either("grid", "jittered", "uniform"),
    "--n": either("3", "20", "60", "1"),
    "--folds": either("2", "5", "1", "99"),
    "--blocks": NUMBERS,
    "--accuracies": either("1e-5,1e-8", "1e-3", "0"),
    "--kls": either("1e-3", "1e300"),
    "--trends": either("constant,linear", "constant"),
    "--nuggets": either("free", "0,free"),
    "--families": either("matern,gaussian", "spherical"),
    "--on": either("cpu", "gpu", "cpu,cpu"),
}
FLAGS = ("--reml", "--anisotropy", "--drop-missing", "--json", "--quiet", "--fallback", "--refit")
TABLE = {"--locations": "x,y", "--value": "z"}
MODEL = {"--variance": "1", "--range": "0.3", "--smoothness": "0.5"}
METHOD = (
    "--method",
    "--accuracy",
    "--kl",
    "--layers",
    "--tile",
    "--neighbours",
    "--refine",
    "--memory",
)
COMMANDS = {
    "explore": (
        ("table.csv",),
        TABLE,
        ("--covariates", "--trend", "--formula", "--metric", "--crs", "--seed"),
    ),
    "fit": (
        ("table.csv",),
        {**TABLE, "--evaluations": "15", "--fix": "smoothness=0.5"},
        (
            *("--covariates", "--trend", "--formula", "--metric", "--crs", "--family", "--fix"),
            *("--start", "--bounds", "--search", "--starts", "--tolerance", "--evaluations"),
            *("--checkpoint", "--seed", "--scratch", "--intervals", "--level", "--output", *METHOD),
            *("--error-variance", "--transform", "--microscale"),
        ),
    ),
    "log-likelihood": (
        ("table.csv",),
        {**TABLE, **MODEL},
        (
            "--covariates",
            "--trend",
            "--formula",
            "--metric",
            "--family",
            "--nugget",
            "--parameter",
            *METHOD,
        ),
    ),
    "predict": (("fit.json", "places.csv"), {}, ("--level", "--output", "--block", "--neighbours")),
    "simulate": (
        (),
        {**MODEL, "--n": "9", "--output": "out.csv"},
        ("--layout", "--at", "--draws", "--seed", "--family", "--nugget", "--metric", *METHOD),
    ),
    "validate": (("fit.json",), {}, ("--folds", "--blocks", "--seed", "--output", "--figure")),
    "compare": (
        (),
        {**MODEL, "--n": "20"},
        ("--accuracies", "--kls", "--layers", "--neighbours", "--tile", "--nugget", "--output"),
    ),
    "compare-models": (
        ("table.csv",),
        {**TABLE, "--smoothness": "0.5"},
        ("--trends", "--nuggets", "--families", "--metric"),
    ),
}


@st.composite
def commands(draw):
    """Draw the words of a command line; in some of them one or two words are wrong."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    files, options, more = COMMANDS[name]
    options = dict(options)
    for option in draw(st.lists(st.sampled_from(more), max_size=3, unique=True)):
        options[option] = draw(OPTIONS[option])
    if draw(st.integers(0, 3)) == 0 and options:
        options[draw(st.sampled_from(sorted(options)))] = draw(WORDS)
    words = [name, *files, *(word for pair in options.items() for word in pair)]
    words += draw(st.lists(st.sampled_from(FLAGS), max_size=2, unique=True))
    if draw(st.integers(0, 7)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(WORDS))
    if draw(st.integers(0, 9)) == 0:
        words.pop(draw(st.integers(0, len(words) - 1)))
    return words


def write_files(folder):
    """Write a table, places and a fit."""
    random = np.random.default_rng(0)
    x, y, w = random.random((3, 20))
    z = np.sin(4 * x) + y + 0.1 * random.random(20)
    table = pd.DataFrame({"x": x, "y": y, "z": z, "w": w, "name": ["a", "b"] * 10})
    table.assign(lon=10 * x, lat=50 + y).to_csv(folder / "table.csv", index=False)
    table[["x", "y", "w"]].head(4).to_csv(folder / "places.csv", index=False)
    if not FIT:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            words = "fit table.csv --locations x,y --value z --fix smoothness=0.5 --output fit.json"
            assert main([*words.split(), "--quiet"]) == 0
        FIT.append((folder / "fit.json").read_bytes())
    (folder / "fit.json").write_bytes(FIT[0])


FIT = []
"""The bytes of a saved fit, once it has been made."""


NOTICES = ("compiling code for this machine", "are the locations")


def refuse(constant):
    raise AssertionError(f"the JSON holds {constant}")


def check_answer(words, status, out, err):
    """Fail for an answer that breaks a promise of the command line."""
    command = shlex.join(words)
    assert status in (0, 1, 2), f"{command}: exit status {status}"
    assert "Traceback" not in err, f"{command}: {err}"
    assert "an error in geomxp" not in err, f"{command}: {err}"
    if status:
        lines = [line for line in err.splitlines() if line.startswith("geomxp: ")]
        # notices may precede the error, such as that of the first run on a machine
        lines = [line for line in lines if not any(notice in line for notice in NOTICES)]
        assert len(lines) == 1, f"{command}: {err!r}"
        check_message(lines[0][:-8])
        assert len(lines[0]) <= LONGEST + 8
    elif "--json" in words and "--help" not in words and "-h" not in words:
        json.loads(out, parse_constant=refuse)


@pytest.mark.slow
@target(0.2, words=commands())
def test_commands(words):
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        write_files(Path(name))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patience():
            status = main(words)
        check_answer(words, status, out.getvalue(), err.getvalue())
        if status == 0 and Path("out.csv").exists():
            numbers = pd.read_csv("out.csv").select_dtypes("number").to_numpy()
            assert np.isfinite(numbers).all()


@pytest.mark.slow
@target(0.01, words=commands().filter(lambda words: not any("\0" in word for word in words)))
def test_commands_in_a_process_of_their_own(words):
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        path = os.pathsep.join(str(Path(place).resolve()) for place in sys.path if place)
        try:
            words = [word.encode("utf-8").decode() for word in words]
        except UnicodeEncodeError:
            return
        answer = subprocess.run(
            [sys.executable, "-m", "geomxp", *words],
            cwd=name,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        out, err = answer.stdout.decode(), answer.stderr.decode()
        check_answer(words, answer.returncode, out, err)


def test_a_constant_of_json_is_refused():
    assert math.isnan(json.loads("NaN"))
    for constant in ("NaN", "Infinity"):
        try:
            json.loads(constant, parse_constant=refuse)
        except AssertionError:
            continue
        raise AssertionError(constant)
