"""Messy tables of a new user: `python tests/trial.py FOLDER` writes three of them.

They are drawn from known models, so that a trial can check what the program finds in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import geomxp as gx


@dataclass(frozen=True)
class Messy:
    """A table with its flaws, the locations to predict at, and the model it was drawn from.

    Parameters
    ----------
    name : str
    write : callable
        `write(folder)` writes `<name>.csv` and `<name>-new.csv`, and returns the field at the
        locations of the latter.
    asked : tuple of str
        What a user has to name, because no program can know it.
    truth : Matern
        Model of the field; with a transformation on the Gaussian scale.
    coefficients : dict of str to float
        Coefficients of the trend.
    transform : str or None
    options : tuple of str
        What the program must advise.
    """

    name: str
    write: Callable[[Path], np.ndarray]
    asked: tuple[str, ...]
    truth: gx.Matern
    coefficients: dict[str, float]
    transform: str | None
    options: tuple[str, ...]


GROUNDWATER = gx.Matern(variance=4.0, range=8.0, smoothness=0.5, nugget=0.3)
LEAD = gx.Matern(variance=0.5, range=400.0, smoothness=0.5, nugget=0.0)
BOREHOLES = gx.Matern(variance=9.0, range=150.0, smoothness=0.5, nugget=1.0)
ROCKS = {"clay": 20.0, "sand": 26.0, "till": 23.0}
"""Means of the boreholes' values by rock."""


def _smooth(model):
    return replace(model, nugget=0.0)


def _decimal_comma(number, digits):
    return f"{number:.{digits}f}".replace(".", ",")


def groundwater(folder: Path) -> np.ndarray:
    """Write semicolons, decimal commas, latitude before longitude, and -9999 for missing values."""
    rng = np.random.default_rng(11)
    longitude, latitude = 6 + rng.random(460), 51 + 0.7 * rng.random(460)
    degrees = np.round(np.c_[longitude, latitude], 5)
    field = 12 + gx.simulate(_smooth(GROUNDWATER), degrees, metric="chordal", seed=1)[0]
    values = field + np.sqrt(GROUNDWATER.nugget) * rng.standard_normal(460)
    values[rng.choice(400, 15, replace=False)] = -9999
    rows = [
        f"W{k:03d};{_decimal_comma(lat, 5)};{_decimal_comma(lon, 5)};{_decimal_comma(value, 2)}"
        for k, ((lon, lat), value) in enumerate(zip(degrees, values, strict=True))
    ]
    table = "\n".join(["Well;Latitude;Longitude;Chloride", *rows[:400]])
    (folder / "groundwater.csv").write_text(table + "\n")
    new = "\n".join(["Well;Latitude;Longitude", *(row.rsplit(";", 1)[0] for row in rows[400:])])
    (folder / "groundwater-new.csv").write_text(new + "\n")
    return field[400:]


def lead(folder: Path) -> np.ndarray:
    """Write skewed concentrations, three at most stations, with a column of standard errors."""
    rng = np.random.default_rng(12)
    stations = np.round(5000 * rng.random((190, 2)), 1)
    logs = 3.5 + gx.simulate(LEAD, stations, seed=2)[0]
    lines = ["station,easting,northing,lead,lead_se"]
    for k in range(150):
        for _ in range(1 if k % 5 == 0 else 3):
            relative = rng.uniform(0.05, 0.3)
            value = np.exp(logs[k] + relative * rng.standard_normal())
            place = f"{stations[k, 0]:.1f},{stations[k, 1]:.1f}"
            lines.append(f"S{k:03d},{place},{value:.3f},{relative * value:.4f}")
    (folder / "lead.csv").write_text("\n".join(lines) + "\n")
    new = [f"{x:.1f},{y:.1f}" for x, y in stations[150:]]
    (folder / "lead-new.csv").write_text("\n".join(["easting,northing", *new]) + "\n")
    return np.exp(logs[150:])


def boreholes(folder: Path) -> np.ndarray:
    """Write metres, duplicated rows, a covariate of words, and cells without a number."""
    rng = np.random.default_rng(13)
    metres = np.round(2000 * rng.random((440, 2)) + [350_000, 5_600_000], 1)
    rock = rng.choice([*ROCKS], 440)
    field = np.array([ROCKS[name] for name in rock])
    field += gx.simulate(_smooth(BOREHOLES), metres, seed=3)[0]
    values = field + np.sqrt(BOREHOLES.nugget) * rng.standard_normal(440)
    rows = [
        f"{x:.1f},{y:.1f},{name},{value:.2f}"
        for (x, y), name, value in zip(metres, rock, values, strict=True)
    ]
    table = rows[:400] + [rows[k] for k in rng.choice(400, 12, replace=False)]
    for k, cell in zip(rng.choice(400, 9, replace=False), ("", "NA", "n/a") * 3, strict=True):
        table[k] = table[k].rsplit(",", 1)[0] + f",{cell}"
    (folder / "boreholes.csv").write_text("\n".join(["x,y,rock,depth", *table]) + "\n")
    new = [row.rsplit(",", 1)[0] for row in rows[400:]]
    (folder / "boreholes-new.csv").write_text("\n".join(["x,y,rock", *new]) + "\n")
    return field[400:]


TABLES = (
    Messy(
        "groundwater",
        groundwater,
        ("--value", "Chloride"),
        GROUNDWATER,
        {"intercept": 12.0},
        None,
        ("--locations Longitude,Latitude", "--missing -9999", "--drop-missing"),
    ),
    Messy(
        "lead",
        lead,
        ("--value", "lead"),
        LEAD,
        {"intercept": 3.5},
        "log",
        ("--error-variance", "--transform log", "--duplicates keep"),
    ),
    Messy(
        "boreholes",
        boreholes,
        ("--value", "depth", "--formula", "rock"),
        BOREHOLES,
        {"intercept": 20.0, "rock[T.sand]": 6.0, "rock[T.till]": 3.0},
        None,
        ("--drop-missing", "--duplicates drop"),
    ),
)


if __name__ == "__main__":
    for messy in TABLES:
        messy.write(Path(sys.argv[1]))
