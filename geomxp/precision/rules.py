"""Rules that say which tile gets which format: from the norms of the tiles to a map.

Diagonal tiles are FP64, but where `uniform` names another format: then FP32 at least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from .divergence import cheapest
from .formats import FP8, FP16, FP32, FP64, Format, named
from .map import PrecisionMap

if TYPE_CHECKING:
    from ..annotations import Rule

CANDIDATES = (FP8, FP16, FP32)
"""What a tile may get below FP64, coarsest first."""


def _map(norms, choose, **about):
    """Return the map of choose(i, k) with what it promises."""
    norms = np.asarray(norms, dtype=np.float64)
    rows = tuple(tuple(choose(i, k) for k in range(i + 1)) for i in range(len(norms)))
    found = PrecisionMap(rows, **about)
    return replace(found, error=promised_error(found, norms))


def _positive(name, given, example, unit=""):
    """Return a positive number, or raise `InvalidInput`."""
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < inf:
        raise InvalidInput(
            f"`{name}` must be a positive number{unit}, such as {example}. Got {given!r}."
        )
    return number


def frobenius(norms):
    """Return ‖A‖_F from the norms of all tiles of the lower triangle."""
    lower = np.tril(np.asarray(norms, dtype=np.float64))
    return float(np.sqrt(2 * np.sum(np.tril(lower, -1) ** 2) + np.sum(np.diag(lower) ** 2)))


def promised_error(formats, norms):
    """Return √Σ(u_p ‖A_ik‖_F)² / ‖A‖_F, the error of storing each tile in its format."""
    total = sum(
        (1 if i == k else 2) * (form.unit_roundoff * norms[i][k]) ** 2
        for i, row in enumerate(formats.rows)
        for k, form in enumerate(row)
    )
    return sqrt(total) / (frobenius(norms) or 1.0)


@dataclass(frozen=True)
class Uniform:
    """See `uniform`."""

    form: Format

    accuracy = None

    def __call__(self, norms):
        """Return the map for (T, T) Frobenius norms of tiles."""
        # a diagonal tile is factored, and below FP32 nothing factors
        diagonal = self.form if self.form in (FP64, FP32) else FP32
        return _map(norms, lambda i, k: diagonal if i == k else self.form)

    def finer(self):
        """Return the rule to try when this one's factorization fails."""
        return Uniform(FP64)


def uniform(name: str | Format) -> Rule:
    """Return the rule that gives every tile the same format.

    Parameters
    ----------
    name : str or Format
        Diagonal tiles are FP32 for formats below.

    Returns
    -------
    callable
        ``rule(norms) -> PrecisionMap`` for (T, T) Frobenius norms of tiles.
    """
    return Uniform(named(name))


@dataclass(frozen=True)
class Frozen:
    """The rule that gives a map that was chosen before, whatever the norms."""

    formats: PrecisionMap

    accuracy = None

    def __call__(self, norms):
        """Return the map."""
        return self.formats


@dataclass(frozen=True)
class ByBand:
    """See `by_band`."""

    widths: tuple[tuple[Format, float], ...]

    accuracy = None

    def __call__(self, norms):
        """Return the map for (T, T) Frobenius norms of tiles."""

        def choose(i, k):
            return FP64 if i == k else next(f for f, last in self.widths if i - k <= last)

        return _map(norms, choose)

    def finer(self):
        """Return the rule to try when this one's factorization fails."""
        return Uniform(FP64)


def by_band(*bands: tuple[str, int] | str) -> Rule:
    """Return the rule that makes tiles coarser with their distance from the diagonal.

    Parameters
    ----------
    *bands : (str, int) pairs, and a last str
        A format and how many subdiagonals of tiles have it; the last format has the rest.

    Examples
    --------
    >>> print(by_band(("fp32", 1), "fp16")(np.ones((4, 4))))
    D
    SD
    HSD
    HHSD
    """
    widths, last = [], 0
    for band in bands[:-1]:
        try:
            name, width = band
        except (TypeError, ValueError):
            width = None
        if not isinstance(width, Integral) or isinstance(width, bool) or width < 1:
            raise InvalidInput(
                f"`by_band` needs (format, subdiagonals) pairs and a last format. Got {band!r}."
            )
        last += int(width)
        widths.append((named(name), last))
    if not bands:
        raise InvalidInput("`by_band` needs at least one format.")
    return ByBand((*widths, (named(bands[-1]), inf)))


@dataclass(frozen=True)
class ByTileNorm:
    """See `by_tile_norm`."""

    accuracy: float
    scale: bool = True

    def __call__(self, norms):
        """Return the map for (T, T) Frobenius norms of tiles."""
        norms = np.asarray(norms, dtype=np.float64)
        tiles, whole = len(norms), frobenius(norms)

        def choose(i, k):
            if i == k:
                return FP64
            for form in CANDIDATES:
                # T ‖A_ik‖_F / ‖A‖_F < ε / u_p
                if tiles * norms[i, k] * form.unit_roundoff < self.accuracy * whole:
                    return form
            return FP64

        return _map(norms, choose, scale=self.scale, accuracy=self.accuracy)

    def finer(self):
        """Return the rule to try when this one's factorization fails: ε/10."""
        return replace(self, accuracy=self.accuracy / 10)


def by_tile_norm(accuracy: float, scale: bool = True) -> Rule:
    """Return the rule of Higham and Mary: each tile has the coarsest format that its norm allows.

    T ‖A_ik‖_F / ‖A‖_F < ε / u_p, so that Σ (u_p ‖A_ik‖_F)² <= ε² ‖A‖_F².

    Parameters
    ----------
    accuracy : float
        ε, the backward error asked for: ‖A - LL'‖_F / ‖A‖_F up to a small factor.
    scale : bool
        Scale each tile by a power of two. Without, as published codes do, tiles small enough for
        a format fall below its range; for comparison only.

    Returns
    -------
    callable
        ``rule(norms) -> PrecisionMap``.

    Notes
    -----
    N. J. Higham and T. Mary, Mixed precision algorithms in numerical linear algebra (2022), §14;
    paper 001, section IV-C.
    """
    return ByTileNorm(_positive("accuracy", accuracy, "1e-8"), bool(scale))


@dataclass(frozen=True)
class Layered:
    """See `layered`."""

    layers: tuple[Format, ...]

    accuracy = None

    def __call__(self, norms):
        """Return the map for (T, T) Frobenius norms of tiles."""
        tiles = len(norms)
        depth = np.full((tiles, tiles), len(self.layers) - 1)

        def halve(first, last, level):
            if last - first < 2 or level >= len(self.layers):
                return
            middle = (first + last + 1) // 2
            depth[middle:last, first:middle] = level
            halve(first, middle, level + 1)
            halve(middle, last, level + 1)

        halve(0, tiles, 0)
        return _map(norms, lambda i, k: FP64 if i == k else self.layers[depth[i, k]])

    def finer(self):
        """Return the rule to try when this one's factorization fails: without its coarsest."""
        return Layered(self.layers[1:]) if len(self.layers) > 1 else Uniform(FP64)


def layered(*formats: str | Format) -> Rule:
    """Return the rule of nested halves: the largest off-diagonal block has the first format.

    Parameters
    ----------
    *formats : str or Format
        From the largest off-diagonal block inwards; the last has all the rest but the diagonal.

    Examples
    --------
    >>> print(layered("fp16", "fp32")(np.ones((4, 4))))
    D
    SD
    HHD
    HHSD
    """
    if not formats:
        raise InvalidInput("`layered` needs at least one format, such as layered('fp16', 'fp32').")
    return Layered(tuple(named(name) for name in formats))


@dataclass(frozen=True)
class ForDivergence:
    """See `for_divergence`."""

    kl: float
    safety: float = 1.0

    accuracy = None
    needs_precisions = True

    def __call__(self, norms, precisions, sizes):
        """Return the map for (T, T) norms and the (T,) precisions and sizes of block rows."""
        found = cheapest(np.asarray(norms), precisions, sizes, self.kl / self.safety)
        return replace(found, error=promised_error(found, norms))

    def finer(self):
        """Return the rule to try when this one's factorization fails."""
        return replace(self, safety=self.safety * 100)


def for_divergence(kl: float) -> Rule:
    """Return the rule that spends a Kullback-Leibler divergence on coarse formats.

    The divergence of the mixed factor from Σ is about ½ Σ_ik v_ik p_i p_k, where v_ik is the
    variance of an entry's error in tile (i, k) and p_i sums the diagonal of Σ⁻¹ over block row i.
    Each tile gets the coarsest format for which its share stays within the target. That holds
    where errors are independent: for places that are spread out. Where hundreds of places lie much
    closer together than the rest, entries of a tile are equal but for their last digits, so are
    their errors, and the divergence can be ten times the target or more: measure it with
    `kl_divergence`.

    Parameters
    ----------
    kl : float
        The target, in nats.

    Returns
    -------
    callable
        ``rule(norms, precisions, sizes) -> PrecisionMap``; see `precision.divergence`.
    """
    return ForDivergence(_positive("kl", kl, "1e-3", " of nats"))


def count_finer(first, last):
    """Return how many tiles of the second map are finer than in the first."""
    return sum(
        b.unit_roundoff < a.unit_roundoff
        for before, after in zip(first.rows, last.rows, strict=True)
        for a, b in zip(before, after, strict=True)
    )


def describe(rule):
    """Return a rule as a dict that JSON can hold, or None for a function of the caller's own.

    Examples
    --------
    >>> describe(by_tile_norm(1e-8))
    {'rule': 'by_tile_norm', 'arguments': [1e-08, True]}
    """
    match rule:
        case Uniform():
            return {"rule": "uniform", "arguments": [rule.form.name]}
        case ByTileNorm():
            return {"rule": "by_tile_norm", "arguments": [rule.accuracy, rule.scale]}
        case Layered():
            return {"rule": "layered", "arguments": [form.name for form in rule.layers]}
        case ForDivergence():
            return {"rule": "for_divergence", "arguments": [rule.kl]}
        case ByBand():
            bands, last = [], 0
            for form, width in rule.widths[:-1]:
                bands.append([form.name, width - last])
                last = width
            return {"rule": "by_band", "arguments": [*bands, rule.widths[-1][0].name]}
    return None


RULES = {
    "uniform": uniform,
    "by_band": by_band,
    "by_tile_norm": by_tile_norm,
    "layered": layered,
    "for_divergence": for_divergence,
}


def described(document):
    """Return the rule that `describe` described.

    Raises
    ------
    InvalidInput
    """
    try:
        return RULES[document["rule"]](*document["arguments"])
    except (KeyError, TypeError):
        raise InvalidInput(f"no such precision rule: {document!r}.") from None
