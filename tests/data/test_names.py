"""Names of columns in lists, formulas and commands."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data import names

NASTY = (
    *("pH w", "Cd, mg/kg", "o'clock", 'the "best" one', '"all" of it', "a(b", "b)", "rate (a,b)"),
    *("$HOME", "a;b", "x*", "log(zinc)", "-9", "été", "a|b", "#1", "\\n", "class", "a,", '",'),
)


def test_a_list_of_names_comes_back_from_the_command_line():
    random = np.random.default_rng(3)
    for size in (1, 2, 3, 5):
        for _ in range(60):
            some = tuple(random.choice(NASTY, size, replace=False).tolist())
            line = names.option("covariates", *some)
            flag, value = shlex.split(line)
            assert (flag, names.split(value)) == ("--covariates", some)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", ("a", "b")),
        (" a , b ,", ("a", "b")),
        ('zinc,"Cd, mg"', ("zinc", "Cd, mg")),
        ("log(a),maximum(b, 1)", ("log(a)", "maximum(b, 1)")),
        ("a(b,c", ("a(b", "c")),
        ('"a ""b""",c', ('a "b"', "c")),
        ("", ()),
        (",,", ()),
        ("50,20", ("50", "20")),
    ],
)
def test_lists_are_split_at_their_commas(text, expected):
    assert names.split(text) == expected


@pytest.mark.parametrize("name", [name for name in NASTY if name != '",'])
def test_a_formula_of_a_quoted_name_has_its_column(name):
    table = pd.DataFrame(
        np.random.default_rng(1).normal(size=(9, 4)), columns=["x", "y", "z", name]
    )
    formula = names.in_formula(name)
    seen = gx.Observations.from_frame(table, values="z", formula=formula)
    assert seen.covariate_names == (name,)
    np.testing.assert_array_equal(seen.covariates[:, 0], table[name])


@pytest.mark.parametrize("name", NASTY)
def test_text_comes_back_from_python(name):
    assert eval(names.in_python(name)) == name


def test_the_advice_for_covariates_of_text_is_a_formula_that_works():
    random = np.random.default_rng(4)
    table = pd.DataFrame(random.uniform(0, 9, (30, 3)), columns=["x", "y", "z"])
    table = table.assign(**{"pH w": random.normal(size=30), "soil, type": ["clay", "sand"] * 15})
    seen = gx.Observations.from_frame(table, values="z", covariates=("pH w", "soil, type"))
    with pytest.raises(gx.InvalidInput, match="write a formula") as caught:
        gx.log_likelihood(seen, gx.Matern(1, 1, 0.5), trend="covariates")
    python, command = re.search(
        r"formula, trend=(.*) \((--formula .*)\)\.$", str(caught.value)
    ).groups()
    trend, (flag, formula) = eval(python), shlex.split(command)
    assert (flag, formula) == ("--formula", trend)
    assert np.isfinite(gx.log_likelihood(seen, gx.Matern(1, 1, 0.5), trend=trend).log_likelihood)
