"""Which tile has which format."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .formats import FINER, FP64, Format

if TYPE_CHECKING:
    from ..annotations import Floats, Layout


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
        The ε of the rule: what the norms promise of ‖A - LL'‖_F / ‖A‖_F, up to a small factor.
    error : float or None
        The promise in full: the root of Σ (u_p ‖A_ik‖_F)² over ‖A‖_F.
    divergence : float or None
        The Kullback-Leibler divergence that the rule predicts, where it does.

    Examples
    --------
    >>> from geomxp.precision.rules import uniform
    >>> uniform("fp64")([[1.0, 0.5], [0.5, 1.0]]).counts()
    {'fp64': 3}
    """

    rows: tuple[tuple[Format, ...], ...]
    scale: bool = True
    accuracy: float | None = None
    error: float | None = None
    divergence: float | None = None

    def __getitem__(self, tile: tuple[int, int]) -> Format:
        i, k = tile
        return self.rows[i][k]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        tiles = ", ".join(f"{count:,} {name}" for name, count in self.counts().items())
        return f"<PrecisionMap of {len(self):,} block rows: {tiles}>"

    def counts(self) -> dict[str, int]:
        """Return the number of tiles in each format, finest first, as a dict by its name."""
        found = Counter(form for row in self.rows for form in row)
        return {f.name: found[f] for f in sorted(found, key=lambda f: (f.unit_roundoff, -f.bytes))}

    def bytes(self, layout: Layout) -> int:
        """Return the bytes of all tiles in their formats.

        Parameters
        ----------
        layout : geomxp.tiles.layout.Layout
        """
        return sum(
            form.bytes * layout.height(i) * layout.height(k)
            for i, row in enumerate(self.rows)
            for k, form in enumerate(row)
        )

    @property
    def all_fp64(self) -> bool:
        """Whether no tile is coarser than FP64."""
        return all(form is FP64 for row in self.rows for form in row)

    def partners(self, i: int, k: int) -> set[Format]:
        """Return the formats of the tiles that tile (i, k) is multiplied with, as a set.

        A_ji - L_jk L_ik' for j > i, and A_ij - L_ik L_jk' for k < j <= i: the tiles of its column.
        """
        return {self.rows[j][k] for j in range(k + 1, len(self.rows))}

    def promote_row(self, k: int) -> tuple[PrecisionMap, int]:
        """Return the map with the tiles of block row k one level finer, and how many that are.

        Parameters
        ----------
        k : int

        Returns
        -------
        PrecisionMap, int
        """
        row = tuple(FINER[form] for form in self.rows[k])
        changed = sum(a is not b for a, b in zip(row, self.rows[k], strict=True))
        return replace(self, rows=(*self.rows[:k], row, *self.rows[k + 1 :])), changed

    def as_array(self) -> Floats:
        """Return log2 of each tile's unit roundoff, (T, T), NaN above the diagonal."""
        picture = np.full((len(self.rows), len(self.rows)), np.nan)
        for i, row in enumerate(self.rows):
            picture[i, : i + 1] = [np.log2(form.unit_roundoff) for form in row]
        return picture

    def __str__(self) -> str:
        """Draw the lower triangle: D FP64, S FP32, T TF32, B BF16, H FP16, Q FP8."""
        letters = {"fp64": "D", "fp32": "S", "tf32": "T", "bf16": "B", "fp16": "H", "fp8": "Q"}
        return "\n".join("".join(letters[form.name] for form in row) for row in self.rows)
