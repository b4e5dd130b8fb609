"""The command `predict`: kriging at places, on maps and over blocks."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from ..cli import completion, display, options
from ..errors import InvalidInput
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
        bounds = None if self.bounds is None else options.numbers("--bounds", self.bounds)
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


@options.joined
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
    from ..data import tables
    from ..estimation.result import Fit, z_value

    screen = display.Screen(answer.as_json, answer.quiet)
    tables.check_writable(answer.output, inputs=(fit_file, places, cells.like, cells.mask))
    z_value(answer.level)
    options.check_of(answer.of)
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
    from ..data import files, spatial
    from ..prediction import targets

    if answer.output and answer.output.lower().endswith(files.GEOTIFF):
        raise InvalidInput(f"{answer.output}: holds a map: give --grid, --resolution or --like.")
    targets.check_output(data, answer.output)
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
        spatial.tabulate(result).columns,
        lambda: targets.records(there, fitted, answer.level, answer.of),
        answer,
        screen,
    )


def _kriged(fitted, data, block, near):
    """Return the predictions at places, over rectangles about them, or over polygons."""
    from ..data import spatial
    from ..prediction import targets
    from ..prediction.kriging import predict as run

    if block != "polygons":
        targets.check_columns(data)
        sides = None if block is None else options.numbers("--block", block)
        return run(fitted, data, block=sides, **near)
    if not spatial.is_geographic_frame(data):
        raise InvalidInput("--block polygons needs a file of polygons, such as a .gpkg.")
    return run(fitted, block=data, **near)


def _write(there, result, block, fitted, answer):
    """Write predictions as what the file can hold."""
    from ..data import files, tables
    from ..prediction import targets

    if block != "polygons":
        about = (answer.output, fitted.observations, answer.level, answer.of)
        tables.write_frame(targets.for_file(there, *about), answer.output)
        return
    vector = answer.output.lower().endswith(files.VECTORS)
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
    from ..data.tables import typed

    results = list(frame.columns).index("mean")
    if results <= FEW:
        return (typed(frame),)
    more = f"the places' other {results - FEW} columns are in what --output writes"
    return typed(frame.iloc[:, [*range(FEW), *range(results, frame.shape[1])]]), more


def _places(seen, places, cells):
    """Read places, or lay out a grid of one or three dimensions."""
    import pandas as pd

    from ..prediction.kriging import grid_over

    if places is not None:
        return options.places_data(places)
    if cells.more:
        raise InvalidInput("maps need places in the plane: of others there is only --grid.")
    return pd.DataFrame(grid_over(seen, cells.grid), columns=list(seen.location_names))


def _predict_map(fitted, cells, block, near, answer, screen):
    """Predict on a regular grid of the plane."""
    from ..data import files
    from ..prediction.raster import predict_raster

    if answer.output:
        files.check_libraries(answer.output)
    if block not in (None, "cell"):
        raise InvalidInput(f"--block of a grid must be cell. Got {block!r}.")
    raster = predict_raster(fitted, **cells.settings(), block=block is not None, **near)
    # said now, not after the file
    frame = raster.to_frame(answer.level, answer.of)
    if answer.output:
        raster.save(answer.output, answer.level, answer.of)
    _show(frame, lambda: frame.to_dict("records"), answer, screen)


# The command `simulate`: fields of a model, or of a fit given its observations.


PLACES = "Places"
"""A panel of the help."""


@dataclass(frozen=True)
class Source:
    """What fields are drawn of: a model, or a fit given its observations."""

    variance: options.Variance = None
    range_: options.Range = None
    smoothness: options.Smoothness = None
    nugget: options.Nugget = None
    fit: Annotated[
        str | None,
        option(
            options.MODEL,
            "What geomxp fit --output wrote: draw given its observations, --at places.",
            options.FILE,
            known=completion.fits,
        ),
    ] = None
    of: Annotated[
        str | None,
        option(
            options.MODEL,
            "field or observation; observations of a model, the field of a fit.",
            options.NAME,
            known=("field", "observation"),
        ),
    ] = None

    @property
    def parameters(self):
        """What a model must be given, by the options' names."""
        return {
            "--variance": self.variance,
            "--range": self.range_,
            "--smoothness": self.smoothness,
        }

    def model(self):
        """Return the model that is given."""
        from ..covariance.matern import Matern

        missing = [name for name, value in self.parameters.items() if value is None]
        if missing:
            raise InvalidInput(f"{' and '.join(missing)} must be given, or --fit.")
        return Matern(self.variance, self.range_, self.smoothness, self.nugget or 0.0)


@dataclass(frozen=True)
class Layout:
    """Where fields are drawn."""

    n: Annotated[
        int | None, option(PLACES, "How many to lay out.", options.WHOLE, "--n", min=1)
    ] = None
    layout: Annotated[
        str,
        option(
            PLACES,
            "grid, jittered or uniform, in the unit square.",
            options.NAME,
            known=("grid", "jittered", "uniform"),
        ),
    ] = "uniform"
    at: Annotated[
        str | None,
        option(PLACES, "Table of places, or a data set's name.", "TABLE", known=completion.tables),
    ] = None
    locations: Annotated[
        str | None,
        option(PLACES, "Columns of the coordinates.", "X,Y", known=completion.columns),
    ] = None
    metric: Annotated[
        str | None,
        option(
            PLACES,
            "euclidean, chordal or great-circle; chordal for columns lon,lat.",
            options.NAME,
            known=options.METRICS,
        ),
    ] = None


@options.joined
def simulate(
    source: Source,
    layout: Layout,
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
    from ..data import tables

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, inputs=(source.fit, layout.at))
    options.check_of(source.of)
    about = {"draws": draws, "seed": seed, "of": source.of, "progress": screen.progress}
    draw = _of_model if source.fit is None else _of_fit
    frame = _named(*draw(source, layout, about))
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


def _named(places, fields):
    """Return the frame of places, with the fields as columns z, or z1, z2 and so on."""
    import pandas as pd

    names = ["z"] if len(fields) == 1 else [f"z{k + 1}" for k in range(len(fields))]
    taken = [name for name in names if name in places.columns]
    if taken:
        raise InvalidInput(f"column {taken[0]!r} of the places has the name of a field: rename it.")
    return pd.concat([places, pd.DataFrame(fields.T, columns=names)], axis=1)


def _of_model(source, layout, about):
    """Return the coordinates of places, and a model's fields there."""
    import pandas as pd

    from ..data.spatial import names_say_degrees
    from ..prediction.simulate import simulate as run

    model = source.model()
    if (layout.n is None) == (layout.at is None):
        raise InvalidInput("give either --n or --at.")
    places, names = _laid_out(layout, about["seed"]) if layout.at is None else _at(layout)
    metric = layout.metric or ("chordal" if names_say_degrees(names) else "euclidean")
    return pd.DataFrame(places, columns=list(names)), run(model, places, metric=metric, **about)


def _of_fit(source, layout, about):
    """Return the coordinates of places, and a fit's fields there."""
    import pandas as pd

    from ..estimation.result import Fit
    from ..prediction.simulate import simulate as run
    from ..prediction.targets import targets_of

    given = {**source.parameters, "--nugget": source.nugget, "--n": layout.n}
    given |= {"--locations": layout.locations, "--metric": layout.metric}
    more = [name for name, value in given.items() if value is not None]
    if more:
        raise InvalidInput(f"--fit knows the model and where places are: leave out {more[0]}.")
    if layout.at is None:
        raise InvalidInput("--fit needs places: --at.")
    fitted, data = Fit.load(source.fit), options.places_data(layout.at)
    try:
        places, covariates, _ = targets_of(fitted, data)
        fields = run(fitted, places, covariates=covariates, **about)
    except InvalidInput as error:
        raise InvalidInput(f"{layout.at}: {error}") from None
    return pd.DataFrame(places, columns=list(fitted.observations.location_names)), fields


def _laid_out(layout, seed):
    """Return places in the unit square, and what their coordinates are called."""
    from ..prediction.simulate import lay_out

    names = options.words(layout.locations or "x,y")
    if len(names) != 2 or names[0] == names[1]:
        raise InvalidInput(f"--locations needs two different names. Got {layout.locations!r}.")
    return lay_out(layout.n, layout.layout, seed), names


def _at(layout):
    """Return the places of a table, and what their coordinates are called."""
    from ..data import datasets, tables

    known = datasets.DATASETS.get(layout.at)
    names = options.words(layout.locations or "") or (known.locations if known else ("x", "y"))
    if len(set(names)) != len(names):
        raise InvalidInput(f"--locations needs different names. Got {layout.locations!r}.")
    frame = options.places_frame(layout.at)
    try:
        return tables.number_columns(frame, names), names
    except InvalidInput as error:
        raise InvalidInput(f"{layout.at}: {error}") from None


# The command `validate`: how well a fit predicts what it is not shown.


FOLDS = "Folds"
"""A panel of the help."""


def validate(
    fit_file: options.FitFile,
    folds: Annotated[
        int | None, option(FOLDS, "How many: 10 if nothing else is asked for.", options.WHOLE)
    ] = None,
    leave_one_out: Annotated[
        bool, options.flag(FOLDS, "--leave-one-out", "Leave out each observation by itself.")
    ] = False,
    blocks: Annotated[
        float | None,
        option(
            FOLDS,
            "Folds of square blocks of this side, in the unit of the range.",
            options.NUMBER,
        ),
    ] = None,
    refit: Annotated[
        bool, options.flag(FOLDS, "--refit", "Estimate the parameters anew without each fold.")
    ] = False,
    seed: Annotated[int, option(FOLDS, "Seed of random folds.", options.WHOLE, min=0)] = 0,
    on: options.TasksOn = None,
    level: options.Level = 0.95,
    output: options.TableOut = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Predict each observation from others, and score the predictions.

    A fit, and each observation from all others:
      geomxp fit meuse --fix smoothness=0.5 --output meuse.json
      geomxp validate meuse.json --leave-one-out --output errors.csv

    Blocks of 500 m, for predictions away from the data:
      geomxp validate meuse.json --folds 5 --blocks 500

    The parameters estimated anew without each fold:
      geomxp validate meuse.json --folds 4 --refit
    """
    from ..data import tables
    from ..estimation.result import Fit, z_value
    from ..prediction.validation import cross_validate
    from ..prediction.validation import leave_one_out as one_by_one
    from ..runtime.dask import is_cluster

    screen = display.Screen(as_json, quiet)
    given = {"--folds": folds, "--blocks": blocks, "--refit": refit or None}
    given["--on"] = on
    given = [name for name, value in given.items() if value is not None]
    if leave_one_out and given:
        raise InvalidInput(f"--leave-one-out: not with {' and '.join(given)}.")
    tables.check_writable(output, inputs=(fit_file,))
    z_value(level)
    fitted = Fit.load(fit_file)
    if on is not None and is_cluster(fitted.method.on):
        # the fit's own cluster may be gone, and folds share one out better than tiles
        fitted = replace(fitted, method=replace(fitted.method, on="cpu"))
    if leave_one_out:
        found = one_by_one(fitted, progress=screen.progress)
    else:
        count = 10 if folds is None else folds
        about = {"blocks": blocks, "refit": refit, "seed": seed, "on": on or "cpu"}
        found = cross_validate(fitted, count, **about, progress=screen.progress)
    # printed first: a full disk loses no score
    screen.result(lambda: found.to_dict(level), lambda: found.describe(level))
    if output:
        tables.write_frame(found.to_frame(level), output)
        screen.note(f"  predictions written to {output}")
