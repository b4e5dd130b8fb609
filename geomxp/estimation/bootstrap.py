"""Parametric bootstrap: refit data simulated from a fit."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.anisotropy import DIP
from ..covariance.responses import Data
from ..errors import (
    Ending,
    FitFailed,
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    check_one_of,
    check_whole,
)
from ..likelihood.latent import bare
from ..runtime.devices import blas_threads
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from .diagnose import derived_logarithms, exp_or_inf, z_value
from .fit import fit_with
from .names import ANISOTROPY, NUGGET, RATIOS
from .options import model_options
from .profile import design_of
from .result import check_is_fit

if TYPE_CHECKING:
    from .._typing import Client, Frame, Intervals
    from .result import Fit

BOOTSTRAP_STREAM = 3
"""Number of the random stream of draws; streams 1 and 2 are in use elsewhere."""


@dataclass(frozen=True)
class Bootstrap:
    """Estimates from simulated data.

    Parameters
    ----------
    estimates : pandas.DataFrame
        One row for each draw with an estimate, the number of the draw as index: the covariance
        parameters that the fit estimated, its trend's coefficients ("trend: intercept"), and
        "microergodic", σ²a^(-2ν).
    estimate : dict of str to float
        Estimates of the fit from which the draws were simulated.
    draws : int
    seed : int
    failures : dict of str to int
        Number of draws without an estimate, by outcome; they are not in `estimates`.
    plain : tuple of str
        Parameters that are not estimated in logarithms: angles, and some of transformations.
    """

    estimates: Frame
    estimate: dict[str, float]
    draws: int
    seed: int
    failures: dict = field(default_factory=dict)
    plain: tuple[str, ...] = ANISOTROPY[:1]

    def __repr__(self) -> str:
        names = ", ".join(self.estimate)
        return f"<Bootstrap of {names:.120}: {self.draws:,} draws, seed {self.seed}>"

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard deviation of each column over the draws, as a dict; of an angle in degrees."""
        return {name: float(value) for name, value in self.estimates.std(ddof=1).items()}

    @property
    def bias(self) -> dict[str, float]:
        """Mean over the draws minus the fit's estimate, as a dict."""
        means = self.estimates.mean()
        return {name: float(means[name] - value) for name, value in self.estimate.items()}

    def intervals(self, level: float = 0.95, method: str = "percentile") -> Intervals:
        """Return confidence intervals, as a dict of name to (lower, upper).

        "percentile": quantiles q of the draws. "basic": θ̂²/q for positive quantities, that is
        2 log θ̂ - log q in logarithms; 2θ̂ - q for the nugget (0 at least), angles and coefficients.

        Parameters
        ----------
        level : float
        method : {"percentile", "basic"}

        Raises
        ------
        InvalidInput
        """
        z_value(level)
        check_one_of("method", method, ("percentile", "basic"))
        shares = (0.5 - level / 2, 0.5 + level / 2)
        result = {}
        for name, value in self.estimate.items():
            low, high = (float(q) for q in np.quantile(self.estimates[name], shares))
            if method == "basic":
                low, high = _reflected(name, value, low, high, name in self.plain)
            result[name] = (low, high)
        return result

    def to_frame(self, level: float = 0.95) -> Frame:
        """Return a pandas frame: estimate, bias, standard_error, lower, upper (percentiles)."""
        import pandas as pd

        bias, errors, ends = self.bias, self.standard_errors, self.intervals(level)
        rows = [
            (name, value, bias[name], errors[name], *ends[name])
            for name, value in self.estimate.items()
        ]
        columns = ["parameter", "estimate", "bias", "standard_error", "lower", "upper"]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        lines = [
            f"Parametric bootstrap, {self.draws} draws, seed {self.seed}",
            "",
            f"  {'parameter':<18}{'estimate':>13}{'bias':>13}{'std. error':>13}"
            f"{'95 % from':>13}{'to':>13}",
        ]
        for row in self.to_frame().itertuples(index=False):
            numbers = "".join(f"{value:>13.5g}" for value in row[1:])
            lines.append(f"  {row[0].replace('_', ' '):<18}{numbers}")
        lost = sum(self.failures.values())
        if lost:
            outcomes = ", ".join(f"{count} {name}" for name, count in self.failures.items())
            lost = f"{lost} of {self.draws} draws have no estimate and are left out"
            lines += ["", f"  {lost}: {outcomes}"]
        return "\n".join(lines)


def bootstrap(
    fit: Fit,
    draws: int = 200,
    seed: int = 0,
    *,
    on: str | Client = "cpu",
    progress: bool = True,
) -> Bootstrap:
    """Simulate data from a fit's estimate, and refit each draw with the settings of the fit.

    z* = Xβ̂ + L w with Σ(θ̂) = L L' and w independent standard normal. Each search starts at θ̂, with
    the bounds and the fixed parameters of the fit.

    Parameters
    ----------
    fit : Fit
    draws : int
    seed : int
        Draw k uses NumPy's PCG64 with the seed (seed, k), whatever the number of draws. Methods
        with another order of rows give other draws.
    on : str or dask.distributed.Client
        "cpu": one draw after the other, in this process. Or a Dask cluster: the address of its
        scheduler, "tcp://host:8786", or a client; each draw is then fitted on a worker.
    progress : bool
        Show a progress line if standard error is a terminal, after two seconds.

    Returns
    -------
    Bootstrap

    Raises
    ------
    InvalidInput
        If the fit has no estimate or no free parameter, or `on` is invalid.
    FitFailed
        If fewer than 2 draws have an estimate.
    LostCluster
        If the scheduler of the cluster is lost, or workers are lost again and again.

    Notes
    -----
    Estimates have the same bits on any number of workers, with one exception: untiled FP64
    (`Exact()`) at 600 locations or more depends on the number of cores of a task, which is the
    number of cores of a worker divided by its threads.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"))
    >>> few, more = gx.bootstrap(fit, draws=3), gx.bootstrap(fit, draws=5)
    >>> few.estimates.equals(more.estimates[:3])
    True
    """
    check_is_fit(fit)
    check_whole("draws", draws, 2)
    check_whole("seed", seed, 0, inf)
    if not (fit.free or fit.boundary):
        raise InvalidInput("every parameter of the fit was given: there is nothing to estimate.")
    tasks, rows, failures = Tasks(on, fit.method), {}, Counter()
    with Line("bootstrapping", draws, "draws", progress) as line:
        values = simulated(fit, draws, seed)
        for k, (row, ending) in enumerate(tasks.over(_estimated, fit, values, line.advance)):
            if row is None:
                failures[ending] += 1
            else:
                rows[k] = row
    if len(rows) < 2:
        lost = ", ".join(f"{count} {name}" for name, count in failures.items())
        raise FitFailed(
            f"only {len(rows)} of {draws} draws have an estimate ({lost}): such data do not "
            "identify all parameters; fix some of them."
        )
    import pandas as pd

    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.index.name = "draw"
    plain = tuple(p.name for p in fit.model.table if p.transform == "identity")
    return Bootstrap(frame, _row(fit, fit), int(draws), int(seed), dict(failures), plain)


def refit(fit, observations, method):
    """Fit other observations with the settings of a fit, started at its estimate."""
    # the model has the transformation
    options = model_options(fit) | {"transform": None, "response": None}
    return fit_with(
        observations, fit.model, method, options, progress=False, raise_on_failure=False
    )


def simulated(fit, draws, seed):
    """Return draws of the values; the factor is released before the fits."""
    observations, design = fit.observations, design_of(fit)
    if fit.model.response is not None:
        return _simulated_values(fit, draws, seed)
    values = []
    with blas_threads(len(observations)):
        mean = design @ fit.coefficients
        factor = fit.method.prepare(observations, design, fit.reml).factorize(fit.model)
        for k in range(draws):
            # one by one: products of several columns may round differently
            # `simulate` with the same seed draws other numbers
            random = np.random.default_rng([seed, BOOTSTRAP_STREAM, k])
            white = random.standard_normal((len(observations), 1))
            values.append(mean + factor.multiply(np.asfortranarray(white))[:, 0])
    if fit.model.transform is None:
        return values
    transform = fit.model.transform.of(observations.variable)
    return [_measured(transform, z) for z in values]


def _simulated_values(fit, draws, seed):
    """Return draws of the values of a response."""
    observations, response = fit.observations, fit.model.response
    if observations.lower is not None:
        raise InvalidInput(
            "values with limits cannot be simulated, because the limits of values that are known "
            "exactly are unknown. Use profile intervals: "
            "fit.confidence_intervals(method='profile')."
        )
    field = bare(fit.model)
    # values without noise at one place share the field
    places = observations.inputs.first_rows()
    if field.noise(observations.inputs).unshared.any():
        places = np.arange(len(observations))
    first, of = np.unique(places, return_inverse=True)
    inputs = observations.inputs[first]
    eta = design_of(fit) @ fit.coefficients
    if observations.total_offset is not None:
        eta = eta + observations.total_offset
    data, values = Data(observations.values, trials=observations.trials), []
    with blas_threads(len(first)):
        factor = fit.method.of_rows(first).prepare(inputs).factorize(field)
        for k in range(draws):
            random = np.random.default_rng([seed, BOOTSTRAP_STREAM, k])
            white = random.standard_normal((len(first), 1))
            drawn = factor.multiply(np.asfortranarray(white))[:, 0]
            values.append(response.draw(data, eta + drawn[of.reshape(-1)], random))
    return values


def _measured(transform, z):
    """Return values drawn on the Gaussian scale as measured ones; refuse those that cannot be."""
    values, (low, high) = transform.inverse(z), transform.support
    lost = int(np.sum(~(np.isfinite(values) & (low < values) & (values < high))))
    if lost:
        raise InvalidInput(
            f"{lost:,} of the {len(z):,} values of a draw are beyond the range of the "
            f"transformation {transform.name!r}, so that the draw cannot be fitted again: use a "
            "transformation without such limits (log, logit or tukey-gh), or profile intervals: "
            "fit.confidence_intervals(method='profile')."
        )
    return values


def _estimated(fit, values):
    """Return a row of the frame from a refit to other values; or None, and its outcome."""
    with warnings.catch_warnings():
        # the fit has warned already, and failures are counted
        warnings.simplefilter("ignore", GeomxpWarning)
        try:
            observations = replace(
                fit.observations, values=values, lower=None, upper=None, source={}
            )
            again = refit(fit, observations, fit.method)
        except NotPositiveDefinite:
            return None, str(Ending.NOT_POSITIVE_DEFINITE)
    if not again.outcome.good:
        return None, str(again.outcome.ending)
    return _row(again, fit), None


def _row(again, fit):
    """Return a row of the frame: parameters, coefficients and the microergodic parameter."""
    values, angle = again.model.parameters(), ANISOTROPY[0]
    row = {name: values[name] for name in values if name in fit.free + fit.boundary}
    if angle in row and DIP.name not in values:
        # angles that differ by 180 degrees are equal: choose the nearest to the fit's
        row[angle] -= 180.0 * round((row[angle] - fit.model.parameters()[angle]) / 180.0)
    for name, value in zip(again.trend.names, again.coefficients, strict=True):
        row[f"trend: {name}"] = float(value)
    known = derived_logarithms(again.model).get("microergodic")
    return row if known is None else row | {"microergodic": exp_or_inf(known[0])}


def _reflected(name, value, low, high, plain):
    """Return the basic interval of quantiles; `plain` for a parameter that is not positive."""
    if plain or name.startswith("trend: "):
        return 2 * value - high, 2 * value - low
    if name == NUGGET:
        return max(2 * value - high, 0.0), max(2 * value - low, 0.0)
    top = 1.0 if name in RATIOS else np.inf
    return value * (value / high), min(value * (value / low), top)
