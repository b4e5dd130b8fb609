"""Commands that answer from a model: predictions by kriging, simulated fields."""

from dataclasses import replace
from typing import Annotated

import typer

from ..errors import InvalidInput
from . import choices, completion, display, options
from .options import option

PLACES, GRID, KRIGING = "Places", "Grid", "Kriging"
"""Panels of the help."""

FEW = 3
"""Columns of the places that a screen has room for beside the predictions."""


def predict(
    fit_file: options.FitFile,
    places: Annotated[
        str | None,
        typer.Argument(
            metavar="PLACES",
            help="Table of places, or a data set's name.",
            autocompletion=completion.tables,
        ),
    ] = None,
    grid: Annotated[
        int | None,
        option(GRID, "So many cells along the longer side.", options.WHOLE, min=2),
    ] = None,
    resolution: Annotated[float | None, option(GRID, "Cells of this side.", options.NUMBER)] = None,
    bounds: Annotated[
        str | None,
        option(GRID, "left,bottom,right,top; those of the observations if not given.", "L,B,R,T"),
    ] = None,
    like: Annotated[
        str | None, option(GRID, "The cells of this GeoTIFF or NetCDF file.", options.FILE)
    ] = None,
    mask: Annotated[
        str | None,
        option(GRID, "Raster file: only where it has a value other than 0.", options.FILE),
    ] = None,
    block: Annotated[
        str | None,
        option(
            KRIGING,
            "Averages: over sides 50,20 about places, cell of a grid, or polygons.",
            "SIDES",
            known=("cell", "polygons"),
        ),
    ] = None,
    neighbours: Annotated[
        int | None,
        option(KRIGING, "Observations that each place is predicted from: the nearest.", "N"),
    ] = None,
    local_trend: Annotated[
        bool, options.flag(KRIGING, "--local-trend", "The trend of the neighbours of each place.")
    ] = False,
    on: Annotated[
        str | None,
        option(KRIGING, "cpu, gpu or gpu:N; as the fit if not given.", "DEVICE"),
    ] = None,
    level: options.Level = 0.95,
    of: Annotated[
        str,
        option(
            options.OUTPUT,
            "Intervals for the field or an observation.",
            options.NAME,
            known=("field", "observation"),
        ),
    ] = "field",
    output: Annotated[
        str | None,
        option(
            options.OUTPUT,
            "CSV, Parquet, NPZ, GeoPackage, GeoJSON, NetCDF or GeoTIFF file to write.",
            options.FILE,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
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

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, inputs=(fit_file, places, like, mask))
    z_value(level)
    choices.check_of(of)
    fitted = Fit.load(fit_file)
    if on is not None:
        fitted = replace(fitted, method=replace(fitted.method, on=on))
    grid = {"cells": grid, "resolution": resolution, "bounds": bounds, "like": like, "mask": mask}
    wanted = any(grid[name] is not None for name in ("cells", "resolution", "like"))
    if (places is None) != wanted or (places and any(grid.values())):
        raise InvalidInput("give either a table of PLACES, or --grid, --resolution or --like.")
    near = {"neighbours": neighbours, "local_trend": local_trend, "progress": screen.progress}
    if places is None and fitted.observations.dimensions == 2:
        _predict_map(fitted, grid, block, near, level, of, output, screen)
    else:
        _predict_at(fitted, places, grid, block, near, level, of, output, screen)


def _predict_at(fitted, places, grid, block, near, level, of, output, screen):
    """Predict at a table of places, or at a grid of one or three dimensions."""
    import pandas as pd

    from .. import tables
    from ..exchange import frames, geofiles, rasters
    from ..exchange import written as frames_written
    from ..inference.predict import predict as run

    if output and output.lower().endswith(rasters.GEOTIFF):
        raise InvalidInput(f"{output}: holds a map: give --grid, --resolution or --like.")
    data = _places(fitted.observations, places, grid)
    frames_written.check_output(data, output)
    try:
        if block == "polygons":
            if not frames.is_geographic_frame(data):
                raise InvalidInput("--block polygons needs a file of polygons, such as a .gpkg.")
            there = run(fitted, block=data, **near)
        else:
            frames_written.check_columns(data)
            sides = None if block is None else choices.numbers("--block", block)
            there = run(fitted, data, block=sides, **near)
        result = there.to_frame(level, of)
    except InvalidInput as error:
        raise InvalidInput(f"{places or 'grid'}: {error}") from None
    shown = result
    if block == "polygons":
        # in columns without their shapes
        shown = pd.DataFrame(result.drop(columns=result.active_geometry_name))
    if output and block == "polygons":
        vector = output.lower().endswith(geofiles.VECTORS)
        tables.write_frame(result if vector else shown, output)
    elif output:
        written = frames_written.for_file(there, output, fitted.observations, level, of)
        tables.write_frame(written, output)
    _show(
        frames.tabulate(shown).columns,
        lambda: frames_written.records(there, fitted, level, of),
        {"level": level, "of": of},
        output,
        screen,
    )


def _show(frame, records, about, output, screen):
    """Print predictions, or where they are."""
    if output and not screen.as_json:
        screen.note(f"{len(frame)} predictions written to {output}")
        return
    screen.result(
        lambda: {"n": len(frame), **about, "rows": records()},
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


def _places(seen, places, grid):
    """Read places, or lay out a grid of one or three dimensions."""
    import pandas as pd

    from ..inference.predict import grid_over

    if places is not None:
        return choices.places_data(places)
    if any(grid[name] is not None for name in grid if name != "cells"):
        raise InvalidInput("maps need places in the plane: of others there is only --grid.")
    return pd.DataFrame(grid_over(seen, grid["cells"]), columns=list(seen.location_names))


def _predict_map(fitted, grid, block, near, level, of, output, screen):
    """Predict on a regular grid of the plane."""
    from ..exchange import rasters
    from ..inference.raster import predict_raster

    if output:
        rasters.check_libraries(output)
    if block not in (None, "cell"):
        raise InvalidInput(f"--block of a grid must be cell. Got {block!r}.")
    if grid["bounds"] is not None:
        grid["bounds"] = choices.numbers("--bounds", grid["bounds"])
    raster = predict_raster(fitted, **grid, block=block is not None, **near)
    # said now, not after the file
    frame = raster.to_frame(level, of)
    if output:
        raster.save(output, level, of)
    about = {"level": level, "of": of}
    _show(frame, lambda: frame.to_dict("records"), about, output, screen)


def simulate(
    variance: options.Variance = None,
    range_: options.Range = None,
    smoothness: options.Smoothness = None,
    nugget: options.Nugget = None,
    fit: Annotated[
        str | None,
        option(
            options.MODEL,
            "What geomxp fit --output wrote: draw given its observations, --at places.",
            options.FILE,
            known=completion.fits,
        ),
    ] = None,
    of: Annotated[
        str | None,
        option(
            options.MODEL,
            "field or observation; observations of a model, the field of a fit.",
            options.NAME,
            known=("field", "observation"),
        ),
    ] = None,
    n: Annotated[
        int | None, option(PLACES, "How many to lay out.", options.WHOLE, "--n", min=1)
    ] = None,
    layout: Annotated[
        str,
        option(
            PLACES,
            "grid, jittered or uniform, in the unit square.",
            options.NAME,
            known=("grid", "jittered", "uniform"),
        ),
    ] = "uniform",
    at: Annotated[
        str | None,
        option(PLACES, "Table of places, or a data set's name.", "TABLE", known=completion.tables),
    ] = None,
    locations: Annotated[
        str | None,
        option(PLACES, "Columns of the coordinates.", "X,Y", known=completion.columns),
    ] = None,
    metric: Annotated[
        str | None,
        option(
            PLACES,
            "euclidean, chordal or great-circle; chordal for columns lon,lat.",
            options.NAME,
            known=options.METRICS,
        ),
    ] = None,
    draws: Annotated[int, option(options.OUTPUT, "How many fields.", options.WHOLE, min=1)] = 1,
    seed: Annotated[
        int, option(options.OUTPUT, "Seed of the random numbers.", options.WHOLE, min=0)
    ] = 0,
    output: options.TableOut = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    r"""Draw Gaussian fields, the nugget included as noise; or a fit's field given its data.

    A field in the unit square:
      geomxp simulate --n 1600 --variance 1 --range 0.1 --smoothness 0.5 \
        --output field.csv

    A model at the places of a data set, twice:
      geomxp simulate --at meuse --variance 0.6 --range 220 --smoothness 0.5 \
        --nugget 0.06 --draws 2

    The field of a fit, given its observations:
      geomxp fit jura --output jura.json
      geomxp simulate --fit jura.json --at jura_validation --draws 100 \
        --output draws.csv
    """
    from .. import tables
    from ..covariance.matern import Matern

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, inputs=(fit, at))
    choices.check_of(of)
    about = {"draws": draws, "seed": seed, "of": of, "progress": screen.progress}
    parameters = {"variance": variance, "range": range_, "smoothness": smoothness}
    if fit is not None:
        given = {**parameters, "nugget": nugget, "n": n, "locations": locations, "metric": metric}
        more = [f"--{name}" for name, value in given.items() if value is not None]
        if more:
            raise InvalidInput(f"--fit knows the model and where places are: leave out {more[0]}.")
        frame, fields = _draw_given(fit, at, about)
    else:
        missing = [f"--{name}" for name, value in parameters.items() if value is None]
        if missing:
            raise InvalidInput(f"{' and '.join(missing)} must be given, or --fit.")
        model = Matern(variance, range_, smoothness, nugget or 0.0)
        if (n is None) == (at is None):
            raise InvalidInput("give either --n or --at.")
        places, names = _laid_out(n, layout, locations, seed) if at is None else _at(at, locations)
        frame, fields = _draw_freely(model, places, names, metric, about)
    for k, field in enumerate(fields):
        name = "z" if draws == 1 else f"z{k + 1}"
        if name in frame.columns:
            raise InvalidInput(f"column {name!r} of the places has the name of a field: rename it.")
        frame[name] = field
    if output:
        tables.write_frame(frame, output)
    if output and not as_json:
        screen.note(f"{draws} field(s) at {len(frame)} places written to {output}")
        return
    screen.result(
        lambda: {"n": len(frame), "draws": draws, "rows": frame.to_dict("records")},
        lambda: frame.to_string(index=False, max_rows=display.MOST),
        lambda: display.frame(frame),
    )


def _draw_given(path, at, about):
    """Return the coordinates of places, and a fit's fields there."""
    import pandas as pd

    from ..exchange import frames
    from ..inference.estimate import Fit
    from ..inference.simulate import simulate as run

    if at is None:
        raise InvalidInput("--fit needs places: --at.")
    fitted, data = Fit.load(path), choices.places_data(at)
    try:
        places, covariates, _ = frames.targets(fitted, data)
        fields = run(fitted, places, covariates=covariates, **about)
    except InvalidInput as error:
        raise InvalidInput(f"{at}: {error}") from None
    return pd.DataFrame(places, columns=list(fitted.observations.location_names)), fields


def _draw_freely(model, places, names, metric, about):
    """Return the coordinates of places, and a model's fields there."""
    import pandas as pd

    from ..inference.simulate import simulate as run
    from ..places import names_say_degrees

    metric = metric or ("chordal" if names_say_degrees(names) else "euclidean")
    return pd.DataFrame(places, columns=list(names)), run(model, places, metric=metric, **about)


def _laid_out(n, layout, locations, seed):
    """Return places in the unit square, and what their coordinates are called."""
    from ..inference.simulate import lay_out

    names = choices.words(locations or "x,y")
    if len(names) != 2 or names[0] == names[1]:
        raise InvalidInput(f"--locations needs two different names. Got {locations!r}.")
    return lay_out(n, layout, seed), names


def _at(table, locations):
    """Return the places of a table, and what their coordinates are called."""
    from .. import datasets, tables

    known = datasets.DATASETS[table].locations if table in datasets.DATASETS else ("x", "y")
    names = choices.words(locations) if locations else known
    if len(set(names)) != len(names):
        raise InvalidInput(f"--locations needs different names. Got {locations!r}.")
    frame = choices.places_frame(table)
    try:
        return tables.number_columns(frame, names), names
    except InvalidInput as error:
        raise InvalidInput(f"{table}: {error}") from None
