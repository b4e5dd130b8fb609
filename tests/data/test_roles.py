"""Columns of observations: each has a name, values, a unit, levels and a role."""

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.observations import NAMED_ROLES, ROLES

FRAME = pd.DataFrame(
    {
        "lon": [5.0, 6.0, 7.0, 5.5],
        "lat": [50.0, 51.0, 52.0, 50.5],
        "day": ["2026-03-01", "2026-03-02", "2026-03-02", "2026-03-04"],
        "ph": [5.5, 6.5, 7.5, 6.0],
        "se": [0.1, 0.2, 0.3, 0.1],
        "rock": ["clay", "sand", "clay", "till"],
        "element": ["zinc", "lead", "zinc", "lead"],
    }
)


def observations(**options):
    return gx.Observations.from_frame(FRAME, values="ph", **options)


FULL = {
    "time": "day",
    "error_variance": "se",
    "covariates": ("rock",),
    "value_unit": "pH",
    "variable": "element",
}


def test_columns_have_the_names_units_and_roles_of_the_table():
    seen = observations(**FULL)
    assert [(one.name, one.role, one.unit) for one in seen.columns] == [
        ("lon", "location", "degree"),
        ("lat", "location", "degree"),
        ("day", "time", "day"),
        ("ph", "value", "pH"),
        ("element", "variable", ""),
        ("se", "error_variance", ""),
        ("rock", "covariate", ""),
    ]


def test_columns_of_text_hold_codes_of_their_levels():
    for one in observations(**FULL).columns:
        if one.levels:
            text = [one.levels[int(code)] for code in one.values]
            assert text == FRAME[one.name].tolist()
    assert {one.role for one in observations(**FULL).columns if one.levels} == {
        "variable",
        "covariate",
    }


@pytest.mark.parametrize("without", [(), *((name,) for name in FULL)], ids=str)
def test_columns_are_the_public_attributes(without):
    seen = observations(**{name: value for name, value in FULL.items() if name not in without})
    by_role = {}
    for one in seen.columns:
        by_role.setdefault(one.role, []).append(one)
    np.testing.assert_array_equal(
        np.column_stack([one.values for one in by_role["location"]]), seen.locations
    )
    assert by_role["value"][0].values is seen.values
    for name in ROLES:
        assert [one.values for one in by_role.get(name, [])] == (
            [] if getattr(seen, name) is None else [getattr(seen, name)]
        )
    assert len(by_role.get("covariate", [])) == len(seen.covariate_names)


def test_every_role_has_fields_of_observations_and_inputs():
    fields, inputs = gx.Observations.__dataclass_fields__, gx.Inputs.__dataclass_fields__
    assert set(ROLES) <= set(fields)
    assert set(ROLES) & set(inputs) == {name for name, role in ROLES.items() if role.of_inputs}
    assert {f"{name}_name" for name in NAMED_ROLES} <= set(fields)
    for role in ROLES.values():
        assert not role.unit or role.unit in fields


def test_rows_averaged_at_one_location_are_a_column_of_replicates():
    frame = pd.concat([FRAME, FRAME.iloc[:2]])
    seen = gx.Observations.from_frame(frame, values="ph", duplicates="mean")
    (column,) = (one for one in seen.columns if one.role == "replicates")
    assert (column.name, column.values.tolist()) == ("replicates", [2, 2, 1, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": [1.0, 2.0]}, "`time` must hold one number"),
        ({"variable": [0, 1, 1.5, 0]}, "`variable` must hold whole numbers"),
        ({"error_variance": [1, 1, -1, 1]}, "`error_variance` must hold variances"),
        ({"replicates": [1, 1, 0, 1]}, "`replicates` must be greater than 0"),
        ({"time": [1, 2, 3, 4], "time_name": "x"}, "coordinates, time must be different columns"),
    ],
)
def test_columns_that_a_role_cannot_have_are_refused(changes, message):
    places = [[0, 0], [1, 0], [0, 1], [1, 1]]
    with pytest.raises(gx.InvalidInput, match=message):
        gx.Observations(places, [1.0, 2.0, 3.0, 4.0], **changes)


def test_a_unit_that_is_not_known_is_empty():
    places = [[0, 0], [1, 0], [0, 1]]
    plain = gx.Observations(places, [1.0, 2.0, 3.0])
    metric = gx.Observations(places, [1.0, 2.0, 3.0], length_unit="metre")
    assert [one.unit for one in plain.columns] == ["", "", ""]
    assert [one.unit for one in metric.columns] == ["m", "m", ""]
