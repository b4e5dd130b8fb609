"""What we saw: locations, values, covariates, and the metric between places."""

import hashlib
import warnings
from dataclasses import dataclass, field

import numpy as np

from .covariance.distance import check_metric
from .errors import GeomxpWarning, InvalidInput

LEAST_PLACES = 3


@dataclass(frozen=True)
class Observations:
    """Values at places.

    Parameters
    ----------
    locations : (n, d) array_like
        Coordinates, d = 1, 2 or 3, in one unit of length; (longitude, latitude) in degrees for
        the two spherical metrics, whose unit of length is the km.
    values : (n,) array_like
    covariates : (n, p) array_like, optional
    metric : {"euclidean", "chordal", "great-circle"}
        "chordal" is the straight line through the Earth and the right choice for longitude and
        latitude: every Matérn model is a covariance for it.
    location_names, value_name, covariate_names : optional
        Names for tables and pictures.
    source : dict, optional
        Where the table came from, as `geomxp.tables.read_table` records it.

    Raises
    ------
    InvalidInput
        For fewer than 3 places, shapes that do not match, NaN or infinite numbers (their count and
        the first row are named), latitudes outside ±90.
    """

    locations: np.ndarray
    values: np.ndarray
    covariates: np.ndarray | None = None
    metric: str = "euclidean"
    location_names: tuple[str, ...] = ()
    value_name: str = "value"
    covariate_names: tuple[str, ...] = ()
    source: dict = field(default_factory=dict, compare=False)

    def __post_init__(self):
        check_metric(self.metric)
        locations = checked_places(self.locations, self.metric, self.location_names)
        values = _numbers(self.values, "values")
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.shape != (len(locations),):
            raise InvalidInput(
                f"`values` must hold one number for each of the {len(locations)} locations. "
                f"Got shape {values.shape}."
            )
        if len(locations) < LEAST_PLACES:
            raise InvalidInput(
                f"at least {LEAST_PLACES} locations are needed. Got {len(locations)}."
            )
        check_finite(values[:, None], (self.value_name,), "values")
        put = object.__setattr__
        put(self, "locations", _frozen(locations))
        put(self, "values", _frozen(values))
        if self.covariates is not None:
            put(self, "covariates", _frozen(self._checked_covariates(len(locations))))
        names = self.location_names or default_names(self.metric, locations.shape[1])
        put(self, "location_names", tuple(names))
        self._warn_about_degrees()

    def _checked_covariates(self, n):
        covariates = _numbers(self.covariates, "covariates")
        covariates = covariates[:, None] if covariates.ndim == 1 else covariates
        if covariates.ndim != 2 or len(covariates) != n:
            raise InvalidInput(
                f"`covariates` must have one row for each of the {n} locations. "
                f"Got shape {covariates.shape}."
            )
        names = self.covariate_names or tuple(
            f"covariate{j + 1}" for j in range(covariates.shape[1])
        )
        if len(names) != covariates.shape[1]:
            raise InvalidInput(
                f"`covariate_names` must hold {covariates.shape[1]} names. Got {len(names)}."
            )
        check_finite(covariates, names, "covariates")
        object.__setattr__(self, "covariate_names", tuple(names))
        return covariates

    def _warn_about_degrees(self):
        if self.metric == "euclidean" and looks_like_degrees(self.locations, self.location_names):
            warnings.warn(
                f"the coordinates {', '.join(self.location_names)} look like longitude and "
                'latitude in degrees: with metric="euclidean" a degree counts the same everywhere '
                'and in both directions; metric="chordal" measures km.',
                GeomxpWarning,
                stacklevel=4,
            )

    def __len__(self):
        return len(self.values)

    @property
    def dimensions(self):
        """Number of coordinates, d."""
        return self.locations.shape[1]

    @property
    def unit(self):
        """Unit of length in which ranges are given."""
        return "units of the locations" if self.metric == "euclidean" else "km"

    @classmethod
    def from_frame(cls, frame, *, locations, values, covariates=(), metric="euclidean"):
        """Make observations from a pandas frame.

        Parameters
        ----------
        frame : pandas.DataFrame
        locations, covariates : sequence of str
            Columns.
        values : str
            Column.
        metric : str
        """
        from . import tables

        return tables.observations_from_frame(
            frame, locations=locations, values=values, covariates=covariates, metric=metric
        )

    def digest(self):
        """Return a SHA-256 of the numbers, as hexadecimal text."""
        found = hashlib.sha256(self.metric.encode())
        for array in (self.locations, self.values, self.covariates):
            if array is not None:
                found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def duplicate(self):
        """Return the first pair of rows (i, j), i < j, at the same place, or None.

        Examples
        --------
        >>> Observations([[0, 0], [1, 0], [0, 0]], [1.0, 2.0, 3.0]).duplicate()
        (0, 2)
        """
        places = self.locations + 0.0
        if self.metric != "euclidean":
            pole = np.abs(places[:, 1]) == 90
            places[:, 0] = np.where(pole, 0.0, places[:, 0] % 360.0)
        order = np.lexsort(places.T[::-1])
        same = (places[order[1:]] == places[order[:-1]]).all(axis=1)
        if not same.any():
            return None
        # lexsort is stable: neighbours of one place stand in the order of their rows
        first = np.flatnonzero(same)
        pairs = np.column_stack((order[first], order[first + 1]))
        i, j = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))[0]]
        return int(i), int(j)

    def subset(self, rows):
        """Return the observations of some rows, in their order."""
        return Observations(
            self.locations[rows],
            self.values[rows],
            None if self.covariates is None else self.covariates[rows],
            self.metric,
            self.location_names,
            self.value_name,
            self.covariate_names,
        )


def checked_places(locations, metric, names=()):
    """Return locations as a contiguous (n, d) array of finite numbers that suit the metric."""
    places = _numbers(locations, "locations")
    if places.ndim == 1:
        places = places[:, None]
    if places.ndim != 2 or not 1 <= places.shape[1] <= 3:
        raise InvalidInput(
            f"`locations` must have 1, 2 or 3 columns of coordinates. Got shape {places.shape}."
        )
    if names and len(names) != places.shape[1]:
        raise InvalidInput(f"`location_names` must hold {places.shape[1]} names. Got {len(names)}.")
    check_finite(places, names or default_names(metric, places.shape[1]), "locations")
    if metric != "euclidean":
        if places.shape[1] != 2:
            raise InvalidInput(
                f'metric="{metric}" needs two columns, longitude and latitude. '
                f"Got {places.shape[1]}."
            )
        outside = np.flatnonzero(np.abs(places[:, 1]) > 90)
        if len(outside):
            raise InvalidInput(
                f"latitudes must lie between -90 and 90 degrees. Got {places[outside[0], 1]:g} "
                f"in row {outside[0] + 1} ({len(outside)} such rows): is longitude first?"
            )
        wide = np.flatnonzero(np.abs(places[:, 0]) > 360)
        if len(wide):
            raise InvalidInput(
                f"longitudes must lie between -360 and 360 degrees. Got {places[wide[0], 0]:g} "
                f"in row {wide[0] + 1} ({len(wide)} such rows)."
            )
    return np.ascontiguousarray(places)


def default_names(metric, dimensions):
    """Return names for coordinates that have none."""
    return ("x", "y", "z")[:dimensions] if metric == "euclidean" else ("lon", "lat")


def check_finite(columns, names, what):
    """Raise `InvalidInput` if an (n, p) array has a NaN or an infinite number."""
    bad = ~np.isfinite(columns)
    if bad.any():
        rows = bad.any(axis=1)
        row = int(np.argmax(rows))
        column = int(np.argmax(bad[row]))
        raise InvalidInput(
            f"{what} must be finite numbers. Got {columns[row, column]} in row {row + 1}, column "
            f"{names[column]!r} ({int(rows.sum())} such rows): drop them (--drop-missing)."
        )


NAMES_OF_LONGITUDE = ("lon", "long", "longitude", "lng")
NAMES_OF_LATITUDE = ("lat", "latitude")


def names_say_degrees(names):
    """Whether two columns are called longitude and latitude."""
    lower = [str(name).lower() for name in names]
    return len(lower) == 2 and lower[0] in NAMES_OF_LONGITUDE and lower[1] in NAMES_OF_LATITUDE


def looks_like_degrees(locations, names=()):
    """Whether coordinates are probably longitude and latitude.

    By their names; or because they fit into ±180 × ±90, reach beyond 10, and lie further from
    the origin than they spread, as a region on the Earth does and a local grid does not.
    """
    if locations.shape[1] != 2:
        return False
    if names_say_degrees(names):
        return True
    x, y = locations.T
    if np.abs(x).max() > 180 or np.abs(y).max() > 90 or np.abs(locations).max() < 10:
        return False
    centre = np.abs(locations.mean(axis=0))
    return bool((centre > np.ptp(locations, axis=0)).any())


def _frozen(array):
    """Return a copy that cannot be written to: observations do not change behind a fit."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def _numbers(values, what):
    if np.ma.isMaskedArray(values):
        values = values.astype(np.float64).filled(np.nan)
    if np.iscomplexobj(values) or getattr(getattr(values, "dtype", None), "kind", "f") in "Mm":
        raise InvalidInput(f"`{what}` must be real numbers. Got {np.asarray(values).dtype}.")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{what}` must be an array of numbers: {error}.") from None
