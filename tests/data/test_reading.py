"""Steps of reading: laws that hold for every table, whatever its options."""

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.reading import STEPS, Reading, fields_of, read

OPTIONS = {
    "plain": {"values": "z"},
    "function": {"values": "log(z)"},
    "several": {"values": ("z", "w"), "error_variance": ("se", None)},
    "variable": {"values": "z", "variable": "kind"},
    "all": {
        "values": "z",
        "time": "day",
        "covariates": ("rock", "w"),
        "error_variance": "I(se ** 2)",
        "drop_missing": True,
        "missing": -9999,
    },
}


def frame(n=20):
    random = np.random.default_rng(3)
    table = pd.DataFrame(random.random((n, 4)) + 1, columns=["x", "y", "z", "se"])
    table["w"] = np.where(random.random(n) < 0.2, np.nan, random.random(n))
    table["day"] = pd.Timestamp("2026-03-01") + pd.to_timedelta(random.integers(0, 9, n), "D")
    table["rock"] = random.choice(["clay", "sand"], n)
    table["kind"] = random.choice(["a", "b"], n)
    return table


@pytest.fixture(params=OPTIONS.values(), ids=list(OPTIONS))
def options(request):
    return request.param


def test_observations_have_the_fields_that_the_steps_find(options):
    seen, fields = gx.Observations.from_frame(frame(), **options), fields_of(read(frame(), options))
    again = gx.Observations(**fields)
    assert again.digest() == seen.digest()
    assert again == seen


def test_reading_leaves_the_frame_as_it_is(options):
    table, before = frame(), frame()
    gx.Observations.from_frame(table, **options)
    pd.testing.assert_frame_equal(table, before)


def test_a_step_changes_no_earlier_state(options):
    state = first = Reading(frame(), read(frame(), options).options)
    for step in STEPS:
        before = {name: id(value) for name, value in vars(state).items()}
        after = step(state)
        assert {name: id(value) for name, value in vars(state).items()} == before, step.__name__
        state = after
    assert (first.values, first.table, first.rows) == ((), None, None)


def test_a_column_that_is_not_named_does_not_count(options):
    more = frame().assign(other="text", gap=np.nan)
    ours, theirs = (gx.Observations.from_frame(one, **options) for one in (more, frame()))
    assert ours.digest() == theirs.digest()


def test_rows_in_another_order_are_the_same_observations_in_this_order(options):
    order = np.random.default_rng(1).permutation(20)
    ours = gx.Observations.from_frame(frame(), **options)
    theirs = gx.Observations.from_frame(frame().iloc[order], **options)

    def rows(seen):
        # names of variables, because their numbers follow the order of appearance
        names = [seen.variable_labels[k] for k in seen.variable] if seen.variable_labels else ""
        errors = 0.0 if seen.error_variance is None else seen.error_variance
        days = "" if seen.time is None else seen.dates.astype(str)
        x, y = seen.locations.T
        columns = {"x": x, "y": y, "z": seen.values, "e": errors, "v": names, "day": days}
        return pd.DataFrame(columns).sort_values(["x", "v"]).reset_index(drop=True)

    pd.testing.assert_frame_equal(rows(ours), rows(theirs))


def test_dropped_and_missing_values_are_counted():
    table = frame()
    seen = gx.Observations.from_frame(table, values=("z", "w"), drop_missing=True)
    missing = int(table["w"].isna().sum())
    assert seen.source["missing_values"] == {"z": 0, "w": missing}
    table.loc[:2, "x"] = np.nan
    seen = gx.Observations.from_frame(table, values="z", drop_missing=True)
    assert (seen.source["left_out"], len(seen)) == (3, 17)
