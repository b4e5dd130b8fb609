"""Values that are known only to lie between limits: in arrays, tables, options and saved fits."""

import json

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.limits import is_increasing
from geomxp.data.options import READER_OPTIONS, options_of

INF = np.inf
PLACES = [[0, 0], [1, 0], [0, 1], [1, 1]]


def observations(values, **columns):
    """Observations at as many places as there are values."""
    n = len(values)
    return gx.Observations(np.column_stack((np.arange(n), np.arange(n) % 2)), values, **columns)


def frame_of(cells, **columns):
    n = len(cells)
    return pd.DataFrame({"x": np.arange(n), "y": np.arange(n) % 2, "z": cells} | columns)


def read(cells, values="z", columns=None, **options):
    frame = frame_of(cells, **(columns or {}))
    return gx.Observations.from_frame(frame, values=values, **options)


def limits_of(seen):
    return list(zip(seen.lower.tolist(), seen.upper.tolist(), strict=True))


# Arrays


def test_a_limit_that_is_not_given_is_the_value():
    values = [0.2, 1.5, 3.0, 100.0]
    left = observations(values, lower=[-INF, 1.5, 3.0, 100.0])
    right = observations(values, upper=[0.2, 1.5, 3.0, INF])
    assert left.upper.tolist() == right.lower.tolist() == values
    assert left.censored.tolist() == [True, False, False, False]
    assert right.censored.tolist() == [False, False, False, True]


def test_without_limits_there_are_none():
    seen = observations([1.0, 2.0, 3.0])
    assert seen.lower is seen.upper is seen.censored is None
    assert seen.limits_in_words == ""


def test_limits_that_equal_the_values_censor_nothing():
    seen = observations([1.0, 2.0, 3.0], lower=[1.0, 2.0, 3.0])
    assert seen.censored.tolist() == [False] * 3
    assert seen.limits_in_words == ""
    assert "limit" not in repr(seen)


CENSORED = {"lower": [-INF, 1.5, 2.0, 100.0], "upper": [0.2, 1.5, 4.0, INF]}


def test_limits_follow_their_rows():
    seen = observations([0.2, 1.5, 3.0, 100.0], **CENSORED)
    some = seen.subset([3, 2, 0])
    assert limits_of(some) == [(100.0, INF), (2.0, 4.0), (-INF, 0.2)]
    assert seen.subset([3, 2, 0]) == some
    assert some != seen.subset([0, 2, 3])
    variables = observations([0.2, 1.5, 3.0, 100.0], variable=[0, 0, 0, 1], **CENSORED)
    assert limits_of(variables.of_variable(0)) == limits_of(seen)[:3]


def test_limits_in_a_series_are_matched_by_their_labels():
    names = pd.Index(list("abcd"))
    values = pd.Series([0.2, 1.5, 3.0, 100.0], index=names)
    columns = {name: pd.Series(one, index=names)[::-1] for name, one in CENSORED.items()}
    seen = gx.Observations(pd.DataFrame(PLACES, index=names), values, **columns)
    assert (seen.lower.tolist(), seen.upper.tolist()) == (CENSORED["lower"], CENSORED["upper"])


def test_limits_are_part_of_the_data_and_not_of_the_inputs_of_covariances():
    values = [0.2, 1.5, 3.0, 100.0]
    plain, seen = observations(values), observations(values, **CENSORED)
    assert plain != seen
    assert plain.digest() != seen.digest()
    assert plain.inputs == seen.inputs
    assert [one.role for one in seen.columns if one.name in CENSORED] == ["lower", "upper"]


def test_censored_values_are_counted_in_words():
    seen = observations([0.2, 1.5, 3.0, 100.0], **CENSORED)
    words = "1 of 4 values is below a limit (0.2), 1 above a limit (100), 1 between two limits"
    assert seen.limits_in_words == f"{words} (2 to 4)"
    assert "1 of 4 values below a limit, 1 above a limit" in repr(seen)
    assert "1 of 4 values below a limit, 1 above a limit" in str(seen)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"lower": [np.nan, 1, 2]}, "must not be NaN. Got nan and 0 .* row 1 .* write -inf"),
        ({"lower": [1, 1, 2], "upper": [0, 1, 2]}, "`lower` must be at most `upper`. Got 1 and 0"),
        ({"lower": [-INF] * 3, "upper": [INF] * 3}, r"must be finite.*\(3 such rows\): leave out"),
        ({"lower": [1, 2, 3], "upper": 3}, "lie between .* Got 1 and 3 for the value 0 in row 1"),
        ({"lower": [1, 2]}, r"one limit for each of the 3 values. Got shape \(2,\)"),
        ({"upper": ["a", "b", "c"]}, "`upper` must be an array of numbers"),
    ],
)
def test_limits_that_values_cannot_have_are_refused(limits, message):
    with pytest.raises(gx.InvalidInput, match=message):
        observations([0.0, 1.0, 2.0], **limits)


# Cells of tables


@pytest.mark.parametrize(
    ("cell", "lower", "upper", "value"),
    [
        ("<0.5", -INF, 0.5, 0.5),
        ("< 0.5", -INF, 0.5, 0.5),
        (" <0.5 ", -INF, 0.5, 0.5),
        ("<=0.5", -INF, 0.5, 0.5),
        ("≤ .5", -INF, 0.5, 0.5),
        ("<5e-1", -INF, 0.5, 0.5),
        (">100", 100.0, INF, 100.0),
        (">= 100", 100.0, INF, 100.0),
        ("≥100.", 100.0, INF, 100.0),
        ("0.2-0.5", 0.2, 0.5, 0.35),
        ("0.2 - 0.5", 0.2, 0.5, 0.35),
        ("0.2–0.5", 0.2, 0.5, 0.35),
        ("-2--1", -2.0, -1.0, -1.5),
        ("1e-3-1e-1", 1e-3, 0.1, 0.0505),
        ("3-3", 3.0, 3.0, 3.0),
    ],
)
def test_cells_of_values_may_be_limits(cell, lower, upper, value):
    seen = read(["1.5", cell, "<9", "2.5"])
    assert limits_of(seen)[1] == (lower, upper)
    assert seen.values[1] == pytest.approx(value)
    assert limits_of(seen)[0] == (1.5, 1.5)


@pytest.mark.parametrize(
    "code",
    [
        *("ND", "nd", "N.D.", "BDL", "BLQ", "<LOD", "< LOD", "<DL", "BQL", "Not  detected"),
        *("below detection limit", "Below Detection Limit"),
    ],
)
def test_codes_of_values_that_were_not_detected_are_below_the_limit(code):
    seen = read(["1.5", code, "0.3", "0.1"], below=0.2)
    assert limits_of(seen) == [(1.5, 1.5), (-INF, 0.2), (0.3, 0.3), (-INF, 0.2)]
    each = read(["1.5", code, "0.3", "0.1"], below="mdl", columns={"mdl": [0.1, 0.4, 0.1, 0.1]})
    assert limits_of(each) == [(1.5, 1.5), (-INF, 0.4), (0.3, 0.3), (-INF, 0.1)]
    message = r"row 2, column 'z': a value that was not detected needs its limit \(1 such row\)"
    for options in ({}, {"below": "mdl", "columns": {"mdl": [0.1, None, 0.1, 0.1]}}):
        with pytest.raises(gx.InvalidInput, match=rf"{message}: .*below=0.2 \(--below 0.2\)"):
            read(["1.5", code, "0.3", "0.1"], **options)


def test_a_table_without_limits_has_none():
    assert read(["1.5", "2", "3", "4"]).lower is None
    assert read([1.5, 2.0, 3.0, 4.0]).lower is None
    assert read(["1.5", "2", "3", "4-4"]).lower is None
    assert read([1.5, 2.0, 3.0, 4.0], below=0.2).censored.tolist() == [False] * 4
    # the only censored value is in a row that is dropped
    frame = frame_of(["<1", "2", "3", "4", "5"]).assign(x=[np.nan, 1, 2, 3, 4])
    assert gx.Observations.from_frame(frame, values="z", drop_missing=True).lower is None


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", "2", "5-3"], "row 3, column 'z': the first limit of '5-3' must be at most"),
        (["1", "<0,5", "3"], "row 2, column 'z': '<0,5' is not a number .* decimal mark"),
        (["1", "2", "3 -"], "row 3, column 'z': '3 -' is not a number"),
        (["1", "2", "<"], "row 3, column 'z': '<' is not a number"),
        (["1", "2", "<x"], "row 3, column 'z': '<x' is not a number"),
        (["1", "2", "2026-03-01"], "'2026-03-01' is not a number .* write dates as numbers"),
    ],
)
def test_cells_that_are_neither_numbers_nor_limits_are_refused(cells, message):
    with pytest.raises(gx.InvalidInput, match=message):
        read(cells)


@pytest.mark.parametrize("name", ["x", "a"])
def test_only_values_may_have_limits(name):
    frame = frame_of([1.0, 2.0, 3.0, 4.0], a=["1", "2", "3", "4"])
    frame[name] = ["1", "<2", "3", "4"]
    with pytest.raises(gx.InvalidInput, match=f"column '{name}': '<2' is not a number"):
        gx.Observations.from_frame(frame, values="z", covariates=("a",))


def test_marks_of_missing_values_come_before_limits():
    with pytest.raises(gx.InvalidInput, match="Got nan in row 2"):
        read([1.0, -9999.0, 3.0, 0.1], below=0.2, missing=-9999)
    seen = read([1.0, -9999.0, 3.0, 0.1], below=0.2, missing=-9999, drop_missing=True)
    assert limits_of(seen) == [(1.0, 1.0), (3.0, 3.0), (-INF, 0.2)]
    limits = {"mdl": [0.2, -9999.0, 0.2, -9999.0]}
    for option in ("below", "above"):
        seen = read([1.0, 2.0, 3.0, 0.1], columns=limits, missing=-9999, **{option: "mdl"})
        assert not seen.censored[[1, 3]].any()
    # a limit marks nothing
    assert limits_of(read(["1", "<9", "3", "5"], missing=9))[1] == (-INF, 9.0)


def test_a_number_far_below_a_limit_is_reported_as_a_possible_mark():
    with pytest.warns(gx.GeomxpWarning, match="column 'z' holds -9999 in 1 row"):
        read([1.0, -9999.0, 3.0, 0.1], below=0.2)


# Options


def test_values_at_or_beyond_a_limit_are_censored_at_it():
    seen = read([0.1, 0.2, 0.3, 5.0, 6.0], below=0.2, above=5)
    assert limits_of(seen) == [(-INF, 0.2), (-INF, 0.2), (0.3, 0.3), (5.0, INF), (5.0, INF)]
    assert seen.values.tolist() == [0.2, 0.2, 0.3, 5.0, 5.0]


@pytest.mark.parametrize(
    "flags",
    [
        [True, False, False, True],
        ["yes", "no", "no", "Yes"],
        ["True", "FALSE", "false", "TRUE"],
        [1, 0, 0, 1],
        ["1", "0", "0", "1"],
        [1.0, 0.0, np.nan, 1.0],
        ["y", None, "", "y"],
    ],
    ids=str,
)
def test_flags_say_where_the_value_is_a_limit(flags):
    values = [0.1, 0.05, 0.3, 0.2]
    low = read(values, below="flag", columns={"flag": flags})
    assert limits_of(low) == [(-INF, 0.1), (0.05, 0.05), (0.3, 0.3), (-INF, 0.2)]
    high = read(values, above="flag", columns={"flag": flags})
    assert limits_of(high) == [(0.1, INF), (0.05, 0.05), (0.3, 0.3), (0.2, INF)]


def test_a_row_without_a_limit_is_not_censored():
    limit = {"mdl": [0.2, None, 0.2, 0.5]}
    seen = read([0.1, 0.05, 0.3, 0.2], below="mdl", columns=limit)
    assert limits_of(seen) == [(-INF, 0.2), (0.05, 0.05), (0.3, 0.3), (-INF, 0.5)]


def test_a_limit_in_a_cell_comes_before_the_option():
    seen = read(["<0.5", "0.1", ">0.05", "0.01-0.1"], below=0.2)
    assert limits_of(seen) == [(-INF, 0.5), (-INF, 0.2), (0.05, INF), (0.01, 0.1)]


def test_negative_values_stand_for_limits():
    seen = read([1.0, -0.2, 0.0, 3.0], limits="negative")
    assert limits_of(seen) == [(1.0, 1.0), (-INF, 0.2), (0.0, 0.0), (3.0, 3.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"below": 2, "above": 1}, "row 1, column 'z': 1 is both below and above a limit"),
        ({"below": "mdl"}, "no column 'mdl'"),
        ({"below": "z"}, "`below` must name a column other than the values"),
        ({"below": "one"}, "only the number 1, .* give the number 1 .*; for flags write true"),
        ({"below": "word"}, "row 1, column 'word': 'high' is not a number"),
        ({"below": True}, "`below` must be a finite number or name a column. Got True"),
        ({"above": np.nan}, "`above` must be a finite number or name a column. Got nan"),
        ({"below": (0.1, 0.2)}, "`below` must hold a limit, a column or None for each of z"),
        ({"limits": "positive"}, "`limits` must be one of: negative"),
    ],
)
def test_options_that_a_table_cannot_have_are_refused(options, message):
    columns = {"one": [1, 1, 1, 1], "word": ["high"] * 4}
    with pytest.raises(gx.InvalidInput, match=message):
        read([1.0, 2.0, 3.0, 4.0], columns=columns, **options)


def test_each_variable_has_its_own_limits():
    lead = {"lead": ["ND", "3", "1", "<2"]}
    seen = read(["1.5", "<1", "2", "3"], ("z", "lead"), lead, below=(None, 2))
    of = {name: limits_of(seen.of_variable(name)) for name in ("z", "lead")}
    assert of["z"] == [(1.5, 1.5), (-INF, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert of["lead"] == [(-INF, 2.0), (3.0, 3.0), (-INF, 2.0), (-INF, 2.0)]
    with pytest.raises(gx.InvalidInput, match="hold a limit, a column or None for each of z, lead"):
        read(["1.5", "<1", "2", "3"], ("z", "lead"), lead, below=2)
    # those of a column without limits are its values
    plain = read([1.5, 1.0, 2.0, 3.0], ("z", "lead"), lead, below=(None, 2))
    assert not plain.of_variable("z").censored.any()


# Functions of values

FUNCTIONS = {
    "log(z)": np.log,
    "log10(z)": np.log10,
    "log1p(z)": np.log1p,
    "sqrt(z)": np.sqrt,
    "cbrt(z)": np.cbrt,
    "I(z / 1000)": lambda z: z / 1000,
    "log(z + 1)": lambda z: np.log(z + 1),
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_function_of_the_values_transforms_their_limits(text):
    cells = ["1.5", "<0.5", ">100", "2-4"]
    seen, plain, function = read(cells, text), read(cells), FUNCTIONS[text]
    np.testing.assert_allclose(seen.upper, [*function(plain.upper[:2]), INF, function(4.0)])
    np.testing.assert_allclose(seen.lower, [function(1.5), -INF, *function(plain.lower[2:])])
    assert seen.values[1:3].tolist() == [seen.upper[1], seen.lower[2]]
    assert seen.values[3] == pytest.approx((function(2.0) + function(4.0)) / 2)


def test_a_lower_limit_without_a_logarithm_is_minus_infinity():
    seen = read(["1", "0-0.5", "-1-0.5", "3"], "log(z)")
    assert seen.lower.tolist() == [0.0, -INF, -INF, np.log(3.0)]
    assert seen.values[1:3].tolist() == [np.log(0.5)] * 2


@pytest.mark.parametrize(
    ("cells", "text", "message"),
    [
        (["1", "<0", "3"], "log(z)", "not finite for z = 0 in row 2"),
        (["1", "0", "<3"], "log(z)", "not finite for z = 0 in row 2"),
        (["1", ">-2", "3"], "log(z)", "not finite for z = -2 in row 2"),
        (["1", "<2", "3"], "abs(z)", r"must be an increasing function, .* row 2 .*\(1 such rows\)"),
        (["1", "<2", "3"], "I(1 / z)", "must be an increasing function"),
        (["1", "<2", "3"], "I(-2 * z)", "must be an increasing function"),
    ],
)
def test_functions_that_limits_cannot_have_are_refused(cells, text, message):
    with pytest.raises(gx.InvalidInput, match=message):
        read(cells, text)


def test_functions_are_known_to_be_increasing_by_their_form():
    for text in ("log(z)", "np.log(z)", "exp(sqrt(z))", "I(3 + z)", "I(2 * z - 1)", "I(z / 2)"):
        assert is_increasing(text), text
    for text in ("abs(z)", "I(z ** 2)", "I(3 - z)", "I(z * z)", "where(z > 1, z, 1)", "I(z / -2)"):
        assert not is_increasing(text), text


# Files


def written(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("x;y;z\n0;0;<0,5\n1;0;1,25\n2;0;0,2-0,5\n3;0;>10\n", None),
        ("x;y;z\n0;0;<0,5\n1;0;1,25\n2;0;0,2-0,5\n3;0;>10\n", ","),
        ('x,y,z\n0,0,"<0,5"\n1,0,"1,25"\n2,0,"0,2 – 0,5"\n3,0,>10\n', ","),
        ("x,y,z\n0,0,<0.5\n1,0,1.25\n2,0,0.2-0.5\n3,0,>10\n", None),
        ("x;y;z\n0;0;<0.5\n1;0;1.25\n2;0;0.2-0.5\n3;0;>10\n", None),
    ],
)
def test_limits_have_the_decimal_sign_of_the_table(tmp_path, text, decimal):
    seen = gx.read_table(written(tmp_path, text), values="z", decimal=decimal)
    assert limits_of(seen) == [(-INF, 0.5), (1.25, 1.25), (0.2, 0.5), (10.0, INF)]


def test_a_column_with_decimal_commas_may_hold_codes_with_points(tmp_path):
    path = written(tmp_path, "x;y;z\n0;0;N.D.\n1;0;1,25\n2;0;0,3\n")
    seen = gx.read_table(path, values="z", below=0.2)
    assert limits_of(seen) == [(-INF, 0.2), (1.25, 1.25), (0.3, 0.3)]


def test_thousands_are_separated_in_limits_too(tmp_path):
    path = written(tmp_path, 'x,y,z\n0,0,"<1,000"\n1,0,"2,500.5"\n2,0,3\n')
    seen = gx.read_table(path, values="z", decimal=".")
    assert seen.upper.tolist() == [1000.0, 2500.5, 3.0]


TABLE = "x,y,z,mdl,flag\n0,0,<0.5,0.1,yes\n1,0,ND,0.2,no\n0,1,1.5,0.2,no\n1,1,-0.3,,no\n2,1,7,,no\n"


@pytest.mark.parametrize(
    "options",
    [
        {"below": "mdl"},
        {"below": 0.2},
        {"below": np.float64(0.25), "above": np.int64(5)},
        {"below": "mdl", "above": "flag"},
        {"below": "mdl", "limits": "negative"},
    ],
    ids=str,
)
def test_the_source_reads_the_same_limits_again(tmp_path, options):
    seen = gx.read_table(written(tmp_path, TABLE), values="z", **options)
    source = json.loads(json.dumps(seen.source))
    again = gx.read_table(source["path"], **options_of(source))
    assert again == seen
    assert again.digest() == seen.digest() == source["digest"]
    words = READER_OPTIONS.command(options_of(source))
    texts = dict(zip(words[::2], words[1::2], strict=True))
    texts = {name: texts.get(one.flag) for name, one in READER_OPTIONS.items()}
    assert gx.read_table(source["path"], **READER_OPTIONS.parsed(texts)) == seen


def test_the_next_command_of_an_exploration_has_the_limits():
    seen = gx.datasets.load("meuse", values="cadmium", below=0.2)
    assert seen.limits_in_words == "21 of 155 values are below a limit (0.2)"
    found = gx.explore(seen)
    assert "--below 0.2" in found.command
    assert "below=0.2" in found.call


def test_limits_of_cells_of_a_grid_may_be_another_variable():
    xarray = pytest.importorskip("xarray")
    sizes = {"y": [1, 0], "x": [5, 6]}
    grid = xarray.Dataset(
        {
            "z": (("y", "x"), [[1.0, 2.0], [3.0, 4.0]]),
            "mdl": (("y", "x"), [[1.5, 1.5], [9, np.nan]]),
        },
        sizes,
    )
    seen = gx.Observations.from_xarray(
        grid, values="z", below="mdl", covariates=("mdl",), drop_missing=True
    )
    assert limits_of(seen) == [(-INF, 1.5), (2.0, 2.0), (-INF, 9.0)]
