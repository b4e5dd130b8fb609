"""Options that several commands have, together with what they mean.

A parameter of a command may be one of these classes: `joined` makes an option of each of its
fields, and hands the command the whole.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature

from . import choices, options


def joined(command):
    """Return a command for typer, which knows no dataclasses: their fields are its parameters."""
    kinds, flat = {}, []
    for name, parameter in signature(command).parameters.items():
        kind = parameter.annotation
        if is_dataclass(kind):
            kinds[name] = kind
            flat += [_parameter(field) for field in fields(kind)]
        else:
            # by name, so that what must be given may stand behind what need not
            flat.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given):
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in kinds.items()
        }
        return command(**given, **made)

    run.__signature__ = Signature(flat)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


def _parameter(field):
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


@dataclass(frozen=True)
class Data:
    """A table, and which of its columns are what."""

    table: options.Table
    locations: options.Locations = None
    value: options.Value = None
    covariates: options.Covariates = None
    metric: options.Metric = None
    crs: options.Crs = None
    drop_missing: options.DropMissing = False

    def observations(self, formula=None):
        """Return the observations, with the columns that a formula (or several) names."""
        return choices.observations(
            *(self.table, self.locations, self.value, self.covariates, self.metric),
            *(self.drop_missing, formula, self.crs),
        )


@dataclass(frozen=True)
class Mean:
    """The trend, and which likelihood its coefficients are left out of."""

    trend: options.Trend = None
    formula: options.Formula = None
    reml: options.Reml = False

    def of(self, data, default):
        """Return the trend as the library takes it; `default` if none is named."""
        return choices.trend_of(self.trend, self.formula, data.covariates, default)


@dataclass(frozen=True)
class Parameters:
    """A model that is given."""

    variance: options.Variance
    range_: options.Range
    smoothness: options.Smoothness
    nugget: options.Nugget = 0.0

    def model(self):
        """Return the model."""
        from ..covariance.matern import Matern

        return Matern(self.variance, self.range_, self.smoothness, self.nugget)


@dataclass(frozen=True)
class Search:
    """What is estimated, and how the maximum is looked for."""

    fix: options.Fix = None
    bounds: options.Bounds = None
    anisotropy: options.Anisotropy = False
    search: options.Search = "scoring"
    start: options.Start = None
    starts: options.Starts = 1
    starts_on: options.StartsOn = "cpu"
    tolerance: options.Tolerance = 1e-6
    evaluations: options.Evaluations = 1000
    checkpoint: options.Checkpoint = None
    seed: options.Seed = 0

    def settings(self):
        """Return what `geomxp.fit` takes of it, as a dict."""
        return {
            "fixed": choices.pairs("--fix", self.fix),
            "start": choices.pairs("--start", self.start),
            "bounds": choices.boxes(self.bounds),
            "anisotropy": self.anisotropy,
            "search": self.search,
            "starts": self.starts,
            "starts_on": self.starts_on,
            "tolerance": self.tolerance,
            "evaluations": self.evaluations,
            "checkpoint": self.checkpoint,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Way:
    """How a likelihood is computed, and where."""

    method: options.Method = "exact"
    neighbours: options.Neighbours = None
    accuracy: options.Accuracy = None
    kl: options.Kl = None
    layers: options.Layers = None
    tile: options.Tile = None
    refine: options.Refine = None
    fallback: options.Fallback = False
    on: options.On = "cpu"
    memory: options.Memory = None
    device_memory: options.DeviceMemory = None
    scratch: options.Scratch = None

    def how(self):
        """Return the way to compute."""
        general = ("method", "neighbours", "on")
        exact = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in general
        }
        return choices.method(self.method, self.neighbours, self.on, exact)
