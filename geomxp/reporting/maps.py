"""Maps of a report: SVG that is complete without a script, and interactive with one.

All maps have one frame and move together. Dots are strokes without length, which keep their size
on the screen at every zoom (`vector-effect`). Lengths are in units of the picture.
"""

import base64
import io
from dataclasses import dataclass
from itertools import chain
from math import floor, log10

import numpy as np

from ..data.observations import LEAST_LOCATIONS
from ..estimation.result import Fit, design_of
from ..likelihood.replicates import sufficient
from ..plots.axes import plain_name
from ..plots.diagnostics import EXTREME_STANDARDISED_ERROR, errors_in_words
from ..plots.maps import LARGEST_ELONGATION, length_ratio, opacity, predicted_name, values_shown
from ..prediction.raster import RasterSeries

MAP_WIDTH, TALLEST_MAP_SHAPE = 330.0, 1.15
"""Largest width of a map, and its largest height in widths."""

SPACE_ABOVE_MAP, SPACE_BELOW_MAP, SPACE_BESIDE_MAP, COLOUR_BAR_SPACE = 3.0, 38.0, 14.0, 44.0
"""Space above a map, below it for numbers and a name, at its right side, and for its colour bar."""

MARGIN_SHARE = 0.035
"""Space around the outermost locations, as a share of the region."""

MOST_DRAWN_LOCATIONS = 5000
"""Largest number of locations that are drawn; of more, a random sample is drawn."""

MOST_MAP_TIMES = 12
"""Largest number of times with maps."""

COLOUR_STEPS = 48
"""Steps of a scale of colours."""

PIXELS_PER_CELL_SIDE = 4
"""Pixels of an image along the side of a cell, so that a printed field looks continuous."""

DIGIT_WIDTH = 7.0
"""Width of a digit."""

EXAMPLE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Colours of the locations whose neighbours are drawn, from Okabe and Ito's palette."""


@dataclass(frozen=True)
class Frame:
    """A box of the plane, its size in a picture, and the labels of its axes."""

    left: float
    right: float
    bottom: float
    top: float
    width: float
    height: float
    names: tuple[str, str]

    @classmethod
    def of(cls, observations):
        """Return the frame of all locations in two or three dimensions."""
        locations = observations.locations[:, :2]
        low, high = locations.min(axis=0), locations.max(axis=0)
        size = high - low
        # locations on a line are placed in the middle of a band
        size = np.where(size > 0, size, max(float(size.max()), 1.0) / LARGEST_ELONGATION)
        margin = MARGIN_SHARE * size
        low, high = (low + high - size) / 2 - margin, (low + high + size) / 2 + margin
        unit = "degrees" if observations.geographic else observations.unit
        shape = size[1] * length_ratio(observations) / size[0]
        # elongated regions are stretched to a square
        shape = shape if 1 / LARGEST_ELONGATION <= shape <= LARGEST_ELONGATION else 1.0
        width = MAP_WIDTH if shape <= TALLEST_MAP_SHAPE else MAP_WIDTH * TALLEST_MAP_SHAPE / shape
        names = tuple(f"{plain_name(name)} ({unit})" for name in observations.location_names[:2])
        ends = (float(value) for value in (low[0], high[0], low[1], high[1]))
        return cls(*ends, width, width * shape, names)

    def x(self, values):
        """Return positions across the picture of first coordinates."""
        return (np.asarray(values) - self.left) / (self.right - self.left) * self.width

    def y(self, values):
        """Return positions down the picture of second coordinates."""
        return (self.top - np.asarray(values)) / (self.top - self.bottom) * self.height

    def path(self, x, y):
        """Return locations as a path of strokes without length."""
        pairs = zip(self.x(x).tolist(), self.y(y).tolist(), strict=True)
        return "".join(f"M{across:.2f} {down:.2f}h0" for across, down in pairs)


@dataclass(frozen=True)
class Scale:
    """Scale of colours: its quantity with the unit, its ends and a colour map of matplotlib."""

    name: str
    low: float
    high: float
    colours: str
    beyond: bool = False  # whether there are numbers beyond the ends, which have the last colours

    @property
    def room(self):
        """Distance between the ends; 1 if they are equal."""
        return (self.high - self.low) or 1.0

    def __call__(self, numbers):
        """Return the step of each number, an array of int."""
        steps = np.floor((np.asarray(numbers) - self.low) / self.room * COLOUR_STEPS)
        return np.clip(steps, 0, COLOUR_STEPS - 1).astype(int)

    def palette(self):
        """Return the colours of the steps as text."""
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        shares = (np.arange(COLOUR_STEPS) + 0.5) / COLOUR_STEPS
        return [*map(to_hex, colormaps[self.colours](shares))]

    def image(self, cells, opacity=None):
        """Return an array, its first row at the bottom, as the address of a PNG image."""
        from matplotlib import colormaps
        from matplotlib.image import imsave

        shares = np.clip((finer(cells)[::-1] - self.low) / self.room, 0.0, 1.0)
        buffer = io.BytesIO()
        pixels = colormaps[self.colours](np.ma.masked_invalid(shares))
        if opacity is not None:
            pixels[..., 3] *= finer(opacity)[::-1]
        imsave(buffer, pixels, format="png")
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")

    def dots(self, frame, x, y, numbers, order):
        """Return (colour, path) for each step of colour; the largest of `order` come last."""
        steps, palette = self(numbers), self.palette()
        used = sorted(set(steps.tolist()), key=lambda k: np.abs(order[steps == k]).max())
        return [(palette[k], frame.path(x[steps == k], y[steps == k])) for k in used]

    def stops(self):
        """Return (share, colour) along the colour bar."""
        palette = self.palette()[:: COLOUR_STEPS // 16]
        return [(k / (len(palette) - 1), colour) for k, colour in enumerate(palette)]

    def marks(self, width):
        """Return (position, text) of the ticks of a colour bar of a width."""
        far = max(abs(self.low), abs(self.high))
        # very large and very small numbers are written with a power of ten
        power = 10.0 ** floor(log10(far)) if far and not 1e-3 < far < 1e6 else 1.0
        end = f"e{round(log10(power))}" if power != 1.0 else ""
        ticks = labels(self.low / power, self.high / power, width)
        return [((v * power - self.low) / self.room * width, f"{t}{end}") for v, t in ticks]


@dataclass(frozen=True)
class Still:
    """What a map shows at one time; as `Map` without times has it."""

    title: str
    layers: tuple
    facts: dict
    image: dict | None = None


@dataclass(frozen=True)
class Map:
    """A map as the page's template draws it."""

    key: str
    frame: Frame
    scale: Scale | None
    # (size of dots, [(class, colour or "", path)]) from the bottom up
    layers: tuple
    shows: str  # source of the numbers under the pointer: "places" or "cells"
    facts: dict  # numbers of the caption and the alternative text
    image: dict | None = None  # address and box of a PNG image below the layers
    stills: tuple[Still, ...] = ()  # in place of the layers and the image, for several times
    name: str = ""  # of the values

    @property
    def kind(self):
        """The key without the number of a variable."""
        return self.key.partition("-")[0]

    @property
    def origin(self):
        """Position of the map in its picture, next to the labels of the second coordinate."""
        # narrow maps are centred
        return self.room + (MAP_WIDTH - self.frame.width) / 2, SPACE_ABOVE_MAP

    @property
    def room(self):
        """Width of the second coordinate's numbers and name."""
        return 26.0 + DIGIT_WIDTH * max(len(label) for _, label in self.down())

    @property
    def size(self):
        """Width and height of the whole picture."""
        # half of a number may lie beyond the right end
        digits = max(len(label) for _, label in self.along())
        beside = max(SPACE_BESIDE_MAP, DIGIT_WIDTH * digits / 2)
        width = self.origin[0] + (MAP_WIDTH + self.frame.width) / 2 + beside
        bar = COLOUR_BAR_SPACE if self.scale else 0.0
        return width, SPACE_ABOVE_MAP + self.frame.height + SPACE_BELOW_MAP + bar

    def along(self):
        """Return (position, text) of the ticks of the first coordinate."""
        frame = self.frame
        ticks = labels(frame.left, frame.right, frame.width)
        return [(float(frame.x(value)), text) for value, text in ticks]

    def down(self):
        """Return (position, text) of the ticks of the second coordinate."""
        values, digits = ticks(self.frame.bottom, self.frame.top)
        return [(float(self.frame.y(value)), shown(value, digits)) for value in values]


class Maps:
    """The maps of a fit in two or three dimensions.

    Those of several variables are `MapsOfVariables`, which has `Maps` of each one, with its own
    observations and number.
    """

    def __init__(self, fit, validation=None, raster=None, observations=None, number=None):
        self.observations, self.validation = observations or fit.observations, validation
        self.suffix = "" if number is None else f"-{number}"
        self.raster, self.times = raster, times_shown(self.observations)
        if isinstance(raster, RasterSeries):
            # a table of places may have other times than the observations
            self.times = raster.times
        self.frame = Frame.of(fit.observations)
        drawn, still = near_in_time(self.observations, self.times)
        chosen = sample_of(len(drawn))
        self.rows, self.still = drawn[chosen], still[chosen]
        self.near = len(drawn)
        self.x, self.y = self.observations.locations[self.rows, :2].T
        response = fit.model.response if isinstance(fit, Fit) else None
        self.shown = values_shown(self.observations, response)
        self.name, self.unit = plain_name(self.shown.value_name), self.shown.value_unit
        self.predicted = plain_name(predicted_name(self.observations, response))
        self.fit = fit  # or an exploration, which has no map of predictions
        self.dot = diameter(int(np.bincount(self.still).max(initial=1)))
        self.titles = []
        if self.times is not None:
            self.titles = self._titles_of(self.times)

    def notes(self):
        """Return sentences about locations that are not drawn."""
        n, shown = len(self.observations), len(self.rows)
        if n == shown:
            return []
        if self.times is None:
            return [
                f"The maps show {shown:,} of the {n:,} locations, drawn at random (seed 0); "
                "everything else in this report uses all of them."
            ]
        count, known = len(self.times), len(np.unique(self.observations.time))
        how = ", at each location the one nearest in time to each map" if self.near < n else ""
        how += ", drawn at random (seed 0)" if shown < self.near else ""
        return [
            f"The maps are of {count} time{'s' if count > 1 else ''}, the observations of "
            f"{known:,}. The maps show {shown:,} of the {n:,} observations{how}; everything else "
            "in this report uses all of them."
        ]

    def all(self):
        """Return the maps that can be drawn, in the order of the page."""
        maps = [self.values()]
        if self.raster is not None:
            mean, error = self._layers()
            low, high = maps[0].scale.low, maps[0].scale.high
            beyond = bool(np.nanmin(mean) < low or np.nanmax(mean) > high)
            # observed and predicted values have the same colours, as all times have
            name = self._with_unit(self.predicted)
            faded = np.array([opacity(raster, self.fit) for raster in self._rasters()])
            maps.append(self._cells("mean", Scale(name, low, high, "viridis", beyond), mean, faded))
            # intervals of some transformations are infinite where the data say little
            finite = error[np.isfinite(error)]
            ends = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
            name = self._with_unit(f"standard error of {self.predicted}")
            scale = Scale(name, *ends, "cividis", bool(np.isposinf(error).any()))
            maps.append(self._cells("error", scale, error))
        return maps if self.validation is None else [*maps, self.errors()]

    def values(self):
        """Return the map of the observations."""
        z, observations = self.shown.values, self.observations
        names = [plain_name(name) for name in observations.location_names]
        facts = {
            name: [*zip(names, observations.locations[row], strict=True)]
            for name, row in (("largest", np.argmax(z)), ("smallest", np.argmin(z)))
        }
        name = self._with_unit(self.name)
        scale = Scale(name, float(z.min()), float(z.max()), "viridis")
        return self._dots("values", scale, z, z, facts)

    def _with_unit(self, name):
        """Return a name with the unit of the values, if it is known."""
        return f"{name} ({plain_name(self.unit)})" if self.unit else name

    def errors(self):
        """Return the map of standardised leave-one-out errors."""
        z = self.validation.standardised_errors
        largest = float(np.abs(z).max())
        end = min(largest, EXTREME_STANDARDISED_ERROR)
        scale = Scale(errors_in_words(self.validation), -end, end, "PuOr", largest > end)
        return self._dots("misses", scale, z, np.abs(z), {"outside": int((np.abs(z) > 1.96).sum())})

    def neighbours(self, graph):
        """Return the map of some locations and those that they are conditioned on."""
        n, order = len(graph.tree.order), graph.tree.order
        if n < len(self.observations):
            # replicates are one location
            order = sufficient(self.observations, design_of(self.fit))[2][order]
        # from early in the order, with distant neighbours, to late, with near ones
        ranks = np.unique(np.geomspace(n / 64, n - 1, len(EXAMPLE_COLOURS)).astype(int))
        stars = []
        for rank, colour in zip(ranks, EXAMPLE_COLOURS, strict=False):
            one = graph.sequence[rank]
            near = graph.neighbours[one]
            stars += self._star(order[one], order[near[near >= 0]], colour)
        facts = {"stars": len(ranks), "count": graph.neighbours.shape[1]}
        layers = (self._ground("dot quiet"), *stars)
        return Map("neighbours", self.frame, None, layers, "places", facts)

    def numbers(self):
        """Return the data of the page's script, for JSON."""
        frame = self.frame
        data = {
            "frame": {
                "box": [frame.left, frame.right, frame.bottom, frame.top],
                "size": [round(frame.width, 2), round(frame.height, 2)],
                "letter": DIGIT_WIDTH,
            },
            "axes": [plain_name(name) for name in self.observations.location_names[:2]],
            "places": {
                "x": rounded_places(self.x, frame.left, frame.right),
                "y": rounded_places(self.y, frame.bottom, frame.top),
                "rows": (self.rows + 1).tolist(),
                "columns": self._columns(),
            },
        }
        if self.times is not None:
            data["times"] = self.titles
            known, row = np.unique(self.observations.time[self.rows], return_inverse=True)
            names = self._titles_of(known)
            data["places"]["times"] = [names[k] for k in row]
            data["places"]["stills"] = self.still.tolist()
        if self.raster is not None:
            # one time after the other
            mean, error = self._layers()
            columns = [[f"{self.predicted}, predicted", rounded(mean, 4)]]
            columns.append(["standard error", rounded(error, 3)])
            box, shape = list(self._rasters()[0].extent), list(mean.shape[1:])
            data["cells"] = {"box": box, "shape": shape, "columns": columns}
        return data

    @property
    def away(self):
        """Longest time between a map and an observation on it, in words; "" if it is 0."""
        longest = np.abs(self.observations.time[self.rows] - self.times[self.still]).max(initial=0)
        if not longest:
            return ""
        unit = self.observations.time_unit
        number = f"{longest:.3g}"
        return f"{number} {unit}{'s' if number != '1' else ''}" if unit else number

    def _titles_of(self, times):
        """Return times as titles: dates, or numbers with name and unit."""
        seen = self.observations
        texts = seen.time_axis.in_words(times)
        if seen.time_origin:
            return texts
        unit = f" ({plain_name(seen.time_unit)})" if seen.time_unit else ""
        return [f"{plain_name(seen.time_name)} {text}{unit}" for text in texts]

    def _rasters(self):
        """Return the raster of each time."""
        return (self.raster,) if self.times is None else self.raster.rasters

    def _layers(self):
        """Return centres and standard errors of the predictions, (times, rows, columns)."""
        layers = [(raster.centre, raster.standard_error) for raster in self._rasters()]
        return tuple(map(np.array, zip(*layers, strict=True)))

    def _columns(self):
        """Return (name, numbers) of what is known at the locations."""
        rows, observations = self.rows, self.observations
        columns = [[self.name, rounded(self.shown.values[rows])]]
        if self.shown is not observations:
            # shares of trials, say, and the numbers of successes
            columns.append(
                [plain_name(observations.value_name), rounded(observations.values[rows])]
            )
        if observations.dimensions == 3:
            name = plain_name(observations.location_names[2])
            columns.insert(0, [name, rounded(observations.locations[rows, 2], 7)])
        if self.validation is not None:
            left_out, scale = self.validation, ""
            if left_out.observations.value_name != observations.value_name:
                scale = f", {plain_name(left_out.observations.value_name)}"
            columns += [
                [f"predicted from the others{scale}", rounded(left_out.mean[rows], 4)],
                ["its standard deviation", rounded(np.sqrt(left_out.variance[rows]), 3)],
                [errors_in_words(left_out), rounded(left_out.standardised_errors[rows], 3)],
            ]
        return columns

    def _dots(self, key, scale, numbers, order, facts):
        """Return a map of coloured dots."""

        def layers(drawn):
            rows = self.rows[drawn]
            x, y = self.x[drawn], self.y[drawn]
            paths = scale.dots(self.frame, x, y, numbers[rows], order[rows])
            strokes = [
                stroke
                for colour, path in paths
                for stroke in (("dot halo", "", path), ("dot", colour, path))
            ]
            return ((self.dot, strokes),)

        facts |= {"spread": spread(numbers), "count": len(numbers)}
        key += self.suffix
        if self.times is None:
            drawn = layers(slice(None))
            return Map(key, self.frame, scale, drawn, "places", facts, name=self.name)
        stills = [
            Still(title, layers(drawn), {"spread": spread(numbers[self.rows[drawn]])})
            for title, drawn in self.drawn()
        ]
        return Map(
            key, self.frame, scale, (), "places", facts, stills=tuple(stills), name=self.name
        )

    def _cells(self, key, scale, cells, opacity=None):
        """Return a map of rasters, (times, rows, columns), with the locations as small dots."""
        left, right, bottom, top = self._rasters()[0].extent
        x, y = self.frame.x([left, right]), self.frame.y([top, bottom])
        box = [round(float(v), 2) for v in (x[0], y[0], x[1] - x[0], y[1] - y[0])]
        faded = [None] * len(cells) if opacity is None else opacity
        images = [
            {"address": scale.image(one, share), "box": box}
            for one, share in zip(cells, faded, strict=True)
        ]
        facts, key = {"spread": spread(cells), "shape": cells.shape[1:]}, key + self.suffix
        if self.times is None:
            layers = (self._ground("dot"),)
            return Map(key, self.frame, scale, layers, "cells", facts, images[0], name=self.name)
        stills = [
            Still(title, (self._ground("dot", drawn),), {"spread": spread(one)}, image)
            for (title, drawn), one, image in zip(self.drawn(), cells, images, strict=True)
        ]
        return Map(key, self.frame, scale, (), "cells", facts, stills=tuple(stills), name=self.name)

    def drawn(self):
        """Return the title of each time, and which of the drawn observations it has."""
        return [(title, np.flatnonzero(self.still == k)) for k, title in enumerate(self.titles)]

    def _ground(self, kind, drawn=slice(None)):
        """Return locations as small dots of one colour."""
        path = self.frame.path(self.x[drawn], self.y[drawn])
        return round(max(1.2, 0.35 * self.dot), 1), [(kind, "", path)]

    def _star(self, row, others, colour):
        """Return a location, lines to others, and those as layers."""
        x, y = self.observations.locations[:, :2].T
        at = f"M{self.frame.x(x[row]):.2f} {self.frame.y(y[row]):.2f}"
        ends = self.frame.path(x[others], y[others])
        lines = ends.replace("M", f"{at}L").replace("h0", "")
        return (
            (5, [("line", colour, lines), ("dot", colour, ends)]),
            (11, [("dot halo", "", f"{at}h0"), ("dot", colour, f"{at}h0")]),
        )


class MapsOfVariables:
    """The maps of a fit of several variables, one after the other."""

    away = ""
    """As of `Maps`: maps of several variables are not of several times."""

    def __init__(self, fit, validation=None, rasters=()):
        self.whole, self.each = Maps(fit), []
        seen = fit.observations
        for k, name in enumerate(seen.variable_labels):
            if (seen.variable == k).sum() < LEAST_LOCATIONS:
                continue
            own = seen.of_variable(name)
            left_out = None if validation is None else validation.of_variable(name)
            raster = rasters[k] if rasters else None
            self.each.append(Maps(fit, left_out, raster, observations=own, number=k))
        self.frame = self.whole.frame
        self.neighbours = self.whole.neighbours

    def notes(self):
        """Return sentences about locations that are not drawn."""
        return list(dict.fromkeys(note for maps in self.each for note in maps.notes()))

    def all(self):
        """Return the maps that can be drawn, in the order of the page."""
        return [one for maps in self.each for one in maps.all()]

    def numbers(self):
        """Return the data of the page's script: each location has the numbers of all variables."""
        parts = [maps.numbers() for maps in self.each]
        data = parts[0] | {"noun": "location"}
        places = [
            list(zip(part["places"]["x"], part["places"]["y"], strict=True)) for part in parts
        ]
        known = {place: k for k, place in enumerate(dict.fromkeys(chain(*places)))}
        columns = []
        for maps, part, own in zip(self.each, parts, places, strict=True):
            where = [known[place] for place in own]
            for name, values in part["places"]["columns"]:
                whole = [None] * len(known)
                for k, value in zip(where, values, strict=True):
                    whole[k] = value
                columns.append([name if name == maps.name else f"{maps.name}: {name}", whole])
        x, y = zip(*known, strict=True)
        rows = list(range(1, len(known) + 1))
        data["places"] = {"x": list(x), "y": list(y), "rows": rows, "columns": columns}
        if "cells" in data:
            cells = [
                [name if name.startswith(maps.name) else f"{maps.name}: {name}", values]
                for maps, part in zip(self.each, parts, strict=True)
                for name, values in part["cells"]["columns"]
            ]
            data["cells"] = data["cells"] | {"columns": cells}
        return data


def times_shown(observations):
    """Return the times of maps; None of observations at less than two times.

    They are all times if these are few. Otherwise they are equally spaced, but an observed time is
    taken instead if it is at most a quarter of a step away.
    """
    if observations.time is None:
        return None
    known = np.unique(observations.time)
    if len(known) <= MOST_MAP_TIMES:
        return known if len(known) > 1 else None
    even = evenly(known)
    near = known[nearest(known, even)]
    return np.where(np.abs(near - even) <= (even[1] - even[0]) / 4, near, even)


def evenly(times):
    """Return equally spaced times from the first to the last of many; few times as they are."""
    if len(times) <= MOST_MAP_TIMES:
        return times
    return np.linspace(times[0], times[-1], MOST_MAP_TIMES)


def nearest(times, numbers):
    """Return the index of the nearest of increasing times to each number.

    >>> nearest(np.array([0.0, 1.0, 5.0]), np.array([-1.0, 0.4, 2.9, 3.1, 9.0])).tolist()
    [0, 0, 1, 2, 2]
    """
    return np.searchsorted(0.5 * (times[1:] + times[:-1]), numbers)


def near_in_time(observations, times):
    """Return the rows of observations to draw, and the index of the time that each is drawn at.

    If the times of the maps are not those of the observations, each map has of each location the
    observation nearest in time, if that is nearest to this map, and not before or after all maps by
    more than half the longest step between them.
    """
    n = len(observations)
    if times is None:
        return np.arange(n), np.zeros(n, dtype=int)
    still = nearest(times, observations.time)
    away = np.abs(observations.time - times[still])
    if not away.any():
        return np.arange(n), still
    reach = 0.5 * np.diff(times).max() * (1 + 1e-9) if len(times) > 1 else np.inf
    order = np.argsort(away, kind="stable")
    order = order[away[order] <= reach]
    keys = np.column_stack((still, observations.locations))[order]
    rows = np.sort(order[np.unique(keys, axis=0, return_index=True)[1]])
    return rows, still[rows]


def spread(numbers):
    """Return minimum, median and maximum; NaN if there are no numbers."""
    if not np.size(numbers):
        return np.full(3, np.nan)
    return np.array([np.nanmin(numbers), np.nanmedian(numbers), np.nanmax(numbers)])


def finer(cells):
    """Return an array with more rows and columns, linear between the centres of the cells."""
    from scipy.ndimage import zoom

    return zoom(cells, PIXELS_PER_CELL_SIDE, order=1, mode="nearest", grid_mode=True)


def sample_of(n):
    """Return the rows of locations to draw: all, or a random sample of many."""
    if n <= MOST_DRAWN_LOCATIONS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, MOST_DRAWN_LOCATIONS, replace=False))


def ticks(low, high, count=5):
    """Return about `count` round numbers between two, and their decimals; as the page's script.

    >>> ticks(178605, 181390), ticks(0.0, 1.1)
    (([179000.0, 180000.0, 181000.0], 0), ([0.0, 0.25, 0.5, 0.75, 1.0], 2))
    """
    room = (high - low) / count
    power = 10.0 ** floor(log10(room)) if room > 0 else 1.0
    share = next((k for k in (1, 2, 2.5, 5) if k * power >= 0.999 * room), 10)
    step = share * power
    first = int(np.ceil(low / step - 1e-9))
    values = [k * step for k in range(first, int(np.floor(high / step + 1e-9)) + 1)]
    digits = max(0, (share == 2.5) - floor(log10(step) + 1e-9))
    return [round(value, digits) for value in values], digits


def labels(low, high, width):
    """Return (number, text) of at most five ticks whose texts do not touch.

    >>> labels(0.0, 1.0, 300.0)[1], len(labels(178605.0, 181390.0, 90.0))
    ((0.2, '0.2'), 1)
    """
    for count in (5, 4, 3, 2):
        values, digits = ticks(low, high, count)
        texts = [shown(value, digits) for value in values]
        if sum(map(len, texts)) * DIGIT_WIDTH + len(texts) * DIGIT_WIDTH <= width:
            break
    return list(zip(values, texts, strict=True))


def shown(value, digits):
    """Return a number with this many decimals and a minus sign (not a hyphen)."""
    return f"{value:.{digits}f}".replace("-", "−")


def diameter(n):
    """Return the diameter of a dot in pixels, for a map of n dots."""
    return round(float(np.clip(200.0 / n**0.5, 2.5, 9.0)), 1)


def rounded(values, digits=5):
    """Return numbers with this many significant digits; None for a missing number."""
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in np.ravel(values)]


def rounded_places(values, low, high):
    """Return coordinates rounded to a hundred-thousandth of the region."""
    digits = max(0, 5 - floor(log10((high - low) or 1.0)))
    return [round(float(v), digits) for v in values]
