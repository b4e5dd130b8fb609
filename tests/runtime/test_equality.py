"""Results and data that hold arrays are equal if their contents are."""

import copy
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.runtime.equality import by_content, same

MODEL = gx.Matern(1.0, 0.3, 0.5, 0.1)
HELD = {"fixed": tuple(MODEL.parameters()), "progress": False}
HURDLE = {"fixed": ("variance", "range", "smoothness"), "progress": False}


def observed():
    rng = np.random.default_rng(6)
    places = rng.random((30, 2))
    about = {"error_variance": rng.uniform(0, 0.1, 30), "replicates": rng.integers(1, 4, 30)}
    return gx.Observations(places, rng.normal(size=30), rng.normal(size=(30, 2)), **about)


def timed():
    rng = np.random.default_rng(8)
    model = gx.Separable(1.0, 0.3, 2.0, smoothness=0.5, time_smoothness=0.5, nugget=0.1)
    seen = gx.Observations(rng.random((30, 2)), rng.normal(size=30), time=np.arange(30) % 3)
    return gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)


def fitted():
    return gx.fit(observed(), MODEL, **HELD)


def hurdle():
    counted = replace(observed(), values=np.arange(30) % 3 * 1.0, error_variance=None)
    counted = replace(counted, replicates=None)
    return gx.fit(counted, gx.Matern(0.5, 0.3, 0.5), response="hurdle", **HURDLE)


EXAMPLES = {
    gx.Observations: observed,
    gx.Inputs: lambda: observed().inputs,
    gx.Fit: fitted,
    gx.HurdleFit: hurdle,
    gx.Evaluation: lambda: gx.log_likelihood(observed(), MODEL, trend="linear"),
    gx.Prediction: lambda: gx.predict(fitted(), [[0.1, 0.2], [0.5, 0.5]], progress=False),
    gx.Raster: lambda: gx.predict_raster(fitted(), cells=3, progress=False),
    gx.RasterSeries: lambda: gx.predict_raster(timed(), cells=3, time=[0, 1], progress=False),
    gx.Validation: lambda: gx.cross_validate(fitted(), 3, progress=False),
    gx.Variogram: lambda: gx.variogram(observed()),
    gx.Misspecification: lambda: gx.mloe_mmom(
        MODEL, gx.Matern(1.0, 0.4, 0.5, 0.1), observed().locations, [[0.5, 0.4]]
    ),
    gx.Exploration: lambda: gx.explore(observed()),
}
"""How to make an object of each public class that holds arrays, twice the same."""

ARRAYS = ("Floats", "Whole", "ndarray")


def holds_arrays(kind):
    """Whether a field of a dataclass is an array, or an object that holds some."""
    own = {one.__name__ for one in EXAMPLES} - {"Fit", "HurdleFit"}
    types = [str(field.type) for field in fields(kind) if "Callable" not in str(field.type)]
    return any(word in text for text in types for word in (*ARRAYS, *own))


def test_every_public_class_with_arrays_has_an_example_here():
    public = [getattr(gx, name) for name in gx.__all__]
    found = {kind for kind in public if isinstance(kind, type) and is_dataclass(kind)}
    assert {kind for kind in found if holds_arrays(kind)} == set(EXAMPLES)


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda kind: kind.__name__)
def one(request):
    return EXAMPLES[request.param]()


def test_the_same_call_gives_an_equal_object_and_so_does_a_copy(one):
    again, copied = EXAMPLES[type(one)](), copy.deepcopy(one)
    assert again is not one
    assert one == again == copied
    assert (one != again) is False


def test_other_contents_are_not_equal(one):
    arrays = [
        f.name for f in fields(one) if f.compare and isinstance(getattr(one, f.name), np.ndarray)
    ]
    for name in arrays:
        other = copy.deepcopy(one)
        array = getattr(one, name)
        if not array.size:
            continue
        changed = array.copy()
        changed.flat[-1] = array.flat[-1] + 1
        object.__setattr__(other, name, changed)
        assert one != other, name
        object.__setattr__(other, name, array[:-1])
        assert one != other, name
    assert one != "another kind"
    assert one not in (None, 1, [])


def test_an_object_with_arrays_has_no_hash(one):
    with pytest.raises(TypeError, match="unhashable type"):
        hash(one)


def test_systems_units_and_origins_are_content_but_the_file_is_not():
    seen = replace(observed(), crs="EPSG:28992", time=np.arange(30.0), time_unit="day")
    for about in (
        {"crs": "EPSG:32631"},
        {"length_unit": "metre"},
        {"value_unit": "mg/kg"},
        {"time_unit": "hour"},
        {"time_origin": "2024-02-03"},
        {"value_name": "zinc"},
        {"covariates": None},
    ):
        assert seen != replace(seen, **about), about
    assert seen == replace(seen, source={"path": "elsewhere.csv"})
    assert seen == replace(seen, row_labels=pd.RangeIndex(30))


def test_a_fit_that_was_saved_equals_itself(tmp_path):
    one = gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5}, progress=False)
    for embed in (True, False):
        one.save(tmp_path / "fit.json", embed=embed)
        assert gx.Fit.load(tmp_path / "fit.json") == one
    # how long it took is not content
    assert replace(one, seconds=one.seconds + 9) == one
    assert replace(one, log_likelihood=one.log_likelihood + 1e-12) != one


def test_a_table_read_twice_gives_equal_observations():
    assert gx.datasets.load("jura", values="Ni") == gx.datasets.load("jura", values="Ni")
    assert gx.datasets.load("jura", values="Ni") != gx.datasets.load("jura", values="Cd")


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), False),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), np.array(["2024-01-02", "NaT"], "M8[D]"), True),
        (np.array(["a", "b"]), np.array(["a", "b"], object), True),
        (np.array(["a"]), np.array([1.0]), False),
        (np.zeros((2, 1)), np.zeros((1, 2)), False),
        (np.zeros(0), np.zeros(0), True),
        (np.zeros(1), 0.0, False),
        (np.zeros(1), None, False),
        (float("nan"), float("nan"), True),
        ({"a": (1, np.ones(2))}, {"a": [1, np.ones(2)]}, True),
        ({"a": 1}, {"b": 1}, False),
        ((1, 2), (1, 2, 3), False),
    ],
)
def test_contents_are_compared_as_a_whole(a, b, equal):
    assert same(a, b) is same(b, a) is equal


def test_an_object_in_an_object_is_compared_by_its_contents():
    @by_content
    @dataclass(frozen=True)
    class Pair:
        first: object
        second: np.ndarray

    inner = Pair(None, np.array([np.nan]))
    assert Pair(inner, np.ones(2)) == Pair(copy.deepcopy(inner), np.ones(2))
    assert Pair(inner, np.ones(2)) != Pair(Pair(1, inner.second), np.ones(2))
