"""Which tile has which format."""

from collections import Counter
from dataclasses import dataclass

from .formats import Format


@dataclass(frozen=True)
class PrecisionMap:
    """The format of every tile of the lower triangle.

    Parameters
    ----------
    rows : tuple of tuple of Format
        ``rows[i][k]`` for k <= i.

    Examples
    --------
    >>> from geomxp.precision.rules import uniform
    >>> uniform("fp64")([[1.0, 0.5], [0.5, 1.0]]).counts()
    {'fp64': 3}
    """

    rows: tuple[tuple[Format, ...], ...]

    def __getitem__(self, tile):
        i, k = tile
        return self.rows[i][k]

    def counts(self):
        """Return the number of tiles in each format, as a dict by the format's name."""
        return dict(Counter(form.name for row in self.rows for form in row))
