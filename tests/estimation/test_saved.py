"""Saved fits: where they compute, files that were edited, and files with wrong values."""

import json
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

HELD = {"range": 0.4, "smoothness": 0.5}
NEW = pd.DataFrame({"x": [0.5], "y": [0.25], "w": [0.3], "rock": ["clay"], "day": ["2024-05-03"]})


def loaded(path, **about):
    """Return a fit, and what was warned about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = gx.Fit.load(path, **about)
    return fit, [str(one.message) for one in caught]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Saved fits with their observations or without: with trends, times, several variables."""
    folder, random, n = tmp_path_factory.mktemp("fits"), np.random.default_rng(3), 12
    x, y, w = random.random((3, n))
    frame = pd.DataFrame({"x": x, "y": y, "w": w, "z": 3 + np.sin(4 * x) + 0.1 * w})
    frame = frame.assign(lead=1 + w * y, rock=["clay", "sand"] * (n // 2), se=0.01)
    frame["day"] = pd.date_range("2024-05-01", periods=n).strftime("%Y-%m-%d")
    frame.to_csv(folder / "table.csv", index=False)
    about = {"progress": False, "raise_on_failure": False}

    def read(values, **columns):
        return gx.read_table(folder / "table.csv", locations=("x", "y"), values=values, **columns)

    rocks = read("z", formula="w + rock", error_variance="I(se ** 2)")
    fits = {"rocks": gx.fit(rocks, trend="w + rock", fixed=HELD, **about)}
    both = read(("log(z)", "lead"))
    rough = {"smoothness_1": 0.5, "smoothness_2": 0.5}
    fits["both"] = gx.fit(both, family="coregionalization", fixed=rough, trend="linear", **about)
    dated, method = read("z", time="day", covariates=("w",)), gx.Vecchia(3, np.arange(n)[::-1])
    held = HELD | {"time_range": 3.0, "time_smoothness": 0.5, "nugget": 0.1}
    about |= {"trend": "covariates", "bounds": {"variance": (0.01, 10.0)}}
    fits["dated"] = gx.fit(dated, method=method, family="separable", fixed=held, **about)
    arrays, method = gx.Observations(np.c_[x, y], frame.z), gx.Exact(gx.by_tile_norm(1e-6), tile=5)
    model = gx.Matern(1.0, 0.4, 0.5, 0.1, transform="boxcox")
    held = ("smoothness", "nugget", "range")
    fits["power"] = gx.fit(arrays, model, method, fixed=held, progress=False)
    result = {}
    for name, fit in fits.items():
        fit.save(folder / "fit.json")
        result[name] = json.loads((folder / "fit.json").read_text())
    fits["rocks"].save(folder / "fit.json", embed=False)
    return result | {"rocks of a table": json.loads((folder / "fit.json").read_text())}


NAMES = ("rocks", "rocks of a table", "both", "dated", "power")


# where a fit computes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("on", ["tcp://127.0.0.1:9", "gpu", "gpu:7", "nowhere"])
def test_the_file_does_not_say_where_a_fit_computes(documents, tmp_path, name, on):
    document = json.loads(json.dumps(documents[name]))
    document["method"] |= {"on": on, "memory": "20kB", "device_memory": "20kB", "scratch": "/tiles"}
    (tmp_path / "fit.json").write_text(json.dumps(document))
    fit, _ = loaded(tmp_path / "fit.json")
    assert fit.method.on == "cpu"
    places = {getattr(fit.method, name, None) for name in ("memory", "device_memory", "scratch")}
    assert places == {None}


@pytest.mark.slow
def test_the_caller_says_where_a_fit_computes(documents, tmp_path):
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(documents["power"]))
    about = {"memory": "1MB", "scratch": tmp_path}
    fit, method = gx.Fit.load(path, **about), gx.Exact(gx.by_tile_norm(1e-6), tile=5, **about)
    assert fit.method == method
    assert gx.Fit.load(path, on=["cpu", "cpu"]).method.on == ("cpu", "cpu")
    assert gx.Fit.load(path, method=gx.Vecchia(4)).method == gx.Vecchia(4)
    with pytest.raises(gx.InvalidInput, match="`on` and `method` cannot both be given"):
        gx.Fit.load(path, method=method, on="cpu")
    path.write_text(json.dumps(documents["dated"]))
    with pytest.raises(gx.InvalidInput, match="Vecchia's approximation, which has no `memory`"):
        gx.Fit.load(path, memory="1MB")


def test_a_fit_made_on_several_devices_in_little_memory_predicts_the_same_bits(tmp_path):
    seen = gx.datasets.load("meuse").subset(np.arange(60))
    model = gx.Matern(0.6, 200.0, 0.5, 0.1)
    expected = None
    for about in ({}, {"on": ("cpu", "cpu")}, {"memory": "100kB"}):
        method = gx.Exact(tile=16, **about)
        fit = gx.fit(seen, model, method, fixed=tuple(model.parameters()), progress=False)
        fit.save(tmp_path / "fit.json")
        mean = gx.predict(gx.Fit.load(tmp_path / "fit.json"), [[181072.0, 333611.0]]).mean
        expected = mean if expected is None else expected
        assert mean == expected


# edited files


def as_in_javascript(text):
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


@pytest.mark.slow
def test_a_file_as_it_was_written_says_nothing(documents, tmp_path):
    path = tmp_path / "fit.json"
    for name in NAMES:
        document = documents[name]
        again = dict(sorted(document.items(), reverse=True))
        for text in (
            json.dumps(document),
            json.dumps(document, indent=8, ensure_ascii=False),
            json.dumps(again, separators=(",", ":")),
            # as JavaScript writes numbers
            json.dumps(json.loads(json.dumps(document), parse_float=as_in_javascript)),
        ):
            path.write_text(text)
            assert loaded(path)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d["model"].update(variance=d["model"]["variance"] * (1 + 1e-15)), "was edited"),
        (lambda d: d.update(seconds=0.5), "was edited"),
        (lambda d: d.update(remark="by hand"), "was edited"),
        (lambda d: d["trend"]["covariance"][0].reverse(), "was edited"),
        (lambda d: d.update(checksum="sha256:0"), "was edited"),
        (lambda d: d.update(checksum=None), "was edited"),
        (lambda d: d.pop("checksum"), "has no checksum"),
    ],
)
def test_a_file_that_was_edited_says_so_and_is_used(documents, tmp_path, edit, said):
    document = json.loads(json.dumps(documents["rocks"]))
    edit(document)
    (tmp_path / "fit.json").write_text(json.dumps(document))
    fit, (message,) = loaded(tmp_path / "fit.json")
    assert f"fit.json: {said}" in message
    assert fit.model.parameters() == {k: v for k, v in document["model"].items() if k != "metric"}
    fit.save(tmp_path / "again.json")
    assert loaded(tmp_path / "again.json")[1] == []


def test_a_checkpoint_that_was_edited_says_so(tmp_path):
    seen, path = gx.datasets.load("meuse"), tmp_path / "state.json"
    model, about = gx.Matern(0.6, 200.0, 0.5, 0.1), {"checkpoint": path, "progress": False}
    fit = gx.fit(seen, model, fixed=("smoothness", "range", "nugget"), **about)
    gx.fit(seen, model, fixed=("smoothness", "range", "nugget"), **about)
    state = json.loads(path.read_text())
    state["model"]["variance"] = 2.0
    path.write_text(json.dumps(state))
    with pytest.warns(gx.GeomxpWarning, match="state.json: was edited after it was written"):
        again = gx.fit(seen, model, fixed=("smoothness", "range", "nugget"), **about)
    assert again.model.variance == pytest.approx(fit.model.variance, rel=1e-4)


# wrong values

VALUES = (None, True, -1, 3, 1.5, 1e300, 10**30, "", "x" * 5000, [], {}, [1], [[1.0]], {"a": 1})
VALUES += ([1, [2]], json.loads("[" * 300 + "]" * 300), "left out")
"""Values in place of another one; numbers beyond any data, and lists in lists."""


def places_in(node, at=()):
    """Positions in a document: of each entry of an object, and of the first one of each list."""
    entries = node.items() if isinstance(node, dict) else enumerate(node[:1])
    for key, value in entries:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places_in(value, (*at, key))


def replaced(document, at, value):
    """Return a copy of a document with another value at a position."""
    document = node = json.loads(json.dumps(document))
    for key in at[:-1]:
        node = node[key]
    if value == "left out":
        del node[at[-1]]
    else:
        node[at[-1]] = value
    return document


@cache
def changed(at):
    """The values that are tried at a position, in turn: all of them are too many."""
    start = sum(map(len, map(str, at)))
    return [VALUES[(start + step) % len(VALUES)] for step in range(0, len(VALUES), 9)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_a_wrong_value_is_refused_or_says_that_it_was_edited(documents, tmp_path, name):
    document, path, tried = documents[name], tmp_path / "fit.json", 0
    for at in places_in(document):
        for value in changed(at):
            wrong = replaced(document, at, value)
            if json.dumps(wrong, sort_keys=True) == json.dumps(document, sort_keys=True):
                continue
            path.write_text(json.dumps(wrong))
            try:
                fit, said = loaded(path)
                assert any("edited" in one or "no checksum" in one for one in said), (at, value)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", gx.GeomxpWarning)
                    gx.predict(fit, NEW, progress=False)
                str(fit)
            except gx.GeomxpError:
                # any other exception fails
                pass
            tried += 1
    assert tried > 150


@pytest.mark.slow
def test_what_a_file_may_hold_is_checked_by_name(documents, tmp_path):
    path = tmp_path / "fit.json"
    for name, at, value, message in (
        (
            "rocks",
            ("trend", "covariance"),
            [[1.0], 2.0],
            "trend.covariance must be a list of lists",
        ),
        ("rocks", ("trend", "covariance"), [["a"]], "trend.covariance must be a list of lists"),
        ("rocks", ("observations", "values"), [True, False], "observations.values must be a list"),
        (
            "rocks",
            ("observations", "levels"),
            {"rock": [1]},
            "levels.rock must be text. Got a number",
        ),
        ("rocks", ("observations", "clock"), 1, "observations.clock is not known to geomxp"),
        ("rocks", ("free",), ["temperature"], "free must name parameters of the model: variance"),
        (
            "rocks of a table",
            ("table", "path"),
            "./other.csv",
            "other.csv: no such file",
        ),
        ("rocks of a table", ("table", "path"), "/dev/zero", "/dev/zero: is not a regular file"),
        ("rocks of a table", ("table", "path"), "/" + "a" * 5000, "not the path of a file"),
        (
            "dated",
            ("method", "permutation"),
            ["a"],
            "method.permutation must be a number. Got text",
        ),
        ("power", ("transform", "boxcox_power"), "a", "transform.boxcox_power must be a number"),
    ):
        path.write_text(json.dumps(replaced(documents[name], at, value)))
        with pytest.raises(gx.InvalidInput, match=message):
            gx.Fit.load(path)


def test_paths_that_can_name_no_file_are_one_short_line():
    for path in ("a" * 5000, "a/" * 2500, "fit\0.json"):
        with pytest.raises(gx.InvalidInput, match="not the path of a file") as caught:
            gx.Fit.load(path)
        assert len(str(caught.value)) < 200
