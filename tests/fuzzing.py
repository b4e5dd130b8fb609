"""Strategies and rules of the fuzz suite `tests/fuzz`.

A case is a value that prints as the call that makes it. A target runs a case; it fails for an
exception that is not a `GeomxpError`, a message that is not one short line, a result that holds NaN
or infinity, and more than `PATIENCE` seconds.
"""

import math
import signal
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import geomxp as gx

PATIENCE = 60
"""Seconds after which a case counts as hanging."""

LONGEST = 1000
"""Characters of the longest message."""

CASES = 240
"""Cases of all targets together in an ordinary run of the tests."""

wanted = None
"""Cases of all targets together that `--fuzz` asks for; None without it."""


def target(share, **cases):
    """Make a test of a target, which runs its share of all cases.

    Without --fuzz each run draws the same cases.
    """
    total = wanted or CASES

    def decorate(function):
        own = settings(
            max_examples=max(1, round(share * total)),
            derandomize=wanted is None,
            database=None,
            deadline=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        return own(given(**cases)(function))

    return decorate


# Rules.


class Hang(BaseException):
    """A case took more than `PATIENCE` seconds."""


@contextmanager
def patience():
    """Raise `Hang` inside a block that takes too long."""

    def stop(number, frame):
        raise Hang(f"more than {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(call, *arguments, **options):
    """Return what a call returns; None if it raises an error of geomxp with a short message."""
    with patience():
        try:
            return call(*arguments, **options)
        except gx.GeomxpError as error:
            check_message(str(error))
            return None


def check_message(text):
    """Fail for a message that is not one short line."""
    assert text, "an empty message"
    assert "\n" not in text, f"a message of several lines: {text[:LONGEST]!r}"
    assert len(text) <= LONGEST, f"a message of {len(text)} characters: {text[:300]!r}"


OPEN = (
    "history",
    "bounds",
    "limits",
    "observations",
    "source",
    "method",
    "table",
    "precision_map",
    "formats",
)
"""Fields that may hold infinity, or what was given."""


def check_numbers(result, path="result"):
    """Fail where a result holds NaN or infinity."""
    if isinstance(result, bool | str | bytes | type(None)) or callable(result):
        return
    if isinstance(result, float | np.floating):
        assert math.isfinite(result), f"{path} is {result}"
    elif isinstance(result, np.ndarray):
        if result.dtype.kind == "f":
            assert np.isfinite(result).all(), f"{path} holds {result[~np.isfinite(result)][0]}"
    elif isinstance(result, pd.DataFrame):
        numbers = result.select_dtypes("number").to_numpy()
        assert np.isfinite(numbers).all(), f"{path} holds a number that is not finite:\n{result}"
    elif isinstance(result, dict):
        for key, value in result.items():
            if key not in OPEN:
                check_numbers(value, f"{path}[{key!r}]")
    elif isinstance(result, list | tuple):
        for k, value in enumerate(result):
            check_numbers(value, f"{path}[{k}]")
    elif is_dataclass(result):
        for field in fields(result):
            if field.name not in OPEN:
                check_numbers(getattr(result, field.name), f"{path}.{field.name}")


# Numbers and arguments.

EXTREMES = (5e-324, 1e-310, 1e-300, 1e-155, 1e-20, 1e-8, 1e5, 1e10, 1e20, 1e155, 1e300, 1.7e308)
"""Valid numbers of unusual size."""

WRONG = (0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 10**400, "1", "", None, True, 1j, (1, 2))
"""Values that are not positive numbers."""


def positive(low=0.01, high=10.0, *also):
    """Return positive numbers, most of ordinary size."""
    ordinary = st.floats(math.log(low), math.log(high)).map(lambda x: float(f"{math.exp(x):.3g}"))
    unusual = st.sampled_from((*also, *EXTREMES))
    usual = st.one_of(ordinary, st.sampled_from(also)) if also else ordinary
    return st.integers(0, 9).flatmap(lambda k: unusual if k == 9 else usual)


class Anything:
    """An object of a class that nobody knows."""

    def __repr__(self):
        return "Anything()"


JUNK = st.one_of(
    st.sampled_from((None, True, False, 0, 1, -1, 3, 10**9, 10**400, 0.5, -2.5, 1e300, math.nan)),
    st.sampled_from((math.inf, "", "x", "\n", "é\0", "1e400", "cpu", "constant", b"x", 1j, (), [])),
    st.sampled_from(([1, 2], (0.5, "a"), {}, {"a": 1}, set(), range(3), slice(2), float, len)),
    st.builds(Anything),
    st.sampled_from(((), (0,), (1,), (3,), (2, 2), (3, 2), (0, 2), (2, 2, 2))).map(np.ones),
    st.sampled_from(("U1", "O", "M8[s]", "?", "complex128", "int8")).map(lambda t: np.zeros(3, t)),
    st.builds(np.full, st.just((4, 2)), st.sampled_from((math.nan, math.inf, 1e300, 5e-324))),
    st.builds(lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]})),
    st.text(max_size=8),
)
"""Arguments of the wrong kind."""


# Places and values.

KINDS = (
    *("uniform",) * 6,
    "line",
    "duplicates",
    "grid",
    "clumps",
    "one place",
    "nearly equal",
    "far",
)


@dataclass(frozen=True)
class Data:
    """Recipe of observations; it prints as the call that makes it."""

    kind: str
    n: int
    d: int
    metric: str
    scale: float
    offset: float
    values: str
    size: float
    covariates: int
    seed: int

    def locations(self):
        """Return the locations, (n, d)."""
        random, n = np.random.default_rng(self.seed), self.n
        d = self.d if self.metric == "euclidean" else 2
        unit = random.random((n, d))
        if self.kind == "line":
            unit = np.outer(unit[:, 0], unit[0])
        elif self.kind == "duplicates":
            unit = unit[random.integers(0, n, n)]
        elif self.kind == "grid":
            side = math.ceil(n ** (1 / d))
            unit = np.stack(np.unravel_index(np.arange(n), (side,) * d), axis=1) / side
        elif self.kind == "clumps":
            unit = unit[random.integers(0, 3, n) % n] + 1e-6 * unit
        elif self.kind == "one place":
            unit = np.tile(unit[:1], (n, 1))
        elif self.kind == "nearly equal":
            unit = unit[:1] + 1e-15 * np.round(4 * unit)
        elif self.kind == "far":
            unit[0] = 1e6
        if self.metric == "euclidean":
            with np.errstate(all="ignore"):
                return unit * self.scale + self.offset
        places = np.clip(unit, 0, 1) * [360, 180] - [180, 90]
        return places * min(self.scale, 1.0)

    def observations(self):
        """Return the observations."""
        random = np.random.default_rng(self.seed + 1)
        values = {
            "normal": random.standard_normal(self.n),
            "offset": random.standard_normal(self.n) + 1e9,
            "constant": np.ones(self.n),
            "zero": np.zeros(self.n),
            "whole": random.integers(0, 3, self.n).astype(float),
        }[self.values]
        covariates = random.standard_normal((self.n, self.covariates)) if self.covariates else None
        return gx.Observations(self.locations(), values * self.size, covariates, self.metric)


ORDINARY = st.sampled_from((*(1.0,) * 2 * len(EXTREMES), *EXTREMES))
"""1 in two of three cases."""

data = st.builds(
    Data,
    kind=st.sampled_from(KINDS),
    n=st.one_of(st.integers(3, 40), st.integers(1, 8)),
    d=st.integers(1, 3),
    metric=st.sampled_from(("euclidean", "euclidean", "chordal", "great-circle")),
    scale=ORDINARY,
    offset=st.sampled_from((*(0.0,) * 8, 1e6, -3e155)),
    values=st.sampled_from(("normal", "normal", "offset", "constant", "zero", "whole")),
    size=ORDINARY,
    covariates=st.integers(0, 2),
    seed=st.integers(0, 99),
)


# Models and methods: recipes too, because making them may already be an error.


@dataclass(frozen=True)
class Made:
    """Recipe of an object: a callable of geomxp and its arguments."""

    name: str
    arguments: tuple = ()
    options: tuple = ()

    def make(self):
        """Return the object."""
        arguments = [made(one) for one in self.arguments]
        options = {name: made(one) for name, one in self.options}
        return getattr(gx, self.name)(*arguments, **options)


def made(recipe):
    """Return what a recipe makes; anything else is itself."""
    if isinstance(recipe, Made):
        return recipe.make()
    return recipe.observations() if isinstance(recipe, Data) else recipe


def recipe(name, *arguments, **options):
    """Return recipes whose arguments are drawn from strategies."""
    keyword = st.fixed_dictionaries({}, optional=options).map(lambda d: tuple(d.items()))
    return st.builds(Made, st.just(name), st.tuples(*arguments), keyword)


NUGGET = st.one_of(st.just(0.0), positive(1e-3, 1.0))
ANISOTROPY = st.tuples(st.floats(-180, 180), positive(0.1, 1.0, 1.0))
ABOUT = {"nugget": NUGGET, "anisotropy": st.one_of(st.none(), st.none(), st.none(), ANISOTROPY)}
VARIANCE, RANGE = positive(0.1, 10.0), positive(0.01, 2.0)
POWER = positive(0.05, 2.0, 1.0, 2.0)

models = st.one_of(
    recipe("Matern", VARIANCE, RANGE, positive(0.1, 5.0, 0.5, 1.5, 50.0, 51.0), **ABOUT),
    recipe("Matern", VARIANCE, RANGE, st.sampled_from((0.5, 1.5, 2.5)), **ABOUT),
    recipe("Gaussian", VARIANCE, RANGE, **ABOUT),
    recipe("PoweredExponential", VARIANCE, RANGE, POWER, **ABOUT),
    recipe("Cauchy", VARIANCE, RANGE, POWER, positive(0.05, 5.0), **ABOUT),
    recipe("RationalQuadratic", VARIANCE, RANGE, positive(0.05, 100.0), **ABOUT),
    recipe("Spherical", VARIANCE, RANGE, **ABOUT),
    recipe("Wendland", VARIANCE, RANGE, positive(0.1, 3.0, 0.0), positive(3.0, 9.0), **ABOUT),
)

FORMATS = st.sampled_from(("fp64", "fp32", "tf32", "bf16", "fp16", "fp8"))
ACCURACY = positive(1e-12, 1e-2)
rules = st.one_of(
    st.builds(Made, st.just("uniform"), st.tuples(FORMATS)),
    st.builds(Made, st.just("by_tile_norm"), st.tuples(ACCURACY, st.booleans())),
    st.builds(Made, st.just("for_divergence"), st.tuples(ACCURACY)),
    st.builds(Made, st.just("layered"), st.lists(FORMATS, min_size=1, max_size=3).map(tuple)),
    st.lists(st.tuples(FORMATS, st.integers(1, 4)), max_size=2).map(
        lambda bands: Made("by_band", (*bands, "fp32"))
    ),
)
tiles = st.one_of(st.none(), st.sampled_from((1, 2, 5, 8, 16, 40, 100)))
vecchias = recipe(
    "Vecchia",
    neighbours=st.sampled_from((1, 2, 5, 30, 100)),
    ordering=st.sampled_from(("maximin", "hilbert", "given", "random")),
)
methods = st.one_of(
    st.none(),
    recipe("Exact"),
    recipe("Exact", tile=tiles),
    recipe("Exact", rules, tile=tiles),
    recipe("Exact", rules, tile=tiles, refine=st.sampled_from(("ir", "cg", "gmres"))),
    recipe(
        "Exact",
        rules,
        tile=tiles,
        refine=st.sampled_from(("ir", "cg", "gmres")),
        fallback=st.booleans(),
        memory=st.sampled_from(("1GB", "4KB", 20000)),
    ),
    vecchias,
)
trends = st.sampled_from(("zero", "constant", "linear", "covariates", "x", "~ 0 + x", "poly(x, 2)"))


@st.composite
def arguments(draw, needed, optional, wrong=0.3):
    """Draw keyword arguments of a call; in some cases one or two of them are of the wrong kind."""
    given = {name: draw(values) for name, values in needed.items()}
    given |= draw(st.fixed_dictionaries({}, optional=optional))
    if draw(st.floats(0, 1)) < wrong:
        names = st.sampled_from(sorted({*needed, *optional}))
        for name in draw(st.lists(names, min_size=1, max_size=2)):
            given[name] = draw(JUNK)
    return given


def call(function, given):
    """Call a function with arguments that may be recipes."""
    return function(**{name: made(one) for name, one in given.items()})
