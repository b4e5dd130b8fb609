"""Whatever a table holds, a fit ends in finite numbers or in one clear line."""

import json
import math

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geomxp.cli.main import app, main

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FEWER = settings(SETTINGS, max_examples=40)
"""For tables that are refused when they are read, or nearly all of them."""


@pytest.fixture(scope="module", autouse=True)
def commands():
    """The parsers of all commands, which each run would make anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geomxp.cli.main.app", typer.main.get_command(app))
        yield


@st.composite
def columns(draw):
    """Three columns of numbers of any scale: x, y, z."""
    n = draw(st.integers(0, 12))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    places, values = random.standard_normal((n, 2)), random.standard_normal(n)
    kind = draw(st.sampled_from(["plain", "duplicates", "collinear", "one place", "lattice"]))
    if kind == "duplicates" and n > 1:
        places[n // 2 :] = places[: n - n // 2]
    elif kind == "collinear":
        places[:, 1] = 3.0 * places[:, 0]
    elif kind == "one place":
        places[:] = 1.0
    elif kind == "lattice":
        places = np.round(places)
    what = draw(st.sampled_from(["plain", "constant", "zero", "linear", "rounded", "one outlier"]))
    if what == "constant":
        values[:] = 7.25
    elif what == "zero":
        values[:] = 0.0
    elif what == "linear":
        values = places @ [1.0, 2.0]
    elif what == "rounded":
        values = np.round(values)
    elif what == "one outlier" and n:
        values[0] = 1e8
    exponents = st.integers(-300, 300)
    scale, shift = 10.0 ** draw(exponents), draw(st.sampled_from([0.0, 0.0, 1e3, 1e9]))
    with np.errstate(over="ignore"):
        return (places + shift) * scale, values * 10.0 ** draw(exponents)


HALF = ["--fix", "smoothness=0.5"]
OPTIONS = [
    HALF,
    [*HALF, "--trend", "linear"],
    [*HALF, "--reml"],
    [*HALF, "--fix", "nugget=0"],
    ["--trend", "linear", "--reml"],
    [*HALF, "--anisotropy"],
    [],
]

CELLS = st.one_of(
    st.floats(width=64).map(repr),
    st.sampled_from(
        ["", "NA", "nan", "inf", "-inf", "1e400", "text", '"', "1,5", "0x10", "µ", " 3 "]
    ),
    st.text(max_size=5),
)


def ends_well(capsys, path, *options):
    columns = ["--locations", "x,y", "--value", "z"]
    status = main(["fit", str(path), *columns, "--json", "--evaluations", "60", *options])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if status == 0:
        document = json.loads(captured.out)
        numbers = [document["log_likelihood"], *(v for v in document["model"].values() if v != "")]
        assert all(math.isfinite(v) for v in numbers if isinstance(v, float))
        errors = [e for e in document["standard_errors"].values() if e is not None]
        assert all(math.isfinite(e) for e in errors)
    else:
        assert status in (1, 2)
        assert captured.out == ""
        assert captured.err.startswith("geomxp: ")
        assert captured.err.count("\n") == 1
        assert "an error in geomxp" not in captured.err
    return status


@pytest.mark.slow
@SETTINGS
@given(columns(), st.sampled_from(OPTIONS))
def test_numbers_of_any_scale(capsys, tmp_path, data, options):
    places, values = data
    path = tmp_path / "t.csv"
    rows = [
        f"{x!r},{y!r},{z!r}" for (x, y), z in zip(places.tolist(), values.tolist(), strict=True)
    ]
    path.write_text("\n".join(["x,y,z", *rows]) + "\n")
    ends_well(capsys, path, *options)


@pytest.mark.slow
@FEWER
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=8),
    st.sampled_from(["x,y,z", "x,y,z,z", "x,y", "", "z", "X,Y,Z", "x,y,z,"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.booleans(),
)
def test_text_of_any_kind(capsys, tmp_path, rows, header, encoding, drop):
    path = tmp_path / "t.csv"
    text = "\n".join([header, *(",".join(row) for row in rows)])
    path.write_bytes(text.encode(encoding, errors="replace"))
    ends_well(capsys, path, *(["--drop-missing"] if drop else []), "--fix", "smoothness=0.5")


@FEWER
@given(
    st.binary(max_size=200), st.sampled_from(["t.csv", "t.npz", "t.parquet", "t.csv.gz", "t.tsv"])
)
def test_bytes_of_any_kind(capsys, tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    assert ends_well(capsys, path) == 2


def test_places_that_fit_has_no_word_for_are_one_line(capsys, tmp_path):
    """Found by hand: the same place thrice, values that differ by one bit."""
    path = tmp_path / "t.csv"
    path.write_text(f"x,y,z\n1,1,{1.0!r}\n1,1,{np.nextafter(1.0, 2.0)!r}\n1,1,1.0\n2,1,1.0\n")
    ends_well(capsys, path)
