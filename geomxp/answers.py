"""Commands that answer from a model: predictions by kriging, simulated fields."""

from dataclasses import replace
from typing import Annotated

import typer

from . import options
from .errors import InvalidInput


def predict(
    fit_file: Annotated[
        str, typer.Argument(metavar="FIT", help="What `geomxp fit --output` wrote.")
    ],
    places: Annotated[
        str | None, typer.Argument(help="Table of places, or a data set's name.")
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(
            min=2, help="Predict on a regular grid with so many cells along its longer side."
        ),
    ] = None,
    resolution: Annotated[
        float | None, typer.Option(help="Predict on a regular grid of cells with this side.")
    ] = None,
    bounds: Annotated[
        str | None, typer.Option(help="left,bottom,right,top of the grid; of the observations.")
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="Predict at the cells of this GeoTIFF or NetCDF file.")
    ] = None,
    mask: Annotated[
        str | None, typer.Option(help="Raster file: only where it has a value other than 0.")
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(help="Averages: over sides 50,20 about places, cell of a grid, or polygons."),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(help="Observations that each place is predicted from: the nearest."),
    ] = None,
    local_trend: Annotated[
        bool, typer.Option("--local-trend", help="The trend of the neighbours of each place.")
    ] = False,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    of: Annotated[str, typer.Option(help="Intervals for the field or an observation.")] = "field",
    on: Annotated[
        str | None, typer.Option(help="cpu, gpu or gpu:N; as the fit if not given.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="CSV, Parquet, NPZ, GeoPackage, GeoJSON, NetCDF or GeoTIFF file to write."
        ),
    ] = None,
    as_json: options.Json = False,
):
    """Predict the field at places by kriging.

    geomxp predict fit.json places.csv --output predictions.csv

    geomxp predict fit.json --grid 100 --output map.tif

    geomxp predict fit.json --resolution 50 --bounds 178000,329000,182000,334000 --output map.nc
    """
    from . import tables
    from .inference.estimate import Fit, z_value

    tables.check_writable(output, inputs=(fit_file, places, like, mask))
    z_value(level)
    options.check_of(of)
    fitted = Fit.load(fit_file)
    if on is not None:
        fitted = replace(fitted, method=replace(fitted.method, on=on))
    grid = {"cells": grid, "resolution": resolution, "bounds": bounds, "like": like, "mask": mask}
    wanted = any(grid[name] is not None for name in ("cells", "resolution", "like"))
    if (places is None) != wanted or (places and any(grid.values())):
        raise InvalidInput("give either a table of PLACES, or --grid, --resolution or --like.")
    near = {"neighbours": neighbours, "local_trend": local_trend}
    if places is None and fitted.observations.dimensions == 2:
        _predict_map(fitted, grid, block, near, level, of, output, as_json)
    else:
        _predict_at(fitted, places, grid, block, near, level, of, output, as_json)


def _predict_at(fitted, places, grid, block, near, level, of, output, as_json):
    """Predict at a table of places, or at a grid of one or three dimensions."""
    import pandas as pd

    from . import frames, frames_written, geofiles, rasters, tables
    from .inference.predict import predict as run

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
            sides = None if block is None else options.numbers("--block", block)
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
    if as_json:
        rows = frames_written.records(there, fitted, level, of)
        options.print_json({"n": len(result), "level": level, "of": of, "rows": rows})
    elif output:
        print(f"{len(result)} predictions written to {output}")
    else:
        print(frames.tabulate(shown).columns.to_string(index=False, max_rows=40))


def _places(seen, places, grid):
    """Read places, or lay out a grid of one or three dimensions."""
    import pandas as pd

    from .inference.predict import grid_over

    if places is not None:
        return options.places_data(places)
    if any(grid[name] is not None for name in grid if name != "cells"):
        raise InvalidInput("maps need places in the plane: of others there is only --grid.")
    return pd.DataFrame(grid_over(seen, grid["cells"]), columns=list(seen.location_names))


def _predict_map(fitted, grid, block, near, level, of, output, as_json):
    """Predict on a regular grid of the plane."""
    from . import rasters
    from .inference.raster import predict_raster

    if output:
        rasters.check_libraries(output)
    if block not in (None, "cell"):
        raise InvalidInput(f"--block of a grid must be cell. Got {block!r}.")
    if grid["bounds"] is not None:
        grid["bounds"] = options.numbers("--bounds", grid["bounds"])
    raster = predict_raster(fitted, **grid, block=block is not None, **near)
    # said now, not after the file
    frame = raster.to_frame(level, of)
    if output:
        raster.save(output, level, of)
    if as_json:
        rows = frame.to_dict("records")
        options.print_json({"n": len(frame), "level": level, "of": of, "rows": rows})
    elif output:
        print(f"{len(frame)} predictions written to {output}")
    else:
        print(frame.to_string(index=False, max_rows=40))


def simulate(
    variance: options.Variance = None,
    range_: options.Range = None,
    smoothness: options.Smoothness = None,
    nugget: options.Nugget = None,
    fit: Annotated[
        str | None,
        typer.Option(help="What `geomxp fit --output` wrote: draw given its observations, --at."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(help="field or observation; observations of a model, the field of a fit."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Number of places to lay out.")
    ] = None,
    layout: Annotated[str, typer.Option(help="grid, jittered or uniform.")] = "uniform",
    at: Annotated[str | None, typer.Option(help="Table of places, or a data set's name.")] = None,
    locations: options.Locations = None,
    metric: options.Metric = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of fields.")] = 1,
    seed: options.Seed = 0,
    output: Annotated[str | None, typer.Option(help="CSV, Parquet or NPZ file to write.")] = None,
    as_json: options.Json = False,
):
    """Draw Gaussian fields, the nugget included as noise; or a fit's field given its data.

    geomxp simulate --n 1600 --variance 1 --range 0.1 --smoothness 0.5 --output field.csv

    geomxp simulate --fit fit.json --at places.csv --draws 100 --output draws.csv
    """
    from . import tables
    from .covariance.matern import Matern

    tables.check_writable(output, inputs=(fit, at))
    options.check_of(of)
    parameters = {"variance": variance, "range": range_, "smoothness": smoothness}
    if fit is not None:
        given = {**parameters, "nugget": nugget, "n": n, "locations": locations, "metric": metric}
        more = [f"--{name}" for name, value in given.items() if value is not None]
        if more:
            raise InvalidInput(f"--fit knows the model and where places are: leave out {more[0]}.")
        frame, fields = _draw_given(fit, at, draws, seed, of)
    else:
        missing = [f"--{name}" for name, value in parameters.items() if value is None]
        if missing:
            raise InvalidInput(f"{' and '.join(missing)} must be given, or --fit.")
        model = Matern(variance, range_, smoothness, nugget or 0.0)
        frame, fields = _draw_freely(model, n, layout, at, locations, metric, draws, seed, of)
    for k, field in enumerate(fields):
        name = "z" if draws == 1 else f"z{k + 1}"
        if name in frame.columns:
            raise InvalidInput(f"column {name!r} of the places has the name of a field: rename it.")
        frame[name] = field
    if output:
        tables.write_frame(frame, output)
    if as_json:
        options.print_json({"n": len(frame), "draws": draws, "rows": frame.to_dict("records")})
    elif output:
        print(f"{draws} field(s) at {len(frame)} places written to {output}")
    else:
        print(frame.to_string(index=False, max_rows=40))


def _draw_given(path, at, draws, seed, of):
    """Return the coordinates of places, and a fit's fields there."""
    import pandas as pd

    from . import frames
    from .inference.estimate import Fit
    from .inference.simulate import simulate as run

    if at is None:
        raise InvalidInput("--fit needs places: --at.")
    fitted = Fit.load(path)
    try:
        places, covariates, _ = frames.targets(fitted, options.places_data(at))
        fields = run(fitted, places, draws, seed, covariates=covariates, of=of)
    except InvalidInput as error:
        raise InvalidInput(f"{at}: {error}") from None
    return pd.DataFrame(places, columns=list(fitted.observations.location_names)), fields


def _draw_freely(model, n, layout, at, locations, metric, draws, seed, of):
    """Return the coordinates of places, and a model's fields there."""
    import pandas as pd

    from . import datasets, tables
    from .inference.simulate import lay_out
    from .inference.simulate import simulate as run
    from .places import names_say_degrees

    if (n is None) == (at is None):
        raise InvalidInput("give either --n or --at.")
    names = options.words(locations) if locations else ("x", "y")
    if len(set(names)) != len(names) or (at is None and len(names) != 2):
        raise InvalidInput(f"--locations needs two different names. Got {locations!r}.")
    if at is None:
        places = lay_out(n, layout, seed)
    else:
        if at in datasets.DATASETS and not locations:
            names = datasets.DATASETS[at].locations
        try:
            places = tables.number_columns(options.places_frame(at), names)
        except InvalidInput as error:
            raise InvalidInput(f"{at}: {error}") from None
    metric = metric or ("chordal" if names_say_degrees(names) else "euclidean")
    fields = run(model, places, draws, seed, metric=metric, of=of)
    return pd.DataFrame(places, columns=list(names)), fields
