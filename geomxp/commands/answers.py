"""The command `predict`: kriging at places, on maps and over blocks."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from ..errors import InvalidInput
from . import choices, completion, display, groups, options
from .options import option

GRID, KRIGING = "Grid", "Kriging"
"""Panels of the help."""

FEW = 3
"""Columns of the places that a screen has room for beside the predictions."""


@dataclass(frozen=True)
class Map:
    """A regular grid to predict on."""

    grid: Annotated[
        int | None,
        option(GRID, "So many cells along the longer side.", options.WHOLE, min=2),
    ] = None
    resolution: Annotated[float | None, option(GRID, "Cells of this side.", options.NUMBER)] = None
    bounds: Annotated[
        str | None,
        option(GRID, "left,bottom,right,top; those of the observations if not given.", "L,B,R,T"),
    ] = None
    like: Annotated[
        str | None, option(GRID, "The cells of this GeoTIFF or NetCDF file.", options.FILE)
    ] = None
    mask: Annotated[
        str | None,
        option(GRID, "Raster file: only where it has a value other than 0.", options.FILE),
    ] = None

    @property
    def wanted(self):
        """Whether the options name a grid."""
        return any(value is not None for value in (self.grid, self.resolution, self.like))

    @property
    def more(self):
        """Whether they say more than how many cells."""
        return any((self.resolution, self.bounds, self.like, self.mask))

    def settings(self):
        """Return what `geomxp.predict_raster` takes of them, as a dict."""
        bounds = None if self.bounds is None else choices.numbers("--bounds", self.bounds)
        about = {"resolution": self.resolution, "like": self.like, "mask": self.mask}
        return {"cells": self.grid, "bounds": bounds, **about}


@dataclass(frozen=True)
class Kriging:
    """What is predicted, and from which observations."""

    block: Annotated[
        str | None,
        option(
            KRIGING,
            "Averages: over sides 50,20 about places, cell of a grid, or polygons.",
            "SIDES",
            known=("cell", "polygons"),
        ),
    ] = None
    discretisation: Annotated[
        int | None,
        option(
            KRIGING,
            "A block as so many points along its (longer) side; an integral if not given.",
            options.WHOLE,
            min=1,
        ),
    ] = None
    neighbours: Annotated[
        int | None,
        option(KRIGING, "Observations that each place is predicted from: the nearest.", "N"),
    ] = None
    local_trend: Annotated[
        bool, options.flag(KRIGING, "--local-trend", "The trend of the neighbours of each place.")
    ] = False
    on: Annotated[
        str | None,
        option(KRIGING, "cpu, gpu or gpu:N; as the fit if not given.", "DEVICE"),
    ] = None

    def settings(self):
        """Return what `geomxp.predict` takes of them but the blocks, as a dict."""
        if self.discretisation is not None and self.block is None:
            raise InvalidInput("--discretisation is for blocks: give --block.")
        names = ("discretisation", "neighbours", "local_trend")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Answer:
    """What is said of predictions, and where."""

    level: options.Level = 0.95
    of: Annotated[
        str,
        option(
            options.OUTPUT,
            "Intervals for the field or an observation.",
            options.NAME,
            known=("field", "observation"),
        ),
    ] = "field"
    output: Annotated[
        str | None,
        option(
            options.OUTPUT,
            "CSV, Parquet, NPZ, GeoPackage, GeoJSON, NetCDF or GeoTIFF file to write.",
            options.FILE,
        ),
    ] = None
    as_json: options.Json = False
    quiet: options.Quiet = False


@groups.joined
def predict(
    fit_file: options.FitFile,
    cells: Map,
    kriging: Kriging,
    answer: Answer,
    places: Annotated[
        str | None,
        typer.Argument(
            metavar="PLACES",
            help="Table of places, or a data set's name.",
            autocompletion=completion.tables,
        ),
    ] = None,
):
    """Predict the field at places by kriging.

    A fit, and predictions at the places of a table:
      geomxp fit jura --output jura.json
      geomxp predict jura.json jura_validation --output predictions.csv

    A map, of averages over cells of 100 m (coordinates are in km):
      geomxp predict jura.json --resolution 0.1 --block cell --output map.tif

    Intervals for new observations, each place from its 30 nearest:
      geomxp predict jura.json jura_validation --of observation --neighbours 30
    """
    from .. import tables
    from ..inference.estimate import Fit, z_value

    screen = display.Screen(answer.as_json, answer.quiet)
    tables.check_writable(answer.output, inputs=(fit_file, places, cells.like, cells.mask))
    z_value(answer.level)
    choices.check_of(answer.of)
    if (places is None) != cells.wanted or (places and (cells.wanted or cells.more)):
        raise InvalidInput("give either a table of PLACES, or --grid, --resolution or --like.")
    near = kriging.settings() | {"progress": screen.progress}
    fitted = Fit.load(fit_file)
    if kriging.on is not None:
        fitted = replace(fitted, method=replace(fitted.method, on=kriging.on))
    if places is None and fitted.observations.dimensions == 2:
        _predict_map(fitted, cells, kriging.block, near, answer, screen)
        return
    data, name = _places(fitted.observations, places, cells), places or "grid"
    _predict_at(fitted, data, name, kriging.block, near, answer, screen)


def _predict_at(fitted, data, name, block, near, answer, screen):
    """Predict at the rows of a frame, or at the cells of a grid."""
    from ..exchange import frames, rasters
    from ..exchange import written as frames_written

    if answer.output and answer.output.lower().endswith(rasters.GEOTIFF):
        raise InvalidInput(f"{answer.output}: holds a map: give --grid, --resolution or --like.")
    frames_written.check_output(data, answer.output)
    try:
        there = _kriged(fitted, data, block, near)
        result = there.to_frame(answer.level, answer.of)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    if answer.output:
        _write(there, result, block, fitted, answer)
    if block == "polygons":
        result = _without_shapes(result)
    _show(
        frames.tabulate(result).columns,
        lambda: frames_written.records(there, fitted, answer.level, answer.of),
        answer,
        screen,
    )


def _kriged(fitted, data, block, near):
    """Return the predictions at places, over rectangles about them, or over polygons."""
    from ..exchange import frames
    from ..exchange import written as frames_written
    from ..inference.predict import predict as run

    if block != "polygons":
        frames_written.check_columns(data)
        sides = None if block is None else choices.numbers("--block", block)
        return run(fitted, data, block=sides, **near)
    if not frames.is_geographic_frame(data):
        raise InvalidInput("--block polygons needs a file of polygons, such as a .gpkg.")
    return run(fitted, block=data, **near)


def _write(there, result, block, fitted, answer):
    """Write predictions as what the file can hold."""
    from .. import tables
    from ..exchange import geofiles
    from ..exchange import written as frames_written

    if block != "polygons":
        about = (answer.output, fitted.observations, answer.level, answer.of)
        tables.write_frame(frames_written.for_file(there, *about), answer.output)
        return
    vector = answer.output.lower().endswith(geofiles.VECTORS)
    tables.write_frame(result if vector else _without_shapes(result), answer.output)


def _without_shapes(frame):
    """Return the columns of a frame of polygons, which a table has no room for."""
    import pandas as pd

    return pd.DataFrame(frame.drop(columns=frame.active_geometry_name))


def _show(frame, records, answer, screen):
    """Print predictions, or where they are."""
    if answer.output and not screen.as_json:
        screen.note(f"{len(frame)} predictions written to {answer.output}")
        return
    about = {"n": len(frame), "level": answer.level, "of": answer.of}
    screen.result(
        lambda: {**about, "rows": records()},
        lambda: frame.to_string(index=False, max_rows=display.MOST),
        lambda: display.frame(*_shown(frame)),
    )


def _shown(frame):
    """Return the columns that a screen has room for, and what to say of the others."""
    from ..tables import typed

    results = list(frame.columns).index("mean")
    if results <= FEW:
        return (typed(frame),)
    more = f"the places' other {results - FEW} columns are in what --output writes"
    return typed(frame.iloc[:, [*range(FEW), *range(results, frame.shape[1])]]), more


def _places(seen, places, cells):
    """Read places, or lay out a grid of one or three dimensions."""
    import pandas as pd

    from ..inference.predict import grid_over

    if places is not None:
        return choices.places_data(places)
    if cells.more:
        raise InvalidInput("maps need places in the plane: of others there is only --grid.")
    return pd.DataFrame(grid_over(seen, cells.grid), columns=list(seen.location_names))


def _predict_map(fitted, cells, block, near, answer, screen):
    """Predict on a regular grid of the plane."""
    from ..exchange import rasters
    from ..inference.raster import predict_raster

    if answer.output:
        rasters.check_libraries(answer.output)
    if block not in (None, "cell"):
        raise InvalidInput(f"--block of a grid must be cell. Got {block!r}.")
    raster = predict_raster(fitted, **cells.settings(), block=block is not None, **near)
    # said now, not after the file
    frame = raster.to_frame(answer.level, answer.of)
    if answer.output:
        raster.save(answer.output, answer.level, answer.of)
    _show(frame, lambda: frame.to_dict("records"), answer, screen)
