"""Which maps a report has, and the numbers that its page shows under the pointer."""

import base64
import io
from dataclasses import dataclass
from math import cos, floor, log10, radians

import numpy as np

from ..plots import plain

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


# Maps of a report: SVG that shows all without a script, and where one zooms with one.
#
# Dots keep their size on the screen however far one zooms (`vector-effect`), so they are strokes
# that have no length. All maps of a report have one frame, and move together.


ACROSS, HIGHEST = 330.0, 1.15
"""Widest map, and its height at most in these widths; in units of the picture."""

ABOVE, BELOW, BESIDE = 3.0, 38.0, 14.0
"""Room around the map: for numbers and the name of the first coordinate."""

BAR = 44.0
"""Room for the colours below the map."""

MARGIN = 0.035
"""Of the region, around the outermost places."""

SLIM = 12.0
"""Regions so many times longer than wide are stretched, or nothing would be seen of them."""

MOST = 5000
"""Places that are drawn, and whose numbers the page holds; of more, a random sample."""

COLOURS = 48
"""Steps of a scale of colours."""

FINER = 4
"""Dots of an image to a cell's side."""

LETTER = 7.0
"""Width of a digit, for the room that numbers need."""


@dataclass(frozen=True)
class Frame:
    """A box of the plane and where it lies in a picture.

    Parameters
    ----------
    left, right, bottom, top : float
        Of the box, in the units of the coordinates.
    width, height : float
        In units of the picture.
    names : (str, str)
        Of the coordinates, with units.
    stretched : bool
        Whether a length means different things along the two.
    """

    left: float
    right: float
    bottom: float
    top: float
    width: float
    height: float
    names: tuple[str, str]
    stretched: bool

    @classmethod
    def of(cls, seen):
        """Return the frame of all places of observations in two dimensions or three."""
        places = seen.locations[:, :2]
        low, high = places.min(axis=0), places.max(axis=0)
        size = high - low
        # places on a line lie in the middle of a band
        size = np.where(size > 0, size, max(float(size.max()), 1.0) / SLIM)
        low, high = (low + high - size) / 2 - MARGIN * size, (low + high + size) / 2 + MARGIN * size
        ratio = 1.0
        if seen.metric != "euclidean":
            ratio = 1.0 / max(cos(radians(float(places[:, 1].mean()))), 0.1)
        shape = size[1] * ratio / size[0]
        slim = not 1 / SLIM <= shape <= SLIM
        shape = 1.0 if slim else shape
        width = ACROSS if shape <= HIGHEST else ACROSS * HIGHEST / shape
        unit = seen.unit if seen.metric == "euclidean" else "degrees"
        names = tuple(f"{plain_name(name)} ({unit})" for name in seen.location_names[:2])
        return cls(*(float(v) for v in (low[0], high[0], low[1], high[1])), width, width * shape,
                   names, slim)  # fmt: skip

    def x(self, values):
        """Return positions across the picture of first coordinates."""
        return (np.asarray(values) - self.left) / (self.right - self.left) * self.width

    def y(self, values):
        """Return positions down the picture of second coordinates."""
        return (self.top - np.asarray(values)) / (self.top - self.bottom) * self.height

    def numbers(self):
        """Return what the page's script has to know."""
        return {
            "box": [self.left, self.right, self.bottom, self.top],
            "size": [round(self.width, 2), round(self.height, 2)],
            "letter": LETTER,
        }


@dataclass(frozen=True)
class Scale:
    """Colours of numbers.

    Parameters
    ----------
    name : str
        What the numbers are, with their unit.
    low, high : float
        Numbers beyond have the last colours.
    colours : str
        Of matplotlib's maps.
    beyond : bool
        Whether some are.
    """

    name: str
    low: float
    high: float
    colours: str
    beyond: bool = False

    def __call__(self, numbers):
        """Return which of the steps of colour each number has, of int."""
        room = (self.high - self.low) or 1.0
        steps = np.floor((np.asarray(numbers) - self.low) / room * COLOURS)
        return np.clip(steps, 0, COLOURS - 1).astype(int)

    def palette(self):
        """Return the colours of the steps, (steps, 4) of 0 to 1."""
        from matplotlib import colormaps

        return colormaps[self.colours]((np.arange(COLOURS) + 0.5) / COLOURS)

    def image(self, cells):
        """Return an array of numbers, the first row below, as the address of a PNG.

        Its dots are finer than the cells: on paper nothing else makes a field look continuous.
        """
        from matplotlib import colormaps
        from matplotlib.image import imsave

        room = (self.high - self.low) or 1.0
        shares = np.clip((finer(cells)[::-1] - self.low) / room, 0.0, 1.0)
        buffer = io.BytesIO()
        imsave(buffer, colormaps[self.colours](np.ma.masked_invalid(shares)), format="png")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def finer(cells, times=FINER):
    """Return an array with more rows and columns, linear from centre to centre of the cells.

    Examples
    --------
    >>> finer(np.array([[0.0, 3.0]]), 3)[0].round(6).tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0, 3.0]
    """
    found = cells
    for axis in (0, 1):
        count = cells.shape[axis]
        at = np.clip((np.arange(times * count) + 0.5) / times - 0.5, 0, count - 1)
        low = np.minimum(at.astype(int), max(count - 2, 0))
        share = (at - low).reshape((-1, 1) if axis == 0 else (1, -1))
        high = np.minimum(low + 1, count - 1)
        found = np.take(found, low, axis) * (1 - share) + np.take(found, high, axis) * share
    return found


def plain_name(name):
    """Return a column's name as one line, not too long."""
    return plain(name).replace(r"\$", "$")


def sample_of(n, most=MOST, seed=0):
    """Return the rows of places to draw: all, or a random sample of many."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def ticks(low, high, count=5):
    """Return about so many round numbers between two, and their digits after the point.

    The page's script does the same when one zooms.

    Examples
    --------
    >>> ticks(178605, 181390), ticks(-0.2, 0.6)
    (([179000.0, 180000.0, 181000.0], 0), ([-0.2, 0.0, 0.2, 0.4, 0.6], 1))
    >>> ticks(0.0, 1.1)
    ([0.0, 0.25, 0.5, 0.75, 1.0], 2)
    """
    room = (high - low) / count
    power = 10.0 ** floor(log10(room)) if room > 0 else 1.0
    share = next((k for k in (1, 2, 2.5, 5) if k * power >= 0.999 * room), 10)
    step = share * power
    first = int(np.ceil(low / step - 1e-9))
    found = [k * step for k in range(first, int(np.floor(high / step + 1e-9)) + 1)]
    digits = max(0, (share == 2.5) - floor(log10(step) + 1e-9))
    return [round(value, digits) for value in found], digits


def labels(low, high, width):
    """Return (number, text) of ticks: at most five, and so few that their texts stand apart.

    Examples
    --------
    >>> labels(0.0, 1.0, 300.0)[1], len(labels(178605.0, 181390.0, 90.0))
    ((0.2, '0.2'), 1)
    """
    for count in (5, 4, 3, 2):
        values, digits = ticks(low, high, count)
        texts = [shown(value, digits) for value in values]
        if sum(map(len, texts)) * LETTER + len(texts) * LETTER <= width:
            break
    return list(zip(values, texts, strict=True))


def shown(value, digits):
    """Return a number for reading, with so many digits after the point.

    Examples
    --------
    >>> shown(-0.5, 1), shown(179000.0, 0)
    ('−0.5', '179000')
    """
    return f"{value:.{digits}f}".replace("-", "−")


def dots(frame, x, y):
    """Return places as a path of strokes that have no length."""
    pairs = zip(frame.x(x).tolist(), frame.y(y).tolist(), strict=True)
    return "".join(f"M{across:.2f} {down:.2f}h0" for across, down in pairs)


def coloured_dots(frame, x, y, numbers, scale, order):
    """Return (colour, path) of places by the colour of their numbers.

    Parameters
    ----------
    frame : Frame
    x, y, numbers : (n,) ndarray
    scale : Scale
    order : (n,) ndarray
        What is drawn last has the largest.

    Returns
    -------
    list of (str, str)
    """
    from matplotlib.colors import to_hex

    steps, found = scale(numbers), []
    used = sorted(set(steps.tolist()), key=lambda k: np.abs(order[steps == k]).max())
    palette = scale.palette()
    for k in used:
        rows = np.flatnonzero(steps == k)
        found.append((to_hex(palette[k]), dots(frame, x[rows], y[rows])))
    return found


def diameter(n):
    """Return the size of a dot on the screen, in pixels, where n share a map.

    Examples
    --------
    >>> diameter(10), diameter(1600), diameter(10**6)
    (9.0, 5.0, 2.5)
    """
    return round(float(np.clip(200.0 / n**0.5, 2.5, 9.0)), 1)


@dataclass(frozen=True)
class Map:
    """What the page draws for a map.

    Parameters
    ----------
    key : str
        Letters; of the map's element.
    title, caption, alt : str
    frame : Frame
    scale : Scale
    layers : tuple of dict
        From the ground up: an image in a box, or dots of a colour.
    shows : {"places", "cells"}
        What the numbers under the pointer are of.
    """

    key: str
    title: str
    caption: str
    alt: str
    frame: Frame
    scale: Scale
    layers: tuple
    shows: str

    @property
    def origin(self):
        """Where the map begins in its picture: beside the numbers of the second coordinate."""
        # narrow maps stand in the middle
        return self.room + (ACROSS - self.frame.width) / 2, ABOVE

    @property
    def room(self):
        """Width of the second coordinate's numbers and name."""
        return 26.0 + LETTER * max(len(label) for _, label in self.down())

    @property
    def size(self):
        """Width and height of the whole picture."""
        # half of a number may stand beyond the last place
        beside = max(BESIDE, LETTER * max(len(label) for _, label in self.along()) / 2)
        width = self.origin[0] + (ACROSS + self.frame.width) / 2 + beside
        height = ABOVE + self.frame.height + BELOW + (BAR if self.scale else 0.0)
        return width, height

    def along(self):
        """Return (position, number) of the ticks of the first coordinate."""
        frame = self.frame
        found = labels(frame.left, frame.right, frame.width)
        return [(float(frame.x(v)), label) for v, label in found]

    def down(self):
        """Return (position, number) of the ticks of the second coordinate."""
        frame = self.frame
        values, digits = ticks(frame.bottom, frame.top)
        return [(float(frame.y(v)), shown(v, digits)) for v in values]

    def stops(self):
        """Return (share, colour) along the bar of colours."""
        from matplotlib.colors import to_hex

        palette = self.scale.palette()[:: COLOURS // 16]
        return [(k / (len(palette) - 1), to_hex(colour)) for k, colour in enumerate(palette)]

    def marks(self):
        """Return (position, number) along the bar of colours."""
        low, high, width = self.scale.low, self.scale.high, self.frame.width
        room = (high - low) or 1.0
        far = max(abs(low), abs(high))
        # powers of ten would fill the bar with zeros
        power = 10.0 ** floor(log10(far)) if far and not 1e-3 < far < 1e6 else 1.0
        found = labels(low / power, high / power, width)
        end = f"e{round(log10(power))}" if power != 1.0 else ""
        return [((v * power - low) / room * width, f"{label}{end}") for v, label in found]


def rounded(values, digits=5):
    """Return numbers with so many significant digits, for the page; None for what is no number.

    Examples
    --------
    >>> rounded([3.14159265, float("nan")])
    [3.1416, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in np.ravel(values)]


def rounded_places(values, low, high):
    """Return coordinates to a hundred-thousandth of the region."""
    digits = max(0, 5 - floor(log10((high - low) or 1.0)))
    return [round(float(v), digits) for v in values]
