"""Tables, fits and checkpoints with wrong bytes, wrong cells and wrong values."""

import json
import tempfile
from functools import cache
from pathlib import Path

import geopandas
import numpy as np
import pandas as pd
import pytest
from fuzzing import attempt, check_numbers, target
from hypothesis import strategies as st

import geomxp as gx

CELLS = st.one_of(
    st.floats().map(repr),
    st.sampled_from(("", "NA", "1,5", '"', "'1'", "1e400", "-9999", "é", " 3", "0x1", "\0", "1;2")),
    st.text(max_size=4),
)
SEPARATORS = st.sampled_from((",", ";", "\t", " "))


@st.composite
def delimited(draw):
    """Draw the bytes of a CSV table, most of whose cells are numbers."""
    names = draw(
        st.sampled_from(
            (["x", "y", "z"], ["x", "y", "z", "w"], ["x", "x", "z"], ["lon", "lat", "z"])
        )
    )
    good = st.floats(-90, 90).map(lambda x: f"{x:.4g}")
    cell = st.one_of(good, CELLS) if draw(st.integers(0, 3)) == 0 else good
    rows = draw(st.lists(st.lists(cell, min_size=len(names), max_size=len(names)), max_size=8))
    separator, end = draw(SEPARATORS), draw(st.sampled_from(("\n", "\r\n", "\r")))
    text = end.join(separator.join(row) for row in [names, *rows]) + end
    return text.encode(draw(st.sampled_from(("utf-8", "utf-8-sig", "utf-16"))), "replace")


@st.composite
def damaged(draw, sound):
    """Draw bytes with up to three changes: other bytes, bytes left out or put in, the end cut."""
    data = bytearray(sound)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.sampled_from((1, 1, 4, 100)))
        kind = draw(st.sampled_from(("change", "drop", "put", "cut")))
        if kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + size]
        elif kind == "put":
            data[at:at] = draw(st.binary(max_size=4))
        else:
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


@cache
def sound(ending):
    """Return the bytes of a sound table."""
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 0.5, 2.0], "y": [0.0, 0.5, 1.0, 3.0], "z": [1.0, 2.0, 3.0, 5.0]}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table{ending}")
        if ending == ".csv":
            frame.to_csv(path, index=False)
        elif ending == ".parquet":
            frame.to_parquet(path)
        elif ending == ".npz":
            np.savez(path, **frame)
        elif ending == ".dat":
            rows = frame.to_csv(index=False, header=False, sep=" ")
            path.write_text(f"Values\n3\nx\ny\nz\n{rows}")
        elif ending == ".asc":
            head = "ncols 2\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
            path.write_text(f"{head}1 2\n3 5\n")
        elif ending == ".gpkg":
            places = geopandas.points_from_xy(frame["x"], frame["y"])
            geopandas.GeoDataFrame(frame[["z"]], geometry=places, crs=32633).to_file(path)
        else:
            points = [{"type": "Point", "coordinates": [x, y]} for x, y, _ in frame.to_numpy()]
            features = [
                {"type": "Feature", "properties": {"z": z}, "geometry": point}
                for z, point in zip(frame["z"], points, strict=True)
            ]
            path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        return path.read_bytes()


ENDINGS = (".csv", ".parquet", ".npz", ".geojson", ".dat", ".asc", ".gpkg")
TABLES = st.one_of(
    st.tuples(st.just(".csv"), delimited()),
    *(st.tuples(st.just(ending), damaged(sound(ending))) for ending in ENDINGS),
)


@target(0.1, table=TABLES, drop=st.booleans(), spatial=st.booleans())
def test_tables(table, drop, spatial):
    ending, content = table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table{ending}")
        path.write_bytes(content)
        about = {"values": "table" if ending == ".asc" else "z", "drop_missing": drop}
        if not (spatial and ending in (".geojson", ".asc", ".gpkg")):
            about["locations"] = ("x", "y")
        observations = attempt(gx.read_table, path, **about)
        if observations is not None:
            assert np.isfinite(observations.values).all()
            assert np.isfinite(observations.locations).all()
            attempt(str, observations)


# Documents.

VALUES = st.one_of(
    st.sampled_from((None, True, -1, 0, 3, -(10**9), 10**400, 1e300, -1e300, float("nan"))),
    st.sampled_from((float("inf"), "", "x", [], {}, [1], [[1.0]], {"a": 1}, "fp16", "/etc/passwd")),
)


@st.composite
def edited(draw, document):
    """Draw a document in which one or two values are others, or are left out."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 2))):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            if draw(st.integers(0, 5)):
                place[key] = draw(VALUES)
            else:
                del place[key]
            break
    return document


def observations():
    random = np.random.default_rng(0)
    places = random.random((12, 2))
    values = np.sin(5 * places[:, 0]) + 0.1 * random.random(12)
    return gx.Observations(places, values, random.random(12))


@cache
def fit_documents():
    """Return saved fits: exact and Vecchia, a trend of each kind."""
    seen, model = observations(), gx.Matern(1.0, 0.5, 0.5, 0.1)
    ways = (
        (gx.Exact(), "constant"),
        (gx.Exact(gx.by_tile_norm(1e-8), tile=4), "covariates"),
        (gx.Vecchia(3, np.arange(12)[::-1]), "covariate1 + x"),
    )
    documents = []
    with tempfile.TemporaryDirectory() as folder:
        for method, trend in ways:
            fit = gx.fit(
                seen, model, method, fixed=("smoothness", "nugget"), trend=trend,
                progress=False, raise_on_failure=False,
            )  # fmt: skip
            fit.save(Path(folder, "fit.json"))
            documents.append(json.loads(Path(folder, "fit.json").read_text()))
    return documents


def wrong(documents):
    """Return the bytes of documents with other values, and of some with other bytes too."""
    contents = st.deferred(lambda: st.sampled_from(documents()).flatmap(edited))
    contents = contents.map(lambda document: json.dumps(document).encode())
    return st.one_of(contents, contents, contents.flatmap(damaged))


@pytest.mark.slow
@target(0.12, content=wrong(fit_documents))
def test_saved_fits(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fit.json")
        path.write_bytes(content)
        fit = attempt(gx.Fit.load, path)
    if fit is None:
        return
    assert np.isfinite(fit.log_likelihood)
    attempt(str, fit)
    attempt(fit.confidence_intervals)
    check_numbers(attempt(gx.predict, fit, [[0.5, 0.5]], progress=False))
    check_numbers(attempt(gx.simulate, fit, [[0.5, 0.5]], progress=False))


def run_fit(path):
    """Fit with a checkpoint."""
    return gx.fit(
        observations(), gx.Matern(1.0, 0.5, 0.5, 0.1), fixed=("smoothness", "nugget"),
        checkpoint=path, progress=False, raise_on_failure=False, evaluations=40,
    )  # fmt: skip


@cache
def checkpoint():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.json")
        fit = run_fit(path)
        return [json.loads(path.read_text())], fit.log_likelihood


@target(0.08, content=wrong(lambda: checkpoint()[0]))
def test_checkpoints(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.json")
        path.write_bytes(content)
        fit = attempt(run_fit, path)
    if fit is not None and fit.outcome.good:
        check_numbers(fit)
        assert fit.evaluations >= 0
        # the best that an edited model leads to is the maximum
        assert fit.log_likelihood <= checkpoint()[1] + 1e-6
