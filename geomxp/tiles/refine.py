"""FP64 answers from low-precision factors (paper 002).

Abdelfattah, Tomov & Dongarra (2020): scale A to a unit diagonal, H = D⁻¹AD⁻¹; shift it if it
must be, G = H + c·u·I; factor G mostly in FP16; and let the factor precondition an iteration on A
itself, whose residuals are FP64. What that repairs is the solution, and so quadratic forms and
kriging weights. It does not repair the log-determinant, which is the factor's.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput, NotPositiveDefinite, NotRefined
from ..outcome import Ending, Outcome
from ..precision.formats import FP64
from ..precision.rules import Uniform, uniform
from .cholesky import factorize
from .krylov import BASIS, METHODS, PATIENCE, Progress
from .layout import Layout
from .operators import Dense, Preconditioner, Regenerated
from .stores import InCore

if TYPE_CHECKING:
    from ..annotations import Any, ArrayLike, Callable, Document, Floats, Iterable, Rule

TOLERANCE = 1e-14
ROUNDING = 1e-18
"""A tolerance that only FP64's own rounding meets: for what a likelihood is made of."""

ITERATIONS = 200

SENTENCES = {
    "converged": (Ending.CONVERGED, ""),
    "stalled": (
        Ending.STALLED,
        "the iteration no longer comes nearer: use a finer factor, a shift, or gmres",
    ),
    "diverged": (Ending.STALLED, "the iteration goes away: use a finer factor, or gmres"),
    "limit": (Ending.EVALUATION_LIMIT, "allow more iterations, or use a finer factor"),
}


@dataclass(frozen=True)
class Refinement:
    """A refined solution, and how it came about.

    Parameters
    ----------
    solution : (n,) or (n, m) ndarray
    iterations : int
        Products with the factor's inverse.
    residual : float
        ‖b - Ax‖∞ / (n ‖A‖∞), the largest of all columns, with b scaled to max|b| = 1 and A to
        ‖A‖₂ near 1; or that of the scaled system that is iterated on, if it is larger.
    outcome : Outcome
    history : tuple of (int, float)
        Iterations, and the residual then; between GMRES's true ones its estimates.
    method : str
    formats : dict of str to int
        Tiles of the factor in each format.
    shift : float
        c·u.
    """

    solution: Floats
    iterations: int
    residual: float
    outcome: Outcome
    history: tuple[Any, ...]
    method: str
    formats: dict[str, int]
    shift: float = 0.0

    def __repr__(self) -> str:
        return f"<Refinement by {self.method}: {self.outcome.ending}, residual {self.residual:.3g}>"

    def summary(self) -> Document:
        """Return the same as a dict for JSON, without the solution."""
        return {
            "method": self.method,
            "iterations": self.iterations,
            "residual": self.residual,
            "outcome": str(self.outcome.ending),
            "refined": ["solve", "quadratic_form"],
            "not_refined": ["log_determinant"],
        }


def refined(
    multiply: Callable[..., Any],
    precondition: Callable[..., Any],
    b: Floats,
    *,
    method: str = "gmres",
    tolerance: float = TOLERANCE,
    limit: int = ITERATIONS,
    also: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> tuple[Floats, Any]:
    """Solve Ax = b with a preconditioner, to FP64's accuracy.

    Parameters
    ----------
    multiply : callable
        x to Ax in FP64, and None to ‖A‖∞.
    precondition : callable
    b : (n,) or (n, m) ndarray
    method : {"ir", "cg", "gmres"}
    tolerance : float
        On ‖b - Ax‖∞ / (n ‖A‖∞) of b scaled to max|b| = 1. What cannot be told from FP64's
        rounding, ‖b - Ax‖∞ ≤ 2^-53 ‖A‖∞ ‖x‖∞, is good as well.
    limit : int
        Of iterations.
    also : (callable, callable), optional
        Residuals and solutions of these columns as another system sees them, which shall meet the
        tolerance too: see `operators.Dense.original`.

    Returns
    -------
    solution : ndarray, as b
    progress : Progress
    """
    if method not in METHODS:
        raise InvalidInput(f"`method` must be one of: {', '.join(METHODS)}. Got {method!r}.")
    columns = b.reshape(len(b), -1)
    largest = np.abs(columns).max(axis=0)
    unit = 2.0 ** np.round(np.log2(np.where(largest > 0, largest, 1.0)))
    norm = len(b) * multiply(None)

    def ours(r, x):
        return np.abs(r).max(axis=0) / norm, 2.0**-53 * np.abs(x).max(axis=0) / len(b)

    def theirs(r, x):
        return also[0](r * unit), 2.0**-53 * also[1](x * unit) / len(b)

    views = (ours,) if also is None else (ours, theirs)

    def accept(r, x):
        return np.all([value <= np.maximum(tolerance, floor) for value, floor in (
            view(r, x) for view in views
        )], axis=0)  # fmt: skip

    progress = Progress(
        lambda r: np.max([view(r, r)[0] for view in views], axis=0),
        lambda x: np.min([np.maximum(tolerance, view(x, x)[1]) for view in views], axis=0),
        *(accept, limit, PATIENCE[method]),
    )
    x = METHODS[method](multiply, precondition, columns / unit, progress)
    return (x * unit).reshape(b.shape), progress


def solve(
    a: ArrayLike,
    b: ArrayLike,
    precision: Rule | None = None,
    *,
    method: str = "gmres",
    scaling: bool = True,
    shift: float = 0.0,
    range_scaling: float | None = None,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
    tile: int | None = None,
    fallback: bool = False,
) -> Refinement:
    """Solve Ax = b for a symmetric positive definite A, factored in coarse formats.

    Parameters
    ----------
    a : (n, n) array_like
        The lower triangle is looked at.
    b : (n,) or (n, m) array_like
    precision : callable, optional
        A rule of `geomxp.precision.rules`; FP16 if not given.
    method : {"ir", "cg", "gmres"}
    scaling : bool
        Work on D⁻¹AD⁻¹ with a unit diagonal; else on A / ‖A‖₂, up to a power of two.
    shift : float
        c ≥ 0: add c·u to the diagonal before it is factored, u the roundoff of the factor's
        coarsest format.
    range_scaling : float, optional
        θ: multiply by θ·x_max/(1 + c·u), rounded to a power of two, x_max FP16's largest number.
        Tiles are scaled one by one, so that only rules with ``scale=False`` need it.
    tolerance : float
        On `Refinement.residual`; see `refined`.
    iterations : int
    tile : int, optional
    fallback : bool
        Factor in finer formats, and in FP64 at last, where the iteration fails.

    Returns
    -------
    Refinement
        Its outcome says whether the tolerance is met.

    Raises
    ------
    NotPositiveDefinite
        If A has no factor in these formats, nor in finer ones with `fallback`.

    Examples
    --------
    >>> a = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> found = solve(a, np.array([4.0, 7.0]))
    >>> bool(np.allclose(found.solution, [1.0, 2.0], rtol=1e-13)), str(found.outcome.ending)
    (True, 'CONVERGED')
    """
    a, b = _checked(a, b)
    _check_options(method, shift, range_scaling, tolerance, iterations)
    rule = uniform("fp16") if precision is None else precision
    if not callable(rule):
        raise InvalidInput(f"`precision` must be a rule, such as uniform('fp16'). Got {rule!r}.")
    source = Dense(a, Layout.of(len(a), tile), scaling)
    found = error = None
    for attempt in _attempts(rule, fallback):
        try:
            store = _factor(source, attempt, shift, range_scaling)
        except NotPositiveDefinite as failure:
            error = failure
            continue
        d = source.scale.reshape(-1, *[1] * (b.ndim - 1))
        x, progress = refined(
            *(source.multiply, Preconditioner(store, source.multiple), b / d),
            **{"method": method, "tolerance": tolerance, "limit": iterations},
            also=source.original(b.reshape(len(b), -1)),
        )
        latest = _described(x / d, progress, method, store, source.shift)
        if found is None or latest.outcome.good or latest.residual < found.residual:
            found = latest
        if found.outcome.good:
            break
    if found is None:
        raise NotPositiveDefinite(
            f"{error}: use a finer precision, or a shift", error.order
        ) from None
    return found


def _checked(a, b):
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        raise InvalidInput("`a` and `b` must be real.")
    a, b = np.asfortranarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise InvalidInput(f"`a` must be square. Got shape {a.shape}.")
    if b.ndim not in (1, 2) or len(b) != len(a):
        raise InvalidInput(f"`b` must have {len(a)} rows. Got shape {b.shape}.")
    if not np.isfinite(b).all():
        raise InvalidInput("`b` holds a NaN or an infinity.")
    for j in range(len(a)):
        if not np.isfinite(a[j:, j].sum()) and not np.isfinite(a[j:, j]).all():
            if a[j, j] == a[j, j] and np.isfinite(a[j, j]):
                raise InvalidInput(f"`a` holds a NaN or an infinity in column {j + 1}.")
            break
    return a, b


def _check_options(method, shift, range_scaling, tolerance, iterations):
    if method not in METHODS:
        raise InvalidInput(f"`method` must be one of: {', '.join(METHODS)}. Got {method!r}.")
    if not isinstance(iterations, Integral) or iterations < 1:
        raise InvalidInput(f"`iterations` must be a whole number, 1 or more. Got {iterations!r}.")
    for name, value, least in (("shift", shift, 0.0), ("tolerance", tolerance, 0.0)):
        if not isinstance(value, Real) or not value >= least:
            raise InvalidInput(f"`{name}` must be at least 0. Got {value!r}.")
    if range_scaling is not None and not (isinstance(range_scaling, Real) and range_scaling > 0):
        raise InvalidInput(f"`range_scaling` must be positive. Got {range_scaling!r}.")


def _attempts(rule, fallback):
    yield rule
    if fallback:
        if hasattr(rule, "finer"):
            yield rule.finer()
        yield Uniform(FP64)


def _factor(source, rule, shift, range_scaling):
    """Factor μ(D⁻¹AD⁻¹ + c·u·I) as a rule says."""
    from ..execution.local import run

    tiles = source.layout.tiles
    # what gives all tiles one format does not look at them
    plain = isinstance(rule, Uniform)
    formats = rule(np.ones((tiles, tiles)) if plain else source.norms())
    unit = max(form.unit_roundoff for row in formats.rows for form in row)
    source.shift = shift * unit
    source.multiple = 1.0
    if range_scaling is not None:
        source.multiple = 2.0 ** np.floor(np.log2(range_scaling * 65504.0 / (1 + source.shift)))
    store = InCore(source, formats)
    factorize(store, store.order(), run)
    return store


def _described(x, progress, method, store, shift=0.0):
    ending, advice = SENTENCES[progress.ending]
    residual = progress.history[-1][1]
    message = f"{progress.iterations} iterations, residual {residual:.1e}"
    outcome = Outcome(ending, message + (f": {advice}" if advice else ""))
    counts, history = store.formats.counts(), tuple(progress.history)
    return Refinement(x, progress.iterations, residual, outcome, history, method, counts, shift)


class RefinedFactor:
    """A mixed factor of Σ whose solutions are refined to FP64's accuracy.

    Its log-determinant, and what it multiplies or whitens, are the mixed factor's.

    Parameters
    ----------
    factor : TileFactor
    method : {"ir", "cg", "gmres"}
    tolerance : float
    limit : int
        Of iterations.
    finer : iterable of callable
        Each returns a finer factor, which takes the place of one whose iteration fails.

    Attributes
    ----------
    last : Refinement or None
        Of the latest solution.
    """

    def __init__(
        self,
        factor: Any,
        method: str,
        tolerance: float = ROUNDING,
        limit: int = ITERATIONS,
        finer: Iterable[Callable[[], Any]] = (),
    ) -> None:
        self.method, self.tolerance, self.limit = method, tolerance, limit
        self._finer, self.last = iter(finer), None
        # so many blocks as large as the right-hand side an iteration may hold
        self.vectors = 2 * BASIS if method == "gmres" else 4
        self._adopt(factor)

    def _adopt(self, factor):
        self.factor = factor
        self.precision_map, self.promotions = factor.precision_map, factor.promotions
        self.nbytes, self.store = factor.nbytes, factor.store
        self.log_determinant, self.multiply = factor.log_determinant, factor.multiply
        self.into_inverse, self.order = factor.into_inverse, factor.order
        self.into_dense = factor.into_dense
        # of the mixed factor too: L⁻¹ alone cannot be refined
        self.whiten = factor.whiten
        self._product = Regenerated(factor.store.originals)
        self._precondition = Preconditioner(factor.store)
        self._norm = None

    def solve(self, b: Floats) -> Floats:
        """Return Σ⁻¹b for (n,) or (n, m).

        Raises
        ------
        NotRefined
            If the iteration does not come to the tolerance, with no finer factor either.
        """
        while True:
            found = self._refined(b)
            if self.last.outcome.good:
                return found
            following = next(self._finer, None)
            if following is None:
                raise NotRefined(f"refinement by {self.method}: {self.last.outcome}")
            self._adopt(following())

    def _refined(self, b):
        order, unit = self.factor.order, 4.0**self.store.originals.exponent
        if self._norm is None:
            self._norm = self._product.multiply(None)

        def multiply(x):
            return self._norm if x is None else self._product.multiply(x)

        x, progress = refined(
            *(multiply, self._precondition, np.asfortranarray(b)[order]),
            **{"method": self.method, "tolerance": self.tolerance, "limit": self.limit},
        )
        found = np.empty_like(x)
        found[order] = x / unit
        self.last = _described(found, progress, self.method, self.store)
        return found

    def times(self, x: Floats) -> Floats:
        """Return Σx for (n, m), Σ generated in FP64."""
        order, unit = self.factor.order, 4.0**self.store.originals.exponent
        found = np.empty_like(x)
        found[order] = unit * self._product.multiply(np.asfortranarray(x[order]))
        return found

    def gram(self, a: Floats) -> tuple[Floats, Floats]:
        """Return A'Σ⁻¹A, and Σ⁻¹A, for (n, m)."""
        solution = self.solve(a)
        product = a.T @ solution
        return (product + product.T) / 2, solution
