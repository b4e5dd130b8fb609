"""Data sets that come with geomxp: their source, licence, columns and usual trend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from ..errors import GeomxpError, InvalidInput
from .observations import Observations, TableColumns, read_table


@dataclass(frozen=True)
class Dataset:
    """A data set in the folder `data`.

    Parameters
    ----------
    file : str
    sha256 : str
        Of the file.
    locations, value, covariates :
        Default columns.
    metric, trend : str
        Default metric and trend.
    about : str
        The variable, its unit and the locations.
    source, licence : str
    length_unit : str
        Unit of the locations in a plane; "" if they have none.
    time : str, optional
        Column of the times.
    """

    file: str
    sha256: str
    locations: tuple[str, ...]
    value: str
    about: str
    source: str
    licence: str
    covariates: tuple[str, ...] = ()
    metric: str = "euclidean"
    trend: str = "constant"
    length_unit: str = ""
    time: str | None = None

    @property
    def columns(self) -> TableColumns:
        """Options of the readers in place of their defaults."""
        return {
            "locations": self.locations,
            "values": self.value,
            "covariates": self.covariates,
            "metric": self.metric,
            "time": self.time,
        }


_SP_SOURCE = "R package sp 1.6.0, `meuse`; Rikken and Van Rijn 1993"
_GSTAT_SOURCE = "R package gstat 2.1-0, `jura`; Goovaerts 1997"
_PUBLIC_DOMAIN = "public domain (US government)"
_GPL_LICENCE = "GPL (>= 2) of the R package"

DATASETS = {
    "meuse": Dataset(
        "meuse.csv",
        "cfc8649e0ca76611bdc2fc31c32b991ef5841fa146cfda133e321ebc592d689f",
        locations=("x", "y"),
        value="log_zinc",
        about="topsoil metals on the Meuse flood plain, 155 locations; x, y in m, log zinc in log "
        "ppm",
        source=_SP_SOURCE,
        licence=_GPL_LICENCE,
        covariates=("sqrt_dist",),
        length_unit="metre",
    ),
    "meuse_lime": Dataset(
        "meuse_lime.csv",
        "1cc9a179ce9a96849419791c715ed897a4e27508411df99d1e0ca9fb924875ac",
        locations=("x", "y"),
        value="lime",
        about="presence of lime in the topsoil at the locations of meuse; x, y in m",
        source=_SP_SOURCE,
        licence=_GPL_LICENCE,
        covariates=("sqrt_dist",),
        length_unit="metre",
    ),
    "jura": Dataset(
        "jura_pred.csv",
        "e86759d8019712d61221e4f097588d1de7caac120d160288c74607e5bf6b6a05",
        locations=("x", "y"),
        value="Co",
        about="topsoil metals in the Swiss Jura, 259 locations; x, y in km, cobalt in mg/kg",
        source=_GSTAT_SOURCE,
        licence=_GPL_LICENCE,
        length_unit="kilometre",
    ),
    "jura_validation": Dataset(
        "jura_val.csv",
        "888ff0d8d591fda970d3535f0e9684043017dbd17aff8cc6c204338b20f17724",
        locations=("x", "y"),
        value="Co",
        about="the 100 validation locations of jura; x, y in km, cobalt in mg/kg",
        source=_GSTAT_SOURCE,
        licence=_GPL_LICENCE,
        length_unit="kilometre",
    ),
    "ozone": Dataset(
        "ozone2_day16.csv",
        "2d6f3d6b206743b82a6fa4ca667e11cc46fee094d52767eb618051c24acc6900",
        locations=("lon", "lat"),
        value="o3_ppb",
        about="8-hour ozone in the US Midwest, 18 June 1987, 147 stations; lon, lat in degrees, "
        "ppb",
        source="R package fields 14.1, `ozone2`, day 16; US EPA",
        licence=_PUBLIC_DOMAIN,
        metric="chordal",
    ),
    "ozone_summer": Dataset(
        "ozone2_1987.csv",
        "aa049906a4e6ab65a97fd3bdeb8ba1e99a24a429e64d7471ba1f64653e5907e7",
        locations=("lon", "lat"),
        value="o3_ppb",
        about="8-hour ozone in the US Midwest, 153 stations on 89 days, 3 June to 31 August 1987, "
        "13,122 values; lon, lat in degrees, ppb",
        source="R package fields 14.1, `ozone2`; US EPA",
        licence=_PUBLIC_DOMAIN,
        metric="chordal",
        time="date",
    ),
    "coalash": Dataset(
        "coalash.csv",
        "c8089ba677b60c8e88e3aeba16dcb923f4d58d7e627567f9249ddd6531bb1e30",
        locations=("x", "y"),
        value="coalash",
        about="coal ash in the Pittsburgh seam, 208 locations; x, y in grid units of 2,500 ft, "
        "ash in %",
        source="R package gstat 2.1-0, `coalash`; US Bureau of Mines RI 7377, Gomez and Hazen 1970",
        licence=_PUBLIC_DOMAIN,
        length_unit="grid units of 2,500 ft",
    ),
    "rainfall": Dataset(
        "north_american_rainfall.csv",
        "cb0258e37614d020d18c480213ff54bb92403f6773bc0d4567a9e8c93ad19eeb",
        locations=("lon", "lat"),
        value="precip",
        about="summer rainfall 1950-2010, 1,720 stations; lon, lat in degrees, 0.1 mm, elevation "
        "in m",
        source="R package fields 14.1, `NorthAmericanRainfall`; NOAA GHCN v2",
        licence=_PUBLIC_DOMAIN,
        covariates=("elevation",),
        metric="chordal",
    ),
    "usprecip": Dataset(
        "usprecip_1948_04.csv",
        "7d7accf84a22a2640f6d78ec3660842629dce285844aac53192c97f84da87365",
        locations=("lon", "lat"),
        value="anomaly",
        about="precipitation anomaly of April 1948, 5,906 US stations; lon, lat in degrees, "
        "standardised",
        source="R package spam 2.9-1, `USprecip` (observed stations only); NOAA NCDC, Johns et "
        "al. 2003",
        licence=_PUBLIC_DOMAIN,
        metric="chordal",
    ),
    "nc_sids": Dataset(
        "nc_sids.csv",
        "ddc91c683247ac0ba85273eb863fdf1151d53c532741321467dbf23060f5cb88",
        locations=("lon", "lat"),
        value="SID74",
        about="sudden infant deaths and births in 100 counties of North Carolina, 1974-78 and "
        "1979-84; lon, lat in degrees, counts",
        source="R package spData 2.2.1, `nc.sids`; Cressie and Read 1985, Cressie 1991",
        licence="CC0",
        metric="chordal",
    ),
} | {
    name: Dataset(
        f"{name}.csv",
        sha256,
        locations=("x", "y"),
        value="z",
        about=f"simulated, {name}: range {model_range}, variance 1, smoothness 0.5, 1,600 "
        "locations, "
        "unit square",
        source="simulated by geomxp: data/README.md says how",
        licence="CC0",
        trend="zero",
    )
    for name, model_range, sha256 in (
        ("weak", 0.02627, "c1d5643a93ab6809e2dd9cd23213620ad6030da64a9d71f6924e5f43ea9f6feb"),
        ("medium", 0.078809, "accea3bcfccc7382b04977edeb3ba31688b675a9bfbe1df5c1b4f862418aa31e"),
        ("strong", 0.210158, "c6d76fbe2890f01bb5df89ca188dca67b76282735417eee9eaeab56f489379e0"),
    )
}


def folder() -> Path:
    """Return the folder of the data sets, in the installed package or in a checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "files", package.parent.parent / "data"):
        if (candidate / "meuse.csv").is_file():
            return candidate
    raise GeomxpError(
        "the data sets are not installed: the package has no folder `data/files`. Reinstall geomxp."
    )


def find(name: str) -> Dataset:
    """Return the entry called `name`.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    try:
        return DATASETS[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"`name` must be one of: {', '.join(DATASETS)}. Got {name!r}.") from None


def path(name: str) -> Path:
    """Return the file of a data set."""
    return folder() / find(name).file


def load(name: str, **columns: Unpack[TableColumns]) -> Observations:
    """Read a data set that comes with geomxp.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    **columns
        locations, values, covariates, time, formula, metric, drop_missing, crs, error_variance,
        trials, offset, exposure, below, above, limits, missing, duplicates: as of
        `geomxp.Observations.from_frame`; the data set's own columns and metric if not given.

    Returns
    -------
    Observations

    Raises
    ------
    InvalidInput
        If there is no such data set or column.

    Examples
    --------
    >>> observations = load("meuse")
    >>> len(observations), observations.value_name, observations.covariate_names
    (155, 'log_zinc', ('sqrt_dist',))
    """
    entry = find(name)
    columns = entry.columns | {key: value for key, value in columns.items() if value is not None}
    observations = read_table(path(name), **columns)
    observations.source["dataset"] = name
    if entry.length_unit and observations.location_names == entry.locations:
        # other columns may have other units
        if observations.crs is not None and observations.length_unit != entry.length_unit:
            raise InvalidInput(
                f"`crs` must be a system in the unit of {name}'s coordinates, {entry.length_unit}. "
                f"Got {observations.crs:.40}, in {observations.length_unit}."
            )
        return replace(observations, length_unit=entry.length_unit)
    return observations
