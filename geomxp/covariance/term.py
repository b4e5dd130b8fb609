"""Terms of a covariance: what a pair of inputs contributes, and how parameters change it.

With locations s, times t and variables k of two inputs,

    C = A[k, k'] G(v) ρ(q Q(v)),   q = |M (s - s')|² / a[k, k']²,   v = ((t - t') / b)²,

where ρ(q) is the correlation at the scaled distance √q, one for each pair of variables, and decay G
and stretch Q are functions of time. A covariance is a sum of terms; families fill them. With time
as a coordinate, C = A ρ(q + v).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from .._typing import ArrayLike, Floats

    Numbers: TypeAlias = Floats | float

ONE, TIME_SHARE, SPACE_SHARE = "one", "time", "space"
"""Functions of time where it is a coordinate: 1, v/(q + v) and q/(q + v)."""


@dataclass(frozen=True)
class Clock:
    """The functions of v = (u/b)² in a term, and their tables.

    Parameters
    ----------
    source : object with `evaluate`, `table_key`, `expansions`, `support` and `last_octave`
        What `table.table_of` takes: an isotropic model, or an object as one.
    decay, stretch : str or None
        The names in its tables of G and Q; without Q space and time are separable.
    terms : dict of str to (str, str or None)
        For each parameter of time the names of ∂G and of ½ G ∂ log Q: the derivative of the
        correlation is ∂G ρ + (½ G ∂ log Q) r ρ'(r). For "time_range" ∂ is r_t d/dr_t, r_t = |u|/b.
    """

    source: Any
    decay: str
    stretch: str | None = None
    terms: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)

    def evaluate(self, what: str, v: ArrayLike) -> Floats:
        """Evaluate one of the functions by its formula."""
        return self.source.evaluate(what, np.sqrt(v))


@dataclass(frozen=True, eq=False)
class Change:
    """Derivatives of the parts of a term by one parameter; what does not depend on it is left out.

    Parameters
    ----------
    amplitude : float or (p, p) ndarray
        ∂A.
    log_range : float or (p, p) ndarray
        ∂ log a.
    shapes : dict of str to float or (p, p) ndarray
        For each shape parameter of ρ that depends on it, the derivative of its values.
    map : (d, d) ndarray
        (∂M)M⁻¹.
    clock : dict of str to float
        For each parameter of time in `Clock.terms` its derivative; for "time_range" it is
        -∂ log b.
    """

    amplitude: Numbers | None = None
    log_range: Numbers | None = None
    shapes: Mapping[str, Numbers] = field(default_factory=dict)
    map: Floats | None = None
    clock: Mapping[str, float] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        """Number of functions of pairs that the derivative of the term is a sum of."""
        others = sum(one is not None for one in (self.amplitude, self.log_range, self.map))
        return others + len(self.shapes) + len(self.clock)


class PairFunction(NamedTuple):
    """Σ g(v) e(q Q(v)) over `products`, the names of functions of space e and of time g.

    `turn` is the parameter of M by whose u'(∂M)M⁻¹u/|u|² the sum is multiplied, or None; u = M(s -
    s'). Without time g is None.
    """

    products: tuple[tuple[str, str | None], ...]
    turn: str | None = None


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a covariance; see the module.

    Parameters
    ----------
    correlation : Isotropic, or tuple of tuples of Isotropic
        ρ, of which the range and the variance do not count. Of several variables, p of p, one for
        each pair; all with the same `support`.
    amplitude, range : float or (p, p) ndarray
        A and a.
    map : (d, d) ndarray, optional
        M, by default the identity.
    time_range : float, optional
        b; without it the term does not depend on time.
    clock : Clock, optional
        Functions of time; without them time is a coordinate.
    changes : dict of str to Change
        For each parameter that the term depends on.

    Examples
    --------
    >>> from geomxp import Matern
    >>> (term,) = Matern(2.0, 0.5, 1.5).terms(2)
    >>> term.amplitude, term.functions("range")
    (2.0, [(-4.0, PairFunction(products=(('slope', None),), turn=None))])
    """

    correlation: Any
    amplitude: Numbers
    range: Numbers
    map: Floats | None = None
    time_range: float | None = None
    clock: Clock | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)

    @property
    def by_variable(self) -> bool:
        """Whether the term has numbers for each pair of variables."""
        return isinstance(self.correlation, tuple)

    @property
    def correlations(self) -> tuple[tuple[Any, ...], ...]:
        """ρ of each pair of variables; of one variable 1 of 1."""
        return self.correlation if self.by_variable else ((self.correlation,),)

    @property
    def support(self) -> str | None:
        """Support of ρ; see `Isotropic`."""
        return self.correlations[0][0].support

    @property
    def decay(self) -> str | None:
        """Name of the function of time that multiplies ρ."""
        if self.time_range is None:
            return None
        return ONE if self.clock is None else self.clock.decay

    def functions(self, what: str) -> list[tuple[Numbers, PairFunction]]:
        """Return the factors, as A, and the functions whose sum is a derivative of the term.

        `what` is the name of a parameter, or "correlation" for the term itself.
        """
        size, decay = self.amplitude, self.decay
        if what == "correlation":
            return [(size, PairFunction((("correlation", decay),)))]
        change, found = self.changes.get(what, Change()), []
        coordinate = self.time_range is not None and self.clock is None
        slope = ("slope", SPACE_SHARE if coordinate else decay)
        if change.amplitude is not None:
            found.append((change.amplitude, PairFunction((("correlation", decay),))))
        if change.log_range is not None:
            # ∂ρ(h/a)/∂ log a = -r ρ'(r)
            found.append((-size * change.log_range, PairFunction((slope,))))
        for shape, factor in change.shapes.items():
            found.append((size * factor, PairFunction(((shape, decay),))))
        if change.map is not None:
            found.append((size, PairFunction((slope,), what)))
        for name, factor in change.clock.items():
            products = [("slope", TIME_SHARE)]
            if self.clock is not None:
                of_decay, of_stretch = self.clock.terms[name]
                products = [("correlation", of_decay)]
                products += [] if of_stretch is None else [("slope", of_stretch)]
            found.append((size * factor, PairFunction(tuple(products))))
        return found
