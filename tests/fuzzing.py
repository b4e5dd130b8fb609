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
        except Hang as hang:
            # hypothesis does not print the case of an exception like Ctrl-C
            raise Hang(f"{hang}: {arguments!r} {options!r}") from hang


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
    "rounding",
)
"""Fields that may hold infinity (also bounds of errors), or what was given."""


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
    errors: float = 0.0

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
            "positive": np.exp(random.standard_normal(self.n)),
            "offset": random.standard_normal(self.n) + 1e9,
            "constant": np.ones(self.n),
            "zero": np.zeros(self.n),
            "whole": random.integers(0, 3, self.n).astype(float),
        }[self.values]
        covariates = random.standard_normal((self.n, self.covariates)) if self.covariates else None
        errors = self.errors * random.random(self.n) if self.errors else None
        about = covariates, self.metric
        return gx.Observations(self.locations(), values * self.size, *about, error_variance=errors)


PLAIN = {
    "kind": st.sampled_from((*("uniform",) * 4, "line", "duplicates", "grid", "clumps")),
    "n": st.integers(5, 40),
    "d": st.integers(1, 3),
    "metric": st.sampled_from(("euclidean", "euclidean", "chordal")),
    "scale": st.just(1.0),
    "offset": st.just(0.0),
    "values": st.sampled_from(("normal", "positive", "offset", "whole")),
    "size": st.just(1.0),
    "covariates": st.integers(1, 2),
    "seed": st.integers(0, 99),
    "errors": st.sampled_from((0.0, 0.0, 0.5)),
}
ODD = {
    "kind": st.sampled_from(KINDS),
    "n": st.integers(1, 6),
    "metric": st.just("great-circle"),
    "scale": st.sampled_from(EXTREMES),
    "offset": st.sampled_from((1e6, -3e155)),
    "values": st.sampled_from(("constant", "zero")),
    "size": st.sampled_from(EXTREMES),
    "covariates": st.just(0),
    "errors": st.sampled_from((-1.0, *EXTREMES)),
}


@st.composite
def some_data(draw, odd):
    """Draw a recipe of observations, with up to so many odd properties."""
    about = {name: draw(values) for name, values in PLAIN.items()}
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=odd, unique=True)):
        about[name] = draw(ODD[name])
    return Data(**about)


data, odd_data = some_data(0), some_data(3)


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


def models_of(nuggets, variances, ranges, shapes, **about):
    """Return recipes of models of all families; `shapes` makes positive numbers in bounds."""
    about = {"nugget": nuggets, **about}
    return st.one_of(
        recipe("Matern", variances, ranges, shapes(0.1, 5.0, 0.5, 1.5, 2.5), **about),
        recipe("Matern", variances, ranges, shapes(0.1, 2.0, 0.5, 50.0, 51.0), **about),
        recipe("Gaussian", variances, ranges, **about),
        recipe("PoweredExponential", variances, ranges, shapes(0.05, 2.0, 1.0, 2.0), **about),
        recipe("Cauchy", variances, ranges, shapes(0.05, 2.0, 2.0), shapes(0.05, 5.0), **about),
        recipe("RationalQuadratic", variances, ranges, shapes(0.05, 100.0), **about),
        recipe("Spherical", variances, ranges, **about),
        recipe("Wendland", variances, ranges, shapes(0.1, 3.0), shapes(5.0, 9.0), **about),
    )


def ordinary(low, high, *also):
    """Return positive numbers of ordinary size."""
    logarithms = st.floats(math.log(low), math.log(high))
    numbers = logarithms.map(lambda x: min(max(float(f"{math.exp(x):.3g}"), low), high))
    return st.one_of(numbers, st.sampled_from(also)) if also else numbers


def positive(low=0.01, high=10.0, *also):
    """Return positive numbers, one in five of unusual size."""
    usual, unusual = ordinary(low, high, *also), st.sampled_from(EXTREMES)
    return st.integers(0, 4).flatmap(lambda k: unusual if k == 4 else usual)


ANISOTROPY = st.one_of(st.none(), st.tuples(st.floats(-180, 180), ordinary(0.1, 1.0)))
TRANSFORMS = st.sampled_from((*(None,) * 6, "tukey-gh", "log", "sqrt", "boxcox", "logit"))
MICROSCALE = st.one_of(st.none(), st.none(), ordinary(1e-3, 1.0))
models = models_of(
    *(ordinary(1e-3, 1.0), ordinary(0.1, 10.0), ordinary(0.01, 2.0), ordinary),
    microscale=MICROSCALE,
    transform=TRANSFORMS,
)
odd_models = models_of(
    st.one_of(st.just(0.0), positive()),
    positive(0.1, 10.0),
    positive(0.01, 10.0),
    positive,
    anisotropy=ANISOTROPY,
    microscale=st.one_of(MICROSCALE, positive()),
    transform=TRANSFORMS,
)

FORMATS = st.sampled_from(("fp64", "fp32", "fp32-fp16", "tf32", "bf16", "fp16", "fp8"))
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
tiles = st.one_of(st.none(), st.sampled_from((1, 2, 5, 8, 16, 40, 100, "whole")))
vecchias = recipe(
    "Vecchia",
    neighbours=st.sampled_from((1, 2, 5, 30, 100)),
    ordering=st.sampled_from(("maximin", "hilbert", "given", "random")),
)
plain_exact = st.one_of(
    st.just(Made("Exact")),
    recipe("Exact", rules, tile=st.sampled_from((2, 5))),
    recipe("Exact", rules, refine=st.sampled_from(("ir", "cg", "gmres")), fallback=st.just(True)),
)
methods = st.one_of(plain_exact, vecchias)
# a solver out of core reads each tile in each iteration: minutes for tiles of one number
odd_methods = recipe(
    "Exact",
    rules,
    tile=tiles.filter(lambda tile: tile != 1),
    refine=st.sampled_from(("ir", "cg", "gmres")),
    fallback=st.booleans(),
    memory=st.sampled_from(("1GB", "4KB", 20000)),
    trace=st.booleans(),
)
trends = st.sampled_from(("zero", "constant", "linear", "covariates", "covariate1"))
odd_trends = st.sampled_from(("x", "~ 0 + x", "poly(x, 2)", "covariate2 + log(x)", "lon"))

DATA, MODEL = (data, odd_data), (models, odd_models)
METHOD, TREND = (methods, odd_methods), (trends, odd_trends)
"""Plain and odd arguments."""


@st.composite
def arguments(draw, needed, optional):
    """Draw keyword arguments of a call: plain ones, and in half of the cases one or two others.

    An argument is a strategy, or a pair of strategies: of plain arguments and of odd ones, which
    are replaced. Other arguments are replaced by arguments of the wrong kind.
    """
    options = {**needed, **optional}
    names = [*needed, *draw(st.lists(st.sampled_from([*optional, ""]), max_size=3, unique=True))]
    pairs = {
        name: values if isinstance(values, tuple) else (values, JUNK)
        for name, values in options.items()
    }
    given = {name: draw(pairs[name][0]) for name in names if name}
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        name = draw(st.sampled_from(sorted(options)))
        given[name] = draw(st.one_of(pairs[name][1], pairs[name][1], JUNK))
    return given


def call(function, given):
    """Call a function with arguments that may be recipes."""
    return function(**{name: made(one) for name, one in given.items()})
