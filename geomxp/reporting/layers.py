"""Which maps a report has, and the numbers that its page shows under the pointer."""

import numpy as np

from .maps import (
    Frame,
    Map,
    Scale,
    coloured_dots,
    diameter,
    dots,
    plain_name,
    rounded,
    rounded_places,
    sample_of,
)

EXTREME = 4.0
"""Standardised errors of this size and more have the last colour."""

EXAMPLES = 4
"""Places of which the neighbours are drawn."""

EXAMPLE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Of Okabe and Ito's palette."""


class Maps:
    """The maps of one fit.

    Parameters
    ----------
    fit : Fit
        Of places in two dimensions or three.
    validation : Validation or None
    raster : Raster or None
    """

    def __init__(self, fit, validation=None, raster=None):
        self.fit, self.seen = fit, fit.observations
        self.validation, self.raster = validation, raster
        self.frame = Frame.of(self.seen)
        self.rows = sample_of(len(self.seen))
        self.x, self.y = self.seen.locations[self.rows, :2].T
        self.name = plain_name(self.seen.value_name)

    def note(self):
        """Say what is not drawn; None where all is."""
        n, shown = len(self.seen), len(self.rows)
        if shown < n:
            return (
                f"The maps show {shown:,} of the {n:,} places, drawn at random (seed 0); "
                "everything else in this report uses all of them."
            )
        return None

    def all(self):
        """Return the maps that can be drawn, in the order of the page."""
        found = [self.values()]
        if self.raster is not None:
            found += [self.mean(), self.standard_error()]
        if self.validation is not None:
            found.append(self.errors())
        return found

    def values(self):
        """Return the map of the observations."""
        z, seen = self.seen.values, self.seen
        layers = self._dots(z[self.rows], self._values_scale(), z[self.rows])
        return Map(
            "values",
            "Observations" + ", first two coordinates" * (seen.dimensions == 3),
            f"{self.name} where it was observed.",
            f"Map of {self.name} at {len(seen):,} places: {_in_words(z)}. {self._ends(z)}",
            self.frame,
            self._values_scale(),
            layers,
            "places",
        )

    def mean(self):
        """Return the map of predictions."""
        cells = self.raster.mean
        scale = self._values_scale(cells)
        return Map(
            "mean",
            "Prediction",
            "Kriging mean of the field, without the nugget’s noise, in the colours of the "
            "observations, which are the dots; far from them it extrapolates.",
            f"Map of the predicted field of {self.name}, {cells.shape[1]} by {cells.shape[0]} "
            f"cells: {_in_words(cells)}.",
            self.frame,
            scale,
            (self._image(scale, cells), self._ground()),
            "cells",
        )

    def standard_error(self):
        """Return the map of the predictions' standard error."""
        cells = self.raster.standard_error
        scale = Scale(
            f"standard error of {self.name}",
            float(np.nanmin(cells)),
            float(np.nanmax(cells)),
            "cividis",
        )
        return Map(
            "error",
            "Standard error of the prediction",
            "With the trend’s uncertainty, and as if variance, range, smoothness and nugget were "
            "known.",
            f"Map of the prediction’s standard error: {_in_words(cells)}; least near observations.",
            self.frame,
            scale,
            (self._image(scale, cells), self._ground()),
            "cells",
        )

    def errors(self):
        """Return the map of standardised errors, each observation predicted from the others."""
        z = self.validation.standardised_errors
        end = min(float(np.abs(z).max()), EXTREME)
        scale = Scale("standardised error", -end, end, "PuOr", bool(np.abs(z).max() > end))
        outside = int((np.abs(z) > 1.96).sum())
        return Map(
            "misses",
            "What the model misses",
            "Each observation less its prediction from all others, over that prediction’s standard "
            "deviation: purple where more was observed than predicted, brown where less. "
            "Neighbours of one colour are a pattern that the model does not have.",
            f"Map of standardised leave-one-out errors at {len(z):,} places: {_in_words(z)}; "
            f"{outside:,} are beyond ±1.96.",
            self.frame,
            scale,
            self._dots(z[self.rows], scale, np.abs(z[self.rows])),
            "places",
        )

    def neighbours(self, graph):
        """Return the map of some places and those that Vecchia's approximation conditions on.

        Parameters
        ----------
        graph : geomxp.vecchia.graph.Graph
        """
        n, order = len(self.seen), graph.tree.order
        # a place that comes early has far neighbours, the last ones have near ones
        ranks = np.unique(np.geomspace(n / 64, n - 1, EXAMPLES).astype(int))
        lines = []
        for rank, colour in zip(ranks, EXAMPLE_COLOURS, strict=False):
            one = graph.sequence[rank]
            near = graph.neighbours[one]
            lines.append(self._star(order[one], order[near[near >= 0]], colour))
        count = graph.neighbours.shape[1]
        return Map(
            "neighbours",
            "Neighbours",
            f"{len(lines)} places, from early to late in the order, and the up to {count} before "
            "them that each is conditioned on. Early ones reach far, and carry what is alike over "
            "long distances; late ones are near.",
            f"Map of {n:,} places, with lines from {len(lines)} of them to their neighbours.",
            self.frame,
            None,
            (self._ground(), *lines),
            "places",
        )

    def numbers(self):
        """Return what the page's script needs, for JSON."""
        frame = self.frame
        found = {
            "frame": frame.numbers(),
            "axes": [plain_name(name) for name in self.seen.location_names[:2]],
            "places": {
                "x": rounded_places(self.x, frame.left, frame.right),
                "y": rounded_places(self.y, frame.bottom, frame.top),
                "rows": (self.rows + 1).tolist(),
                "columns": self._columns(),
            },
        }
        if self.raster is not None:
            raster = self.raster
            found["cells"] = {
                "box": list(raster.extent),
                "shape": list(raster.mean.shape),
                "columns": [
                    [f"{self.name}, predicted", rounded(raster.mean, 4)],
                    ["standard error", rounded(raster.standard_error, 3)],
                ],
            }
        return found

    def _columns(self):
        """Return (name, numbers) of what is known at the places."""
        rows, seen = self.rows, self.seen
        found = [[self.name, rounded(seen.values[rows])]]
        if seen.dimensions == 3:
            name = plain_name(seen.location_names[2])
            found.insert(0, [name, rounded(seen.locations[rows, 2], 7)])
        if self.validation is not None:
            left_out = self.validation
            found += [
                ["predicted from the others", rounded(left_out.mean[rows], 4)],
                ["standard deviation of that", rounded(np.sqrt(left_out.variance[rows]), 3)],
                ["standardised error", rounded(left_out.standardised_errors[rows], 3)],
            ]
        return found

    def _values_scale(self, cells=None):
        """Return one scale for what was observed and what is predicted."""
        low, high = float(self.seen.values.min()), float(self.seen.values.max())
        beyond = False
        if cells is not None:
            beyond = bool(np.nanmin(cells) < low or np.nanmax(cells) > high)
        return Scale(self.name, low, high, "viridis", beyond)

    def _dots(self, numbers, scale, order):
        size = diameter(len(self.rows))
        paths = coloured_dots(self.frame, self.x, self.y, numbers, scale, order)
        return ({"kind": "dots", "size": size, "paths": paths},)

    def _ground(self):
        """Return all places as small dots of one colour."""
        size = round(max(1.2, 0.35 * diameter(len(self.rows))), 1)
        return {"kind": "ground", "size": size, "path": dots(self.frame, self.x, self.y)}

    def _image(self, scale, cells):
        left, right, bottom, top = self.raster.extent
        x, y = self.frame.x([left, right]), self.frame.y([top, bottom])
        box = [round(float(v), 2) for v in (x[0], y[0], x[1] - x[0], y[1] - y[0])]
        return {"kind": "image", "address": scale.image(cells), "box": box}

    def _star(self, row, others, colour):
        """Return lines from a place to others."""
        x, y = self.seen.locations[:, 0], self.seen.locations[:, 1]
        at = f"{self.frame.x(x[row]):.2f} {self.frame.y(y[row]):.2f}"
        ends = zip(self.frame.x(x[others]), self.frame.y(y[others]), strict=True)
        lines = "".join(f"M{at}L{across:.2f} {down:.2f}" for across, down in ends)
        return {"kind": "star", "colour": colour, "lines": lines, "centre": f"M{at}h0",
                "ends": dots(self.frame, x[others], y[others])}  # fmt: skip

    def _ends(self, z):
        """Say where the largest and the smallest number are."""
        names = self.seen.location_names

        def where(row):
            place = zip(names, self.seen.locations[row], strict=True)
            return ", ".join(f"{plain_name(name)} {value:.6g}" for name, value in place)

        return f"The largest at {where(np.argmax(z))}, the smallest at {where(np.argmin(z))}."


def _in_words(numbers):
    """Return the span and the middle of numbers.

    Examples
    --------
    >>> _in_words(np.array([3.0, 1.0, 2.0]))
    'from 1 to 3, median 2'
    """
    low, middle, high = np.nanquantile(numbers, (0.0, 0.5, 1.0))
    return f"from {low:.4g} to {high:.4g}, median {middle:.4g}"
