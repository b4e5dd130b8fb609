"""Tables of options: every value survives the command line and a saved fit."""

import inspect
import json

import numpy as np
import pytest

import geomxp as gx
from geomxp.data.observations import TableColumns
from geomxp.data.options import FLAG, READER_OPTIONS
from geomxp.estimation.options import FIT_OPTIONS

READ = {
    "locations": ("East", "North, m"),
    "values": ("log(zinc)", 'lead "total"'),
    "covariates": ("pH w", "Cd, mg"),
    "formula": "elev + poly(x, 2)",
    "metric": "chordal",
    "value_unit": "mg/kg",
    "crs": "EPSG:28992",
    "time": "date",
    "variable": "element",
    "error_variance": (None, "I(se ** 2)"),
    "drop_missing": True,
    "trials": ("births", None),
    "offset": "log(area)",
    "exposure": ("area, ha", "persons"),
    "below": 0.2,
    "above": (None, 100.0, "most, ppm"),
    "limits": "negative",
    "missing": (-9999.0, 0.25),
    "decimal": ",",
    "duplicates": "mean",
}
FITTED = {
    "family": "spherical",
    "fixed": {"smoothness": 0.1 + 0.2, "nugget": 0.0},
    "bounds": {"range": (10.0, 1e300)},
    "trend": "linear",
    "reml": True,
    "anisotropy": True,
    "axis_ranges": True,
    "microscale": False,
    "nugget_covariance": True,
    "transform": "boxcox",
    "response": "poisson",
    "search": "bobyqa",
    "start": {"nugget": 1e-7},
    "starts": 12,
    "starts_on": "tcp://host:8786",
    "tolerance": 1e-9,
    "evaluations": 5,
    "checkpoint": "state.json",
    "seed": 7,
    "strict": True,
}
TABLES = {"readers": (READER_OPTIONS, READ), "fit": (FIT_OPTIONS, FITTED)}
CASES = [
    pytest.param(table, name, values[name], id=name)
    for table, values in TABLES.values()
    for name in table
] + [
    pytest.param(FIT_OPTIONS, "transform", ("log", None, "boxcox"), id="transforms"),
    pytest.param(READER_OPTIONS, "values", "zinc, total", id="one value with a comma"),
]


@pytest.mark.parametrize(("table", "name", "value"), CASES)
def test_a_value_written_on_a_command_line_is_parsed_to_the_same_value(table, name, value):
    one, words = table[name], table.command({name: value})
    assert words[0] == one.flag
    if one.kind is FLAG:
        assert words[1:] == []
        return
    texts = words[1::2]
    assert set(words[::2]) == {one.flag}
    given = texts if one.value.startswith("NAME=") else texts[0]
    parsed = one.kind.parse(one.flag, given)
    assert (type(value)(parsed) if one.value in ("N", "NUMBER") else parsed) == value


@pytest.mark.parametrize(("table", "name", "value"), CASES)
def test_a_value_is_read_back_from_a_saved_fit(table, name, value):
    written = json.loads(json.dumps({name: value}))
    read = table.read(written)[name]
    assert np.array_equal(read, value) if isinstance(value, tuple) else plain(read) == plain(value)
    assert table.read({name: None}) == table.read({}) == {}


def plain(value):
    """Return a value with tuples as lists, as JSON has it."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(("table", "values"), TABLES.values(), ids=list(TABLES))
def test_every_option_has_a_value_here(table, values):
    assert set(values) == set(table)


@pytest.mark.parametrize(("table", "values"), TABLES.values(), ids=list(TABLES))
def test_default_values_are_accepted_and_not_written(table, values):
    defaults = {name: one.default for name, one in table.items()}
    assert table.command(defaults) == []
    assert set(table.checked({})) == set(table)
    assert table.parsed(dict.fromkeys(table)) == {}


@pytest.mark.parametrize(
    ("function", "table", "others"),
    [
        (gx.Observations.from_frame, READER_OPTIONS, {"decimal": None}),
        (gx.fit, FIT_OPTIONS, {}),
    ],
    ids=["from_frame", "fit"],
)
def test_signatures_have_the_names_and_defaults_of_the_table(function, table, others):
    parameters = inspect.signature(function).parameters.values()
    named = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    named = {name: value for name, value in named.items() if name in table} | others
    assert named == {name: one.default for name, one in table.items()}


def test_type_checkers_know_the_options_of_tables():
    assert set(TableColumns.__annotations__) == set(READER_OPTIONS) - {"decimal"}


def test_an_unknown_name_is_refused_with_the_nearest_one():
    path = gx.datasets.path("meuse")
    with pytest.raises(TypeError, match=r"'covariate'. Did you mean 'covariates'\?"):
        gx.read_table(path, values="zinc", covariate=("elev",))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("time", 3, "`time` must name a column by text. Got 3"),
        ("value_unit", 3, "`value_unit` must be text. Got 3"),
        ("covariates", "elev", "`covariates` must be a sequence of column names"),
        ("drop_missing", 1, "`drop_missing` must be True or False. Got 1"),
        ("missing", "none", "`missing` must be an array of numbers"),
        ("duplicates", "some", "`duplicates` must be one of: keep, drop, mean, error"),
        ("decimal", ";", "`decimal` must be one of: ., ,"),
        ("metric", "manhattan", "manhattan"),
    ],
)
def test_values_that_an_option_cannot_have_are_refused(name, value, message):
    with pytest.raises(gx.InvalidInput, match=message):
        READER_OPTIONS.checked({name: value})


def test_options_that_a_fit_does_not_tell_are_kept_with_it(tmp_path):
    seen, held = gx.datasets.load("meuse"), {"smoothness": 0.5, "range": 200.0}
    options = {"search": "bobyqa", "evaluations": np.int64(500), "start": {"nugget": 0.1}}
    fit = gx.fit(seen, fixed=held, reml=True, progress=False, **options)
    assert fit.options == options
    fit.save(tmp_path / "fit.json")
    again = gx.Fit.load(tmp_path / "fit.json")
    assert again.options == options
    assert gx.fit(seen, fixed=held, progress=False).options == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", "--transform must be log, sqrt, .*tukey-gh. Got 'none'"),
        ("log,sqr", "tukey-gh or none. Got 'sqr'. Did you mean 'sqrt'"),
    ],
)
def test_a_transformation_that_is_not_known_is_refused(text, message):
    with pytest.raises(gx.InvalidInput, match=message):
        FIT_OPTIONS.parsed({"transform": text})
