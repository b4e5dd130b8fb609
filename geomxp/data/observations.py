"""What we saw: locations, values, covariates, and the metric between places."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..covariance.distance import check_metric
from ..errors import GeomxpWarning, InvalidInput
from .places import (
    as_numbers,
    check_finite,
    checked_places,
    default_names,
    few,
    looks_like_degrees,
    spread,
)

if TYPE_CHECKING:
    import geopandas
    import pandas
    import xarray

    from .._typing import ArrayLike, DataArray, Document, Floats, Frame, Grid, Mapping, Sequence

Places: TypeAlias = (
    "ArrayLike | Observations | pandas.DataFrame | geopandas.GeoDataFrame"
    " | geopandas.GeoSeries | xarray.DataArray | xarray.Dataset"
)
"""New locations: coordinates, or an object that holds them."""

LEAST_PLACES = 3

ADVICE = "drop them (--drop-missing)"
"""What to do with rows that have missing numbers."""

SYMBOLS = {"metre": "m", "kilometre": "km"}
"""Units of length that are known by their symbols."""


@dataclass(frozen=True)
class Observations:
    """Values at places.

    Parameters
    ----------
    locations : (n, d) array_like
        Coordinates, d = 1, 2 or 3, in one unit of length; (longitude, latitude) in degrees for
        the two spherical metrics, whose unit of length is the km.
    values : (n,) array_like
    covariates : (n, p) array_like or frame, optional
        Numbers; a pandas frame may have columns of text, which are kept as codes.
    metric : {"euclidean", "chordal", "great-circle"}
        "chordal" is the straight line through the Earth and the right choice for longitude and
        latitude: every Matérn model is a covariance for it.
    location_names, value_name, covariate_names : optional
        Names for tables and pictures.
    levels : dict of str to tuple of str, optional
        What the codes 0, 1, … of covariates of text stand for.
    source : dict, optional
        Where the table came from, as `geomxp.data.tables.read_table` records it.
    crs : str, optional
        Coordinate reference system of the locations: "EPSG:28992", or WKT.
    length_unit : str, optional
        Unit of the locations, for tables and pictures; "metre", say.

    Raises
    ------
    InvalidInput
        For fewer than 3 places, shapes that do not match, NaN or infinite numbers (their count and
        the first row are named), latitudes outside ±90.
    """

    locations: Floats
    values: Floats
    covariates: Floats | None = None
    metric: str = "euclidean"
    location_names: tuple[str, ...] = ()
    value_name: str = "value"
    covariate_names: tuple[str, ...] = ()
    source: Document = field(default_factory=dict, compare=False)
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    crs: str | None = field(default=None, compare=False)
    length_unit: str = field(default="", compare=False)

    if TYPE_CHECKING:
        # what may be given; the fields say what is kept
        def __init__(
            self,
            locations: ArrayLike,
            values: ArrayLike,
            covariates: ArrayLike | Frame | None = None,
            metric: str = "euclidean",
            location_names: Sequence[str] = (),
            value_name: str = "value",
            covariate_names: Sequence[str] = (),
            source: Document = ...,
            levels: Mapping[str, Sequence[str]] = ...,
            crs: str | None = None,
            length_unit: str = "",
        ) -> None: ...

    def __post_init__(self):
        check_metric(self.metric)
        locations = checked_places(self.locations, self.metric, self.location_names, ADVICE)
        values = as_numbers(self.values, "values")
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
        check_finite(values[:, None], (self.value_name,), "values", ADVICE)
        put = object.__setattr__
        put(self, "locations", _frozen(locations))
        put(self, "values", _frozen(values))
        if self.covariates is not None:
            put(self, "covariates", _frozen(self._checked_covariates(len(locations))))
        names = self.location_names or default_names(self.metric, locations.shape[1])
        put(self, "location_names", tuple(names))
        if len(set(names)) < len(names):
            raise InvalidInput(f"coordinates must be different columns. Got {', '.join(names)}.")
        self._check_words()
        self._warn_about_degrees()

    def _check_words(self):
        for name, kinds in (("crs", (str, type(None))), ("length_unit", str)):
            if not isinstance(getattr(self, name), kinds):
                raise InvalidInput(f"`{name}` must be text. Got {getattr(self, name)!r}.")

    def _checked_covariates(self, n):
        if hasattr(self.covariates, "columns"):
            self._encode_frame()
        covariates = as_numbers(self.covariates, "covariates")
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
        check_finite(covariates, names, "covariates", ADVICE)
        object.__setattr__(self, "covariate_names", tuple(names))
        self._check_levels(covariates)
        return covariates

    def _encode_frame(self):
        """Replace a frame of covariates by its numbers, names and levels."""
        from .covariates import encode

        names = tuple(map(str, self.covariates.columns))
        codes, levels = encode(self.covariates.set_axis(names, axis=1), names)
        object.__setattr__(self, "covariates", codes)
        object.__setattr__(self, "covariate_names", names)
        object.__setattr__(self, "levels", levels)

    def _check_levels(self, covariates):
        from .covariates import check_codes

        strange = set(self.levels) - set(self.covariate_names)
        if strange:
            raise InvalidInput(f"`levels` names {sorted(strange)[0]!r}, which is no covariate.")
        levels = {name: tuple(map(str, words)) for name, words in self.levels.items()}
        object.__setattr__(self, "levels", levels)
        check_codes(covariates, self.covariate_names, levels)

    def _warn_about_degrees(self):
        if self.metric == "euclidean" and looks_like_degrees(self.locations, self.location_names):
            warnings.warn(
                f"the coordinates {', '.join(self.location_names)} look like longitude and "
                'latitude in degrees: with metric="euclidean" a degree counts the same everywhere '
                'and in both directions; metric="chordal" measures km.',
                GeomxpWarning,
                stacklevel=4,
            )

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        names = () if self.covariates is None else self.covariate_names
        covariates = f", covariates {few(names)}" if names else ""
        return (
            f"<Observations of {self.value_name} at {len(self):,} places "
            f"({few(self.location_names)}), {self.metric} distances in {self.unit}{covariates}>"
        )

    def __str__(self) -> str:
        columns = dict(zip(self.location_names, self.locations.T, strict=True))
        columns[self.value_name] = self.values
        if self.covariates is not None:
            named = zip(self.covariate_names, self.covariates.T, strict=True)
            columns |= {name: self.levels.get(name, column) for name, column in named}
        head = f"{len(self):,} observations, {self.metric} distances in {self.unit}"
        return f"{head}\n\n{spread(columns)}"

    @property
    def dimensions(self) -> int:
        """Number of coordinates, d."""
        return self.locations.shape[1]

    @property
    def unit(self) -> str:
        """Unit of length in which ranges are given, as text: "m"."""
        if self.metric != "euclidean":
            return "km"
        return SYMBOLS.get(self.length_unit, self.length_unit) or "units of the locations"

    @classmethod
    def from_frame(
        cls,
        frame: Frame | Grid,
        *,
        values: str,
        locations: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        formula: str | Sequence[str] | None = None,
        metric: str | None = None,
        drop_missing: bool = False,
        crs: str | None = None,
    ) -> Observations:
        """Make observations from a pandas or geopandas frame.

        Parameters
        ----------
        frame : pandas.DataFrame or geopandas.GeoDataFrame
            A geometry must hold points. Its coordinate reference system says what they are:
            projected ones lie in a plane, in its unit; longitude and latitude are taken to
            EPSG:4326, and the metric is then "chordal".
        values : str
            Column.
        locations : sequence of str, optional
            Columns; for a geopandas frame its points, called x, y or lon, lat (and z: their third
            coordinate counts only where it is named).
        covariates : sequence of str
            Columns.
        formula : str, optional
            A trend, whose columns are covariates too.
        metric : str, optional
            If not given "chordal" where a reference system or the names of the columns say
            longitude and latitude, else "euclidean".
        drop_missing : bool
            Leave out rows with a missing number in a used column, or without a geometry.
        crs : str, optional
            Coordinate reference system of the columns `locations`: "EPSG:28992".

        Returns
        -------
        Observations

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"lon": [5, 6, 7], "lat": [50, 52, 51], "z": [1.0, 2.0, 3.0]})
        >>> seen = Observations.from_frame(table, locations=("lon", "lat"), values="z")
        >>> seen.metric, seen.unit
        ('chordal', 'km')
        """
        from .observed import observations

        return observations(
            frame,
            locations=locations,
            values=values,
            covariates=covariates,
            formula=formula,
            metric=metric,
            drop_missing=drop_missing,
            crs=crs,
        )

    @classmethod
    def from_xarray(
        cls,
        grid: DataArray | Grid,
        *,
        values: str | None = None,
        locations: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        formula: str | Sequence[str] | None = None,
        metric: str | None = None,
        drop_missing: bool = False,
        crs: str | None = None,
    ) -> Observations:
        """Make observations from the cells of an xarray grid.

        Cells whose value is NaN are not observed: they are left out, and a warning counts them.

        Parameters
        ----------
        grid : xarray.DataArray or Dataset
            With coordinates x and y, or longitude and latitude, by their names or by the CF
            conventions' attributes `standard_name` and `units`.
        values : str, optional
            Variable; needed for a Dataset of several.
        locations : sequence of str, optional
            Coordinates, where they are called otherwise, or are one or three.
        covariates, formula, metric, drop_missing, crs : optional
            As `from_frame` takes them.

        Returns
        -------
        Observations

        Examples
        --------
        >>> import xarray
        >>> grid = xarray.DataArray([[1.0, 2.0], [3.0, 4.0]], {"y": [1, 0], "x": [5, 6]})
        >>> Observations.from_xarray(grid).locations.tolist()
        [[5.0, 1.0], [6.0, 1.0], [5.0, 0.0], [6.0, 0.0]]
        """
        return cls.from_frame(
            grid,
            locations=locations,
            values=values,
            covariates=covariates,
            formula=formula,
            metric=metric,
            drop_missing=drop_missing,
            crs=crs,
        )

    def digest(self) -> str:
        """Return a SHA-256 of the numbers, as hexadecimal text."""
        found = hashlib.sha256(self.metric.encode())
        for array in (self.locations, self.values, self.covariates):
            if array is not None:
                found.update(np.ascontiguousarray(array).tobytes())
        if self.levels:
            found.update(repr(sorted(self.levels.items())).encode())
        return found.hexdigest()

    def duplicate(self) -> tuple[int, int] | None:
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

    def subset(self, rows: ArrayLike) -> Observations:
        """Return the observations of some rows, in their order."""
        return Observations(
            self.locations[rows],
            self.values[rows],
            None if self.covariates is None else self.covariates[rows],
            self.metric,
            self.location_names,
            self.value_name,
            self.covariate_names,
            levels=self.levels,
            crs=self.crs,
            length_unit=self.length_unit,
        )

    def covariate_frame(self) -> Frame:
        """Return the covariates as a pandas frame, text as text."""
        import pandas as pd

        from .covariates import decode

        columns = np.empty((len(self), 0)) if self.covariates is None else self.covariates
        frame = pd.DataFrame(columns, columns=list(self.covariate_names))
        return frame.assign(
            **{name: decode(frame[name], words) for name, words in self.levels.items()}
        )


def _frozen(array):
    """Return a copy that cannot be written to: observations do not change behind a fit."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy
