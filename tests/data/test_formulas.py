import os

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.formula import Formula

N = 40


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": 1000 * random.random(N),
            "y": random.random(N),
            "code": random.choice([1.0, 2.0, 3.0], N),
            "soil pH": 1 + random.random(N),
            "rock": random.choice(["clay", "lime", "sand"], N),
        }
    )


def columns(text, frame, at=None):
    formula = Formula.parse(text)
    formula.check_columns(tuple(frame.columns), ("rock",))
    names, memory = formula.learn(frame)
    return names, formula.columns(frame if at is None else at, memory)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y", ["1", "x", "y"]),
        ("~ x", ["1", "x"]),
        ("0 + x", ["x"]),
        ("x - 1", ["x"]),
        ("1", ["1"]),
        ("0", []),
        ("x:y", ["1", "x * y"]),
        ("x * y", ["1", "x", "y", "x * y"]),
        ("(x + y)**2", ["1", "x", "y", "x * y"]),
        ("log(x) + sqrt(y) + np.exp(y)", ["1", "log(x)", "sqrt(y)", "exp(y)"]),
        ("I(x**2) + I(-x / 2 + 1)", ["1", "x ** 2", "1 - x / 2"]),
        ("{x + 1}", ["1", "x + 1"]),
        ("I((x > 300) & (y < 0.5))", ["1", "((x > 300) & (y < 0.5)) * 1.0"]),
        ("where(x > 300, y, 0)", ["1", "where(x > 300, y, 0)"]),
        ("center(x)", ["1", "x - x.mean()"]),
        ("scale(x)", ["1", "(x - x.mean()) / x.std()"]),
        ("`soil pH` + log(`soil pH`)", ["1", "p", "log(p)"]),
        ("C(code)", ["1", "(code == 2) * 1.0", "(code == 3) * 1.0"]),
        ("rock", ["1", "lime", "sand"]),
        ("0 + rock", ["clay", "lime", "sand"]),
        ("rock:x", ["1", "clay * x", "lime * x", "sand * x"]),
        ("C(rock, Treatment('sand'))", ["1", "clay", "lime"]),
        ("C(rock, Sum)", ["1", "clay - sand", "lime - sand"]),
    ],
)
def test_columns_are_what_the_formula_says(frame, text, expected):
    known = {name: frame[name] for name in ("x", "y", "code")} | {"p": frame["soil pH"]}
    known |= {name: (frame["rock"] == name) * 1.0 for name in ("clay", "lime", "sand")}
    functions = {name: getattr(np, name) for name in ("log", "sqrt", "exp", "where")}
    found = columns(text, frame)[1]
    parts = [np.broadcast_to(eval(word, functions | known), N) for word in expected]
    assert found.shape == (N, len(expected))
    # a few operations for each entry
    np.testing.assert_allclose(found.T, np.array(parts).reshape(-1, N), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        *("poly(x, 3)", "center(x) + scale(log(x))", "standardize(y)", "poly(scale(x), 2)"),
        *("bs(x, df=5, extrapolation='clip')", "cr(x, df=4, constraints='center')", "rock * x"),
        *("C(code, Helmert)", "C(rock, levels=['sand', 'lime', 'clay'])", "`soil pH` + poly(y, 2)"),
    ],
)
def test_transforms_keep_what_they_learnt_wherever_they_are_used(frame, text):
    rows = [7, 3, 3]
    whole = columns(text, frame)[1]
    part = columns(text, frame, frame.iloc[rows])[1]
    np.testing.assert_array_equal(part, whole[rows])


def test_orthogonal_polynomials_span_the_powers(frame):
    found = columns("poly(x, 2)", frame)[1]
    powers = np.column_stack((np.ones(N), frame["x"] / 1000, (frame["x"] / 1000) ** 2))
    left = powers - found @ np.linalg.lstsq(found, powers, rcond=None)[0]
    assert np.abs(left).max() < 1e-13
    # and are orthonormal beside the constant
    np.testing.assert_allclose(found[:, 1:].T @ found[:, 1:], np.eye(2), atol=1e-14)


def test_names_are_those_that_were_written(frame):
    names = columns("`soil pH` + C(rock) + poly(x, 2)", frame)[0]
    assert names == (
        *("intercept", "soil pH", "C(rock)[T.lime]", "C(rock)[T.sand]"),
        *("poly(x, 2)[1]", "poly(x, 2)[2]"),
    )


def test_variables_and_categories_are_told_apart():
    formula = Formula.parse("log(dist) + C(soil) + C(rock):x + rock + I(a == 'b')")
    assert formula.variables == ("dist", "soil", "rock", "x", "a")
    assert formula.categories == {"soil"}
    assert formula.computed == {"dist"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must not be empty"),
        ("z ~ x", "'~' is not allowed in a trend: write one side"),
        ("x | y", "one side"),
        (".", "'.' is not allowed"),
        ("x +", "misplaced"),
        ("((x)", "matching"),
        ("poly(x, 2", "ended before"),
        ("`soil", "a backtick is not closed"),
        ("x**2", r"cross x with itself, which changes nothing: for powers write I\(x\*\*2\)"),
        ("(x + y)**9", "a power of terms must be a whole number of at most 4"),
        ("(x + y)**+9", "is not allowed"),
        ("nofun(x)", "no function 'nofun'. The functions are: abs, arctan2"),
        ("np.load(x)", "no function 'load'"),
        ("x.real(y)", "no function 'x.real'"),
        (
            "elev",
            "no column 'elev'. The columns are: x, y, code, soil pH, rock; the functions: abs",
        ),
        ("log(elev)", "no column 'elev'"),
        ("I(rock + 1)", "'rock' is text and cannot be used in a computation"),
        ("log(rock)", "'rock' is text"),
        ("poly(x, 1000)", r"1000 must lie in \[1, 50\]"),
        ("poly(x, degree=y)", r"y must lie in \[1, 50\]"),
        ("poly(x, 2, step=1)", "poly has no option 'step'"),
        ("I(9**9**9)", "must be a power of a column"),
        ("I(x * 'a')", "is not a number"),
        ("I(1 < x < 3)", "compare two at a time"),
        ("I(`soil pH` if x else 1)", "'`soil pH` if x else 1' is not allowed in a formula"),
        ("C(rock, Treatment('gold'))", "not among the provided levels"),
        ("C(rock, levels=['clay'])", r"a value in C\(…\) is not one of the levels"),
        ("Treatment('clay')", "no function 'Treatment'"),
        ("I + I(x)", "'I' is a column and a function"),
        ("x + 'a'", "String literals are not valid"),
        ("x" * 1001, "at most 1000 characters"),
        (7, "must be text"),
    ],
)
def test_what_is_no_formula_is_one_line(frame, text, words):
    with pytest.raises(gx.InvalidInput, match=words) as error:
        columns(text, frame.assign(I=1.0) if text == "I + I(x)" else frame)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)
    assert "quoted_" not in str(error.value)


ATTACKS = (
    "__import__('os').mkdir('CANARY')",
    "I(__import__('os').mkdir('CANARY'))",
    "I(x.__class__.__mro__)",
    "I(log.__globals__)",
    "np.os.mkdir(x)",
    "np.save('CANARY', x)",
    "{open('CANARY', 'w')}",
    "I([y for y in x])",
    "I((lambda: x)())",
    "I((y := x))",
    "I(f'{x}')",
    "I(x[0])",
    "I(print)",
    "poly(x, _state=x)",
    "poly(x, *x)",
    "poly(x, **x)",
    # formulaic writes texts into code between double quotes, and escapes those wrongly
    'C(rock, levels=[\'"), open("CANARY", "w"), ("\'])',
    "C(rock, levels=['\\\\'])",
    "C(rock, Treatment('{x}'))",
    "I(__FORMULAIC_STATE__)",
    "__builtins__",
    "I('a' * 10**9)",
    "I([1] * 10**9)",
    "I(x @ y)",
    "await x",
    "yield x",
)


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_of_a_formula_is_run_that_is_not_known_to_be_harmless(
    frame, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gx.InvalidInput):
        columns(text, frame)
    assert os.listdir(tmp_path) == []


def test_a_value_that_no_observation_had_is_named(frame):
    new = frame.iloc[:3].assign(code=[1.0, 7.0, 7.0])
    with pytest.raises(
        gx.InvalidInput,
        match=r"C\(code\): 7.0 in row 2 is not one of the levels of the observations "
        r"\(2 such rows\): 1, 2, 3",
    ):
        columns("C(code)", frame, new)


def test_a_spline_does_not_go_on_unasked(frame):
    beyond = frame.iloc[:1].assign(x=2000.0)
    with pytest.raises(gx.InvalidInput, match="extend beyond upper and/or lower bounds"):
        columns("bs(x, df=4)", frame, beyond)
    assert np.isfinite(columns("bs(x, df=4, extrapolation='extend')", frame, beyond)[1]).all()


# Values that are a function of a column


def wells(**columns):
    return pd.DataFrame(
        {"x": [0.0, 1, 2, 4], "y": [0.0, 2, 1, 3], "zn": [10.0, 20, 50, 90]} | columns
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log(zn)", np.log),
        ("np.sqrt(zn)", np.sqrt),
        ("log( zn  + 1 )", lambda zn: np.log(zn + 1)),
        ("I(zn / 1000)", lambda zn: zn / 1000),
        ("log10(maximum(zn, 15))", lambda zn: np.log10(np.maximum(zn, 15))),
    ],
)
def test_values_may_be_a_function_of_a_column(text, expected):
    seen = gx.Observations.from_frame(wells(), values=text)
    np.testing.assert_array_equal(seen.values, expected(wells().zn))
    assert seen.value_name == text.replace("( zn  + 1 )", "( zn + 1 )")


def test_a_name_in_backticks_is_a_column_of_values():
    frame = wells().rename(columns={"zn": "zinc ppm"})
    seen = gx.Observations.from_frame(frame, values="log(`zinc ppm`)")
    np.testing.assert_array_equal(seen.values, np.log(wells().zn))
    assert seen.value_name == "log(`zinc ppm`)"


def test_a_column_of_this_name_comes_before_the_function():
    frame = wells(**{"log(zn)": [1.0, 2, 3, 5]})
    assert gx.Observations.from_frame(frame, values="log(zn)").values.tolist() == [1, 2, 3, 5]


def test_markers_of_missing_values_are_those_of_the_column():
    frame = wells(zn=[10.0, -9999, 50, 90])
    seen = gx.Observations.from_frame(frame, values="log(zn)", missing=-9999, drop_missing=True)
    np.testing.assert_array_equal(seen.values, np.log([10.0, 50, 90]))
    with pytest.warns(gx.GeomxpWarning, match="zn"):
        gx.Observations.from_frame(wells(zn=[10.0, 9, -9999, 90] * 1), values="cbrt(zn)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log(zn - 10)", r"log\(zn - 10\) is not finite for zn = 10 in row 1 \(1 such rows\)"),
        ("sqrt(zn - 30)", r"sqrt\(zn - 30\) is not finite for zn = 10 in row 1 \(2 such rows\)"),
        ("log(x * zn)", r"must be a function of one column"),
        ("log(zn) + 1", r"must be a function of one column.*I\(zinc / 1000\)"),
        ("log(zn):x", "must be a function of one column"),
        ("log(zn):zn", "must be a function of one column"),
        ("scale(zn)", "must be a function of one column"),
        ("log(gold)", "no column 'gold'. The columns are: x, y, zn"),
        ("Zn (ppm)", r"no column 'Zn \(ppm\)'. The columns are"),
        ("lag(zn)", r"no column 'lag\(zn\)'. The columns are"),
        ("log(zn.real)", "is not allowed in a formula"),
        ("log(x)", "`values` must be a column other than the coordinates. Got 'x'"),
    ],
)
def test_other_values_are_refused(text, words):
    with pytest.raises(gx.InvalidInput, match=words) as caught:
        gx.Observations.from_frame(wells(), values=text, locations=("x", "y"))
    assert "\n" not in str(caught.value)


def test_a_missing_cell_is_named_by_its_column():
    with pytest.raises(gx.InvalidInput, match=r"Got nan in row 3, column 'zn'"):
        gx.Observations.from_frame(wells(zn=[1.0, 2, np.nan, 4]), values="log(zn)")


# Columns of text that are probably no factors


FIXED = ("variance", "range", "smoothness", "nugget")


def many(count, form="s{}", n=80):
    random = np.random.default_rng(2)
    text = [form.format(k % count) for k in range(n)]
    places = {"x": random.random(n), "y": random.random(n)}
    return pd.DataFrame(places | {"at": text, "zn": random.random(n), "code": np.arange(n) % count})


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (many(21), r"'at' is text and would be a factor of 21 levels.*write C\(at\)"),
        (many(9, "2020-03-1{}"), r"'2020-03-10'.*factor of 9 levels.*days, or years.*C\(at\)"),
        (many(3, "0{}/12/1998"), r"text that looks like dates \('00/12/1998'\)"),
    ],
)
def test_text_that_is_probably_no_factor_is_questioned(frame, words):
    seen = gx.Observations.from_frame(frame, values="zn", formula="x + at")
    with pytest.raises(gx.InvalidInput, match=words) as caught:
        gx.log_likelihood(seen, gx.Matern(1, 0.1, 0.5), trend="x + at")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "p"), [("C(at)", 30), ("C(code)", 30), ("code", 2)])
def test_a_factor_that_is_stated_may_have_many_levels(text, p):
    seen = gx.Observations.from_frame(many(30), values="zn", formula=text)
    assert len(gx.fit(seen, gx.Matern(1, 0.1, 0.5, 0.1), fixed=FIXED, trend=text).coefficients) == p


def test_twenty_levels_are_not_questioned():
    seen = gx.Observations.from_frame(many(20), values="zn", formula="at")
    fit = gx.fit(seen, gx.Matern(1, 0.1, 0.5, 0.1), fixed=FIXED, trend="at")
    assert len(fit.coefficients) == 20


@pytest.mark.parametrize("text", ["C(at)", "C(code)"])
def test_a_level_for_each_observation_is_not_estimable(text):
    seen = gx.Observations.from_frame(many(80), values="zn", formula=text)
    with pytest.raises(gx.InvalidInput, match="has 80 levels for 80 observations"):
        gx.fit(seen, trend=text)


def test_error_variances_may_be_a_function_of_columns():
    frame = pd.DataFrame(
        {"x": [0.0, 1, 2], "y": [1.0, 5, 2], "zinc": [2.0, 4, 8], "zinc se": [0.2, 0.1, 0.4]}
    )
    about = {"locations": ("x", "y"), "values": "zinc"}
    squares = gx.Observations.from_frame(frame, error_variance="I(`zinc se` ** 2)", **about)
    np.testing.assert_allclose(squares.error_variance, frame["zinc se"] ** 2, rtol=1e-15)
    relative = gx.Observations.from_frame(
        frame, error_variance="I((`zinc se` / zinc) ** 2)", **about
    )
    np.testing.assert_allclose(
        relative.error_variance, (frame["zinc se"] / frame["zinc"]) ** 2, rtol=1e-15
    )
    np.testing.assert_array_equal(relative.values, frame["zinc"])
    with pytest.raises(gx.InvalidInput, match=r"error_variance 'I.*at most 2 columns"):
        gx.Observations.from_frame(frame, error_variance="I(x + y + zinc)", **about)
    with pytest.raises(gx.InvalidInput, match=r"not finite for zinc = 2, x = 0 in row 1"):
        gx.Observations.from_frame(frame, error_variance="I(zinc / x)", **about)
