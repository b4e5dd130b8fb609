"""Precision maps: the number format of each tile, and the rules that choose it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, sqrt
from numbers import Integral
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..errors import GeomxpError, InvalidInput, check_flags, one_line
from .formats import FORMATS, FP32, FP64, Format, named
from .quadtree import joined
from .recursive import halve, leaf_size

__all__ = ["PrecisionMap", "by_band", "by_tile_norm", "for_divergence", "layered", "uniform"]

Rule: TypeAlias = "Callable[..., PrecisionMap]"
"""Function that chooses the formats of tiles from their norms."""

if TYPE_CHECKING:
    from .._typing import Any, Callable, Floats, Sequence


@dataclass(frozen=True)
class PrecisionMap:
    """The format of every tile of the lower triangle.

    Parameters
    ----------
    rows : tuple of tuple of Format
        ``rows[i][k]`` for k <= i.
    scale : bool
        Whether each low-precision tile is scaled by a power of two.
    accuracy : float or None
        The ε of the rule, a bound of ‖A - LL'‖_F / ‖A‖_F up to a small factor.
    error : float or None
        The bound itself: the root of Σ (u_p ‖A_ik‖_F)² over ‖A‖_F.
    divergence : float or None
        The Kullback-Leibler divergence that the rule predicts, if it does.
    tolerances : tuple of tuple of float, optional
        ``tolerances[i][k]`` for k < i: bounds of the Frobenius norm of the error of tiles U V' of
        low rank, 0 for dense ones.
    ranks : dict, optional
        Ranks of tiles (i, k) in an earlier factorization, which the next one keeps: the
        log-likelihood is then a smooth function of the parameters. A tile without a rank is dense.

    Examples
    --------
    >>> from geomxp.linalg.precision import uniform
    >>> uniform("fp64")([[1.0, 0.5], [0.5, 1.0]]).counts()
    {'fp64': 3}
    """

    rows: tuple[tuple[Format, ...], ...]
    scale: bool = True
    accuracy: float | None = None
    error: float | None = None
    divergence: float | None = None
    tolerances: tuple[tuple[float, ...], ...] | None = None
    ranks: dict[tuple[int, int], int] | None = None

    def __getitem__(self, tile: tuple[int, int]) -> Format:
        i, k = tile
        return self.rows[i][k]

    def __len__(self) -> int:
        return len(self.rows)

    def tolerance(self, i: int, k: int) -> float:
        """Return the tolerance of tile (i, k), 0 if it is dense."""
        return 0.0 if self.tolerances is None or i == k else self.tolerances[i][k]

    def is_low(self, i: int, k: int) -> bool:
        """Whether tile (i, k) is of low rank: after a factorization, whether it has a rank."""
        known = self.ranks is None or (i, k) in self.ranks
        return known and self.tolerance(i, k) > 0

    def __repr__(self) -> str:
        tiles = ", ".join(f"{count:,} {name}" for name, count in self.counts().items())
        return f"<PrecisionMap of {len(self):,} block rows: {tiles}>"

    def counts(self) -> dict[str, int]:
        """Return the number of tiles in each format, finest first, as a dict by its name.

        Those of low rank come last, as "fp32 low rank".
        """
        tiles = [(i, k) for i, row in enumerate(self.rows) for k in range(len(row))]
        counts = Counter((self.is_low(*one), self[one]) for one in tiles)
        finest_first = sorted(counts, key=lambda one: (one[0], one[1].unit_roundoff, -one[1].bytes))
        return {kind_of(form, low): counts[low, form] for low, form in finest_first}

    def bytes(self, layout: Any) -> int:
        """Return the bytes of all tiles of a `tiles.layout.Layout` in their formats."""
        return sum(
            self.tile_bytes(layout, i, k)
            for i, row in enumerate(self.rows)
            for k in range(len(row))
        )

    def tile_bytes(self, layout: Any, i: int, k: int) -> int:
        """Return the bytes of tile (i, k), estimated while its rank is not known."""
        m, n = layout.shape(i, k)
        numbers = m * n
        if self.is_low(i, k) and self.ranks is None:
            numbers = min(numbers, ASSUMED_RANK * (m + n))
        elif self.is_low(i, k):
            numbers = self.ranks[i, k] * (m + n)
        return self[i, k].bytes * numbers

    @property
    def all_fp64(self) -> bool:
        """Whether no tile is coarser than FP64, or of low rank."""
        return self.tolerances is None and set().union(*self.rows) <= {FP64}

    def partners(self, i: int, k: int) -> set[Format]:
        """Return the formats of the tiles that tile (i, k) is multiplied with, as a set.

        A_ji - L_jk L_ik' for j > i, and A_ij - L_ik L_jk' for k < j <= i: the tiles of its column.
        """
        return {self.rows[j][k] for j in range(k + 1, len(self.rows))}

    def promote_row(self, k: int) -> tuple[PrecisionMap, int]:
        """Return the map with the tiles of block row k one level finer, and how many changed.

        Low-rank tiles get a hundredth of the tolerance.
        """
        row = tuple(form.finer for form in self.rows[k])
        changed = sum(a is not b for a, b in zip(row, self.rows[k], strict=True))
        tolerances = self.tolerances
        if tolerances is not None:
            closer = tuple(each / 100 for each in tolerances[k])
            changed = len(closer)
            tolerances = (*tolerances[:k], closer, *tolerances[k + 1 :])
        rows = (*self.rows[:k], row, *self.rows[k + 1 :])
        return replace(self, rows=rows, tolerances=tolerances), changed

    def as_array(self) -> Floats:
        """Return log2 of each tile's unit roundoff, (T, T), NaN above the diagonal."""
        picture = np.full((len(self.rows), len(self.rows)), np.nan)
        for i, row in enumerate(self.rows):
            picture[i, : i + 1] = [np.log2(form.unit_roundoff) for form in row]
        return picture

    def __str__(self) -> str:
        """Draw the lower triangle by the formats' letters: D FP64, S FP32, H FP16, Q FP8, ...

        Low-rank tiles have small letters.
        """
        return "\n".join(
            "".join(
                form.letter.lower() if self.is_low(i, k) else form.letter
                for k, form in enumerate(row)
            )
            for i, row in enumerate(self.rows)
        )


ASSUMED_RANK = 32
"""Rank with which the bytes of low-rank tiles are estimated."""


def kind_of(form, low):
    """Return the name of a format, or of low-rank tiles in it."""
    return f"{form.name} low rank" if low else form.name


# Formats that keep to a Kullback-Leibler divergence.
#
# With LL' = Σ + E the divergence of N(0, LL') from N(0, Σ) is ¼‖Σ^-½ E Σ^-½‖_F² + O(E³), and for
# independent errors of variance v_ik in tile (i, k) its mean is
#
#     D ≈ ½ Σ_{i>k} v_ik p_i p_k
#
# where p_i sums the diagonal of Σ⁻¹ over block row i: the conditional precisions of its locations
# given all others. An error weighs more between locations that are predicted well.
#
# This counts the error of each stored tile. A product with a coarse tile rounds its partner too,
# and is summed in FP32: errors of tiles (i, k) that L_ij or L_kj cause, weighed by p_i p_k. They
# stay below the shares of these where precisions are alike, and exceed them by far where block row
# i or k has locations of a tight clump. Tiles of these rows and columns are FP64; then so are their
# products.


def candidates():
    """Return the formats that rules choose from, coarsest first: those with a cost."""
    forms = [form for form in FORMATS.values() if form.cost is not None]
    return sorted(forms, key=lambda form: -form.unit_roundoff)


def shares(norms, precisions, sizes, form):
    """Return each tile's share of the divergence in a format, (T, T), below the diagonal.

    From the Frobenius norms of the tiles, (T, T), the p_i, (T,), and the rows of each block row.
    """
    deviation = form.rounding * form.unit_roundoff * norms
    if form.coarse:
        # it was summed in FP32 before it was rounded
        deviation = np.hypot(deviation, FP32.rounding * FP32.unit_roundoff * norms)
    return 0.5 * np.tril(deviation**2 * np.outer(precisions / sizes, precisions / sizes), -1)


def predicted(formats, norms, precisions, sizes, clumped=None):
    """Return the divergence that a map of tiles should cause, all in formats with a cost."""
    share = {form: shares(norms, precisions, sizes, form) for form in candidates()}
    below = ((i, k, form) for i, row in enumerate(formats.rows) for k, form in enumerate(row[:i]))
    return float(sum(share[form][i, k] for i, k, form in below))


def cheapest(norms, precisions, sizes, target, clumped=None):
    """Return the cheapest map whose predicted divergence is at most the target, in nats.

    Minimises Σ cost + weight · Σ share over the formats of the tiles, for the smallest weight that
    meets the target. Diagonal tiles and those of clumped block rows are FP64.
    """
    forms = candidates()
    share = np.stack([shares(norms, precisions, sizes, form) for form in forms])
    cost = np.array([form.cost for form in forms])[:, None, None]
    if clumped is not None and clumped.any():
        barred = clumped[:, None] | clumped
        cost = np.where(barred & (np.array(forms) != FP64)[:, None, None], inf, cost)

    def choose(weight):
        choice = np.argmin(cost + share * weight, axis=0)
        taken = np.take_along_axis(share, choice[None], axis=0)[0]
        return choice, float(taken.sum())

    low, high = 1e-30, 1e30 / max(target, 1e-30)
    choice, predicted = choose(high)
    for _ in range(200):
        middle = np.sqrt(low * high)
        tried, divergence = choose(middle)
        if divergence <= target:
            high, choice, predicted = middle, tried, divergence
        else:
            low = middle
    return _map(norms, lambda i, k: forms[choice[i, k]], divergence=predicted)


LOW_RANK_ERROR_WEIGHT = 0.4
"""Part of ½ Σ v_ik p_i p_k that the errors of low-rank tiles cause: 0.03 to 0.21 in
`experiments/low_rank`, and 0.37 in the worst case that was tried.
They are not independent, and lie in directions in which Σ⁻¹ is smaller than its diagonal."""


FP32_SAFETY_FACTOR = 30
"""A tile is FP32 only if its tolerance exceeds its rounding error in FP32 by this factor."""


def of_low_rank(norms, precisions, sizes, target):
    """Return the map of low-rank tiles whose predicted divergence is the target, in nats.

    Ranks grow with the logarithm of the tolerance: they are smallest for equal shares of all tiles.
    U and V are FP32 where its rounding is far below the tolerance.
    """
    count = len(sizes)
    share = target / max(1, count * (count - 1) // 2)
    # v_ik = tolerance²/(m n), and the share is LOW_RANK_ERROR_WEIGHT ½ v_ik p_i p_k
    unit = np.sqrt(
        2
        * share
        / LOW_RANK_ERROR_WEIGHT
        * np.outer(sizes, sizes)
        / np.outer(precisions, precisions)
    )
    # entries of A are below 2
    unit = np.minimum(unit, 2 * np.sqrt(np.outer(sizes, sizes)))
    tolerances = tuple(tuple(map(float, unit[i, :i])) for i in range(count))
    rounding = FP32_SAFETY_FACTOR * FP32.unit_roundoff * norms
    rows = tuple(
        (*(FP32 if unit[i, k] > rounding[i, k] else FP64 for k in range(i)), FP64)
        for i in range(count)
    )
    return PrecisionMap(rows, divergence=target, tolerances=tolerances)


# Rules: from the norms of the tiles to a map. Diagonal tiles are FP64, or with `uniform` at least
# FP32.


def _map(norms, choose, diagonal=FP64, **properties):
    """Return the map of choose(i, k) below the diagonal, with its error bound."""
    norms = np.asarray(norms, dtype=np.float64)
    rows = tuple((*(choose(i, k) for k in range(i)), diagonal) for i in range(len(norms)))
    formats = PrecisionMap(rows, **properties)
    return replace(formats, error=promised_error(formats, norms))


def _positive(name, value, example, unit=""):
    """Return a positive number, or raise `InvalidInput`."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 < number < inf:
        raise InvalidInput(
            f"`{name}` must be a positive number{unit}, such as {example}. Got {value!r}."
        )
    return number


def frobenius(norms):
    """Return ‖A‖_F from the norms of all tiles of the lower triangle."""
    lower = np.tril(np.asarray(norms, dtype=np.float64))
    return float(np.sqrt(2 * np.sum(np.tril(lower, -1) ** 2) + np.sum(np.diag(lower) ** 2)))


def promised_error(formats, norms):
    """Return √Σ(u_p ‖A_ik‖_F)² / ‖A‖_F, the error of rounding each tile to its format."""
    total = sum(
        (1 if i == k else 2) * (form.unit_roundoff * norms[i][k]) ** 2
        for i, row in enumerate(formats.rows)
        for k, form in enumerate(row)
    )
    return sqrt(total) / (frobenius(norms) or 1.0)


class PrecisionRule:
    """Base class of precision rules: declares what a rule can do, with defaults."""

    accuracy = None
    """ε of `by_tile_norm`."""
    kl = None
    """Target of `for_divergence`."""
    joins = False
    """Whether `joined` gives the cells of a block one format."""
    low_rank = False
    """Whether tiles away from the diagonal are U V' of low rank."""
    needs_precisions = False
    """Whether the rule takes `precisions` and `sizes` of block rows beside the norms, and which are
    `clumped`."""

    def __call__(self, norms):
        """Return the map for (T, T) Frobenius norms of tiles."""
        raise NotImplementedError

    def joined(self, norms, sizes, least, **asked):
        """Return the map for the cells of a tree, (T, T) norms, with few formats in each block.

        `sizes` are the rows of the block rows; see `quadtree.joined`. By default the map for tiles.
        """
        return self(norms, **(asked | {"sizes": sizes} if self.needs_precisions else {}))

    def finer(self):
        """Return the rule to try when this one's factorization fails."""
        return Uniform(FP64)

    def tightened(self, factor, error=None):
        """Return a finer rule, for a divergence smaller by a factor; by default `finer()`.

        `error` is what the present formats promise.
        """
        return self.finer()


@dataclass(frozen=True)
class OwnRule(PrecisionRule):
    """A function of the caller as a rule."""

    function: Callable[..., PrecisionMap]

    def __call__(self, norms):
        try:
            return self.function(norms)
        except GeomxpError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"the precision rule failed for norms of {len(norms)} block rows: "
                f"{one_line(error)}. Return a PrecisionMap, or use a rule such as "
                "gx.by_tile_norm(1e-6)."
            ) from error


def as_rule(rule):
    """Return a rule unchanged, and a plain function as `OwnRule`."""
    return rule if isinstance(rule, PrecisionRule) else OwnRule(rule)


@dataclass(frozen=True)
class Uniform(PrecisionRule):
    """See `uniform`."""

    form: Format

    def __call__(self, norms):
        # diagonal tiles are factored, in FP32 at least
        diagonal = self.form if self.form in (FP64, FP32) else FP32
        return _map(norms, lambda i, k: self.form, diagonal)


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
class Frozen(PrecisionRule):
    """Rule that returns a given map, independent of the norms."""

    formats: PrecisionMap

    @property
    def low_rank(self):
        return self.formats.tolerances is not None

    def __call__(self, norms):
        return self.formats


@dataclass(frozen=True)
class ByBand(PrecisionRule):
    """See `by_band`."""

    widths: tuple[tuple[Format, float], ...]

    def __call__(self, norms):
        def choose(i, k):
            return next(form for form, last in self.widths if i - k <= last)

        return _map(norms, choose)


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
        except (TypeError, ValueError, OverflowError):
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
class ByTileNorm(PrecisionRule):
    """See `by_tile_norm`."""

    accuracy: float
    scale: bool = True
    formats: tuple[Format, ...] | None = None

    joins = True

    def __call__(self, norms):
        norms = np.asarray(norms, dtype=np.float64)
        tiles, whole = len(norms), frobenius(norms)
        forms = candidates() if self.formats is None else self.formats

        def choose(i, k):
            for form in forms:
                # T ‖A_ik‖_F / ‖A‖_F < ε / u_p
                if tiles * norms[i, k] * form.unit_roundoff < self.accuracy * whole:
                    return form
            return FP64

        return _map(norms, choose, scale=self.scale, accuracy=self.accuracy)

    def joined(self, norms, sizes, least, **asked):
        """See `PrecisionRule.joined`: u_p ‖A_b‖_F <= ε ‖A‖_F √(rows · columns) / n."""
        norms = np.asarray(norms, dtype=np.float64)
        forms = candidates() if self.formats is None else self.formats
        forms = forms if FP64 in forms else (*forms, FP64)
        shares = np.stack([(form.unit_roundoff * norms) ** 2 for form in forms])
        allowed = (self.accuracy * frobenius(norms) / sizes.sum()) ** 2 * np.outer(sizes, sizes)
        # FP64 is always allowed
        allowed = np.maximum(allowed, shares[-1])
        chosen = joined(forms, shares, allowed, sizes, least)
        return _map(norms, lambda i, k: chosen[i, k], scale=self.scale, accuracy=self.accuracy)

    def finer(self):
        """Return the rule to try when this one's factorization fails: ε/10."""
        return replace(self, accuracy=self.accuracy / 10)

    def tightened(self, factor, error=None):
        """See `PrecisionRule.tightened`: the divergence is proportional to the squared error.

        Formats may promise a smaller error than ε: that of FP32, for example.
        """
        present = min(self.accuracy, error or self.accuracy)
        return replace(self, accuracy=float(f"{present / sqrt(factor):.1e}"))


def by_tile_norm(
    accuracy: float, scale: bool = True, formats: Sequence[str | Format] | None = None
) -> Rule:
    """Return the rule of Higham and Mary: each tile has the coarsest format that its norm allows.

    T ‖A_ik‖_F / ‖A‖_F < ε / u_p, so that Σ (u_p ‖A_ik‖_F)² <= ε² ‖A‖_F².

    Parameters
    ----------
    accuracy : float
        ε, the requested backward error ‖A - LL'‖_F / ‖A‖_F, up to a small factor.
    scale : bool
        Scale each tile by a power of two. Without, as published codes do, tiles small enough for
        a format fall below its range; for comparison only.
    formats : sequence of str or Format, optional
        Formats to choose from, in any order; tiles that none of them suits are FP64, and a tile
        that is promoted may get another format. Default: FP8, FP16, FP32 and FP64.

    Returns
    -------
    callable
        ``rule(norms) -> PrecisionMap``.

    Examples
    --------
    >>> norms = np.array([[1.0, 0, 0], [1e-2, 1.0, 0], [1e-6, 1e-2, 1.0]])
    >>> print(by_tile_norm(1e-6, formats=("fp64", "fp32"))(norms))
    D
    SD
    SSD

    Notes
    -----
    N. J. Higham and T. Mary, Mixed precision algorithms in numerical linear algebra (2022), §14;
    paper 001, section IV-C.
    """
    check_flags(scale=scale)
    chosen = None if formats is None else _formats_of_choice(formats)
    return ByTileNorm(_positive("accuracy", accuracy, "1e-8"), bool(scale), chosen)


def _formats_of_choice(formats):
    """Return formats without repetition, coarsest first."""
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        raise InvalidInput(
            f"`formats` must be a list of formats, such as ['fp64', 'fp32']. Got {formats!r}."
        )
    chosen = dict.fromkeys(named(name) for name in formats)
    if not chosen:
        raise InvalidInput("`formats` must name at least one format, such as ['fp64', 'fp32'].")
    return tuple(sorted(chosen, key=lambda form: (-form.unit_roundoff, form.bytes)))


@dataclass(frozen=True)
class Layered(PrecisionRule):
    """See `layered`."""

    layers: tuple[Format, ...]

    def __call__(self, norms):
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
        return _map(norms, lambda i, k: self.layers[depth[i, k]])

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


def layers_of(rule):
    """Return the layers of a rule from the outermost block inwards, or None for another rule."""
    if isinstance(rule, Uniform):
        return (rule.form,)
    return rule.layers if isinstance(rule, Layered) else None


MOST_MAP_HALVINGS = 6
"""Halvings that a map shows: 64 block rows."""


def layered_map(layers, n, on="cpu", depth=None):
    """Return the map of a `SymmetricTree` of order n, halved as far as its leaves.

    The size of the leaves depends on the device `on`. `depth` is the number of halvings, those of
    the matrix if not given. Blocks in a format finer than the leaves' are stored as the leaves are.

    Examples
    --------
    >>> print(layered_map((FORMATS["fp16"], FP32), 1000, depth=2))
    S
    SS
    HHS
    HHSS
    """
    last = layers[-1]
    if depth is None:
        leaf, rows, depth = leaf_size("tree", n, layers, on), n, 0
        # more block rows than rows in each would not cover the matrix in equal parts
        while depth < MOST_MAP_HALVINGS and rows > leaf and 4 ** (depth + 1) < n:
            rows, depth = halve(rows, leaf), depth + 1
    stored = tuple(form if form.coarser_than(last.dtype) else last for form in layers)
    below = Layered(stored)(np.ones((2**depth, 2**depth))).rows
    return PrecisionMap(tuple((*row[:-1], last) for row in below))


@dataclass(frozen=True)
class ForDivergence(PrecisionRule):
    """See `for_divergence`."""

    kl: float
    safety: float = 1.0
    low_rank: bool = False

    joins = needs_precisions = True

    def __call__(self, norms, precisions, sizes, clumped=None):
        if self.low_rank:
            return of_low_rank(np.asarray(norms), precisions, sizes, self.kl / self.safety)
        return cheapest(np.asarray(norms), precisions, sizes, self.kl / self.safety, clumped)

    def joined(self, norms, sizes, least, **asked):
        """See `PrecisionRule.joined`: blocks keep to the shares of the cheapest map of cells."""
        cells, forms = self(norms, sizes=sizes, **asked), candidates()
        share = {f: shares(norms, asked["precisions"], sizes, f) for f in forms}
        below = [(i, k) for i in range(len(sizes)) for k in range(i)]
        allowed = np.zeros(np.shape(norms))
        for cell in below:
            allowed[cell] = share[cells[cell]][cell]
        # clumped block rows stay FP64
        each = np.stack([share[form] for form in forms])
        clumped = asked["clumped"]
        each[:-1, clumped[:, None] | clumped] = inf
        chosen = joined(forms, each, allowed * (1 + 1e-12), sizes, least)
        total = float(sum(share[chosen[cell]][cell] for cell in below))
        return _map(norms, lambda i, k: chosen[i, k], divergence=total)

    def finer(self):
        """Return the rule to try when this one's factorization fails."""
        return replace(self, safety=self.safety * 100)

    def tightened(self, factor, error=None):
        """See `PrecisionRule.tightened`."""
        return replace(self, kl=float(f"{self.kl / factor:.1e}"))


def for_divergence(kl: float, *, low_rank: bool = False) -> Rule:
    """Return the rule that keeps the Kullback-Leibler divergence below a target.

    The divergence of the mixed factor from Σ is about ½ Σ_ik v_ik p_i p_k, where v_ik is the
    variance of an entry's error in tile (i, k) and p_i sums the diagonal of Σ⁻¹ over block row i.
    Formats are chosen at the least cost for which the sum of these shares meets the target. The
    estimate holds where errors are independent: for locations that are spread out. Tiles that hold
    locations much closer together than the rest are FP64 (not with `low_rank`). `fit` measures the
    divergence, exactly for up to 1,000 locations and with 16 random vectors for more. Where it
    exceeds the target, `fit` warns and, without `low_rank`, chooses finer formats; see `Exact`.
    See also `kl_divergence` and `estimate_divergence`.

    Parameters
    ----------
    kl : float
        The target, in nats.
    low_rank : bool
        Store tiles away from the diagonal as U V', with the ranks that meet the target, in FP32, or
        in FP64 where the tolerance is near FP32's rounding.

    Returns
    -------
    callable
        ``rule(norms, precisions, sizes) -> PrecisionMap``; see `linalg.precision`.
    """
    check_flags(low_rank=low_rank)
    return ForDivergence(_positive("kl", kl, "1e-3", " of nats"), low_rank=bool(low_rank))


def count_finer(first, last):
    """Return how many tiles of the second map are finer than in the first."""
    return sum(
        b.unit_roundoff < a.unit_roundoff or last.tolerance(i, k) < first.tolerance(i, k)
        for i, (before, after) in enumerate(zip(first.rows, last.rows, strict=True))
        for k, (a, b) in enumerate(zip(before, after, strict=True))
    )


def describe(rule):
    """Return a rule as a dict for JSON, or None for a function of the caller.

    Examples
    --------
    >>> describe(by_tile_norm(1e-8))
    {'rule': 'by_tile_norm', 'arguments': [1e-08, True]}
    """
    match rule:
        case Uniform():
            return {"rule": "uniform", "arguments": [rule.form.name]}
        case ByTileNorm():
            chosen = [] if rule.formats is None else [[form.name for form in rule.formats]]
            return {"rule": "by_tile_norm", "arguments": [rule.accuracy, rule.scale, *chosen]}
        case Layered():
            return {"rule": "layered", "arguments": [form.name for form in rule.layers]}
        case ForDivergence():
            options = {"options": {"low_rank": True}} if rule.low_rank else {}
            return {"rule": "for_divergence", "arguments": [rule.kl]} | options
        case ByBand():
            bands, last = [], 0
            for form, width in rule.widths[:-1]:
                bands.append([form.name, width - last])
                last = width
            return {"rule": "by_band", "arguments": [*bands, rule.widths[-1][0].name]}
    return None


def in_words(rule):
    """Return the call that makes a rule, as text; "your rule" for a function of the caller.

    Examples
    --------
    >>> print(in_words(by_tile_norm(1e-5)), in_words(for_divergence(1e-3, low_rank=True)))
    gx.by_tile_norm(1e-05) gx.for_divergence(0.001, low_rank=True)
    """
    named = describe(rule)
    if named is None:
        return "your rule"
    given = [tuple(each) if isinstance(each, list) else each for each in named["arguments"]]
    if isinstance(rule, ByTileNorm) and given[1:] == [True]:
        # the default of `scale`
        given.pop()
    options = (f"{name}={value!r}" for name, value in named.get("options", {}).items())
    return f"gx.{named['rule']}({', '.join([*map(repr, given), *options])})"


PRECISION_RULES = {
    "uniform": uniform,
    "by_band": by_band,
    "by_tile_norm": by_tile_norm,
    "layered": layered,
    "for_divergence": for_divergence,
}


def described(document):
    """Return the rule of a dict that `describe` returned, or raise InvalidInput."""
    try:
        return PRECISION_RULES[document["rule"]](
            *document["arguments"], **document.get("options", {})
        )
    except (KeyError, TypeError):
        known = ", ".join(PRECISION_RULES)
        raise InvalidInput(
            f"the precision rule must be one of: {known}. Got {document!r}."
        ) from None
