"""The command `simulate`: fields of a model, or of a fit given its observations."""

from dataclasses import dataclass
from typing import Annotated

from ..errors import InvalidInput
from . import choices, completion, display, groups, options
from .options import option

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


@groups.joined
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
    from .. import tables

    screen = display.Screen(as_json, quiet)
    tables.check_writable(output, inputs=(source.fit, layout.at))
    choices.check_of(source.of)
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

    from ..inference.simulate import simulate as run
    from ..places import names_say_degrees

    model = source.model()
    if (layout.n is None) == (layout.at is None):
        raise InvalidInput("give either --n or --at.")
    places, names = _laid_out(layout, about["seed"]) if layout.at is None else _at(layout)
    metric = layout.metric or ("chordal" if names_say_degrees(names) else "euclidean")
    return pd.DataFrame(places, columns=list(names)), run(model, places, metric=metric, **about)


def _of_fit(source, layout, about):
    """Return the coordinates of places, and a fit's fields there."""
    import pandas as pd

    from ..exchange import frames
    from ..inference.estimate import Fit
    from ..inference.simulate import simulate as run

    given = {**source.parameters, "--nugget": source.nugget, "--n": layout.n}
    given |= {"--locations": layout.locations, "--metric": layout.metric}
    more = [name for name, value in given.items() if value is not None]
    if more:
        raise InvalidInput(f"--fit knows the model and where places are: leave out {more[0]}.")
    if layout.at is None:
        raise InvalidInput("--fit needs places: --at.")
    fitted, data = Fit.load(source.fit), choices.places_data(layout.at)
    try:
        places, covariates, _ = frames.targets(fitted, data)
        fields = run(fitted, places, covariates=covariates, **about)
    except InvalidInput as error:
        raise InvalidInput(f"{layout.at}: {error}") from None
    return pd.DataFrame(places, columns=list(fitted.observations.location_names)), fields


def _laid_out(layout, seed):
    """Return places in the unit square, and what their coordinates are called."""
    from ..inference.simulate import lay_out

    names = choices.words(layout.locations or "x,y")
    if len(names) != 2 or names[0] == names[1]:
        raise InvalidInput(f"--locations needs two different names. Got {layout.locations!r}.")
    return lay_out(layout.n, layout.layout, seed), names


def _at(layout):
    """Return the places of a table, and what their coordinates are called."""
    from .. import datasets, tables

    known = datasets.DATASETS.get(layout.at)
    names = choices.words(layout.locations or "") or (known.locations if known else ("x", "y"))
    if len(set(names)) != len(names):
        raise InvalidInput(f"--locations needs different names. Got {layout.locations!r}.")
    frame = choices.places_frame(layout.at)
    try:
        return tables.number_columns(frame, names), names
    except InvalidInput as error:
        raise InvalidInput(f"{layout.at}: {error}") from None
