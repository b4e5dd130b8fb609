"""The likelihood-ratio test of nested fits, by asymptotic distributions or a parametric bootstrap.

For trends by ML the statistic is divided by its mean to order 1/n (a Bartlett correction, see
`small_sample`). The bootstrap simulates from the restricted fit and repeats both fits.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.anisotropy import SECOND_AXIS, THIRD_AXIS, AxisRatios
from ..data import tables
from ..errors import (
    Ending,
    FitFailed,
    GeomxpWarning,
    InvalidInput,
    NotPositiveDefinite,
    check_whole,
)
from ..runtime.devices import blas_threads
from ..runtime.progress import Line
from ..runtime.tasks import Tasks
from .bootstrap import simulated
from .fit import fit_with
from .names import ANISOTROPY, MICROSCALE, NUGGET, RANGE, RATIOS, of_nuggets, titles
from .options import model_options
from .profile import design_of, held_values, limits_of, parameter_of
from .result import check_fit
from .small_sample import trend_inference

if TYPE_CHECKING:
    from .._typing import Client, PathLikeText
    from .result import Fit

RATIO_SLACK = 1e-2
"""Log-likelihood by which the full fit may stay below the restricted one."""

START_NUGGET_RATIO = 0.05
"""Start of a nugget that the model to start from has at 0, in units of the variance."""

ISOTROPY_TEST_LOCATIONS = 150
"""Locations below which chi-square rejects isotropy too often: 22 and 9 % of true models at a level
of 5 % with 60 locations, 7 and 5 % with 200 (experiments/calibration)."""

LARGEST_CORRECTION = 2.0
"""Mean of the statistic, per degree of freedom, above which its expansion is not accurate."""


@dataclass(frozen=True)
class LikelihoodRatio:
    """Result of a likelihood-ratio test.

    Parameters
    ----------
    statistic : float
        2(ℓ_full - ℓ_restricted) ≥ 0.
    degrees_of_freedom : int
        Parameters that the full fit estimates and the restricted one does not.
    p_value : float
    message : str
        The reference distribution of the statistic.
    draws : tuple of float
        Statistics of the bootstrap's draws; none without a bootstrap.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    message: str
    draws: tuple[float, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return (
            f"likelihood ratio {self.statistic:.6g}, {self.degrees_of_freedom} degrees of freedom, "
            f"p = {self.p_value:.4g}: {self.message}"
        )


def likelihood_ratio_test(
    restricted: Fit,
    full: Fit,
    bootstrap: int = 0,
    *,
    seed: int = 0,
    on: str | Client = "cpu",
    checkpoint: PathLikeText | None = None,
    progress: bool = True,
) -> LikelihoodRatio:
    """Test a restricted fit against a full one by their likelihood ratio.

    2(ℓ_full - ℓ_restricted) is compared with chi-square. A parameter that the restricted fit holds
    at a limit of its range (a nugget of 0) can move to one side only: its contribution is 0 half of
    the time, and with d degrees of freedom the distribution is ½χ²_{d-1} + ½χ²_d (Self and Liang
    1987, JASA 82:605, case 6). If only coefficients of the trend are tested (by ML), the statistic
    is divided by its mean per degree of freedom to order 1/n, which is computed for up to 1,500
    locations (Zucker, Lieberman and Manor 2000, JRSS B 62:827).

    With `bootstrap=B`, B data sets are simulated from the restricted fit, both models are fitted to
    each, and p = (1 + #{statistics as large})/(B + 1). This is the reference for few or weakly
    correlated data, where the distributions above are inaccurate: with 60 locations, chi-square
    rejects isotropy in 11 to 14 % of isotropic fields at a level of 5 %.

    Parameters
    ----------
    restricted, full : Fit
        Fits of the same observations by the same method. `full` must estimate all parameters
        that `restricted` estimates. Its family may contain the other one: `independent` is
        `flexible-matern` or `coregionalization` without correlation, and `parsimonious-matern` is
        `flexible-matern` with equal ranges; the same holds in time, for separable models for
        example. One range for each axis is an ellipse or ellipsoid along the axes.
    bootstrap : int
        Number of draws, such as 499; 0 for the asymptotic distribution.
    seed : int
        Draw k uses NumPy's PCG64 with the seed (seed, k), whatever the number of draws.
    on : str or dask.distributed.Client
        "cpu", or a Dask cluster whose workers fit the draws; see `bootstrap`.
    checkpoint : path, optional
        File that keeps the statistics after every draw. The same call resumes from it, also with
        more draws.
    progress : bool
        Show a progress line if standard error is a terminal, after two seconds.

    Returns
    -------
    LikelihoodRatio

    Raises
    ------
    InvalidInput
        If the fits cannot be compared or are not nested; the message gives the reason. If the
        checkpoint belongs to another test.
    FitFailed
        If fewer than half of the draws can be fitted.

    Examples
    --------
    >>> import geomxp as gx
    >>> seen = gx.Observations([[0.0], [1.0], [2.5], [4.0], [4.5]], [1.0, 2.0, 0.5, 0.0, 0.4])
    >>> fit = gx.fit(seen, gx.Matern(1.0, 1.0, 0.5), fixed=("range", "smoothness", "nugget"))
    >>> test = gx.likelihood_ratio_test(fit, fit)
    >>> test.statistic, test.degrees_of_freedom, test.p_value
    (0.0, 0, 1.0)
    """
    check_whole("bootstrap", bootstrap, 0)
    check_whole("seed", seed, 0, inf)
    _check_comparable(restricted, full)
    inside = _within(restricted, full)
    extra = _extra_parameters(inside, full)
    contrasts = _extra_contrasts(restricted, full)
    gain = full.log_likelihood - restricted.log_likelihood
    if gain < -RATIO_SLACK:
        raise InvalidInput(
            f"the log-likelihood of the full fit is {-gain:.4g} below that of the restricted fit, "
            "so the full fit is not at its maximum: fit again with starts=12, or with other start "
            "values (start=)."
        )
    statistic, degrees = 2 * max(gain, 0.0), len(extra) + len(contrasts)
    names = titles(full.model, full.observations)
    parts = [names[name] for name in extra]
    ranges = [p.name for p in full.model.table if p.group == RANGE and p.where]
    if RANGE in restricted.model.parameters() and ranges:
        parts = [names[name] for name in extra if name not in ranges]
        parts += ["equal ranges"] if len(parts) < len(extra) else []
    if len(contrasts):
        parts.append(f"{len(contrasts)} coefficient{'s' * (len(contrasts) > 1)} of the trend")
    tested = f"tested: {', '.join(parts)}"
    if not degrees:
        return LikelihoodRatio(statistic, 0, 1.0, "both fits estimate the same parameters")
    if bootstrap:
        draws = _draws(restricted, full, int(bootstrap), int(seed), on, checkpoint, progress)
        p = (1 + sum(draw >= statistic for draw in draws)) / (1 + len(draws))
        lost = bootstrap - len(draws)
        said = f", {lost} more without a fit" if lost else ""
        message = f"{tested}; compared with {len(draws)} bootstrap draws{said}"
        return LikelihoodRatio(statistic, degrees, p, message, tuple(draws))
    at_end = [name for name in extra if _is_at_limit(inside, name)]
    turned = getattr(full.model, "anisotropy", None)
    axes = isinstance(getattr(restricted.model, "anisotropy", None), AxisRatios)
    if axes or (turned is not None and set(extra) >= set(turned.parameters())):
        # log-ratio and twice the angle are polar coordinates with isotropy as origin, not an edge;
        # those of an ellipsoid are a symmetric matrix of trace 0 (log M'M), which is diagonal for
        # one range for each axis
        at_end = [name for name in at_end if name not in ANISOTROPY]
    mean, said = 1.0, _reference_distribution(degrees, [names[name] for name in at_end])
    if not extra and not full.reml:
        mean, correction = _bartlett(full, contrasts)
        said += correction
    if set(extra) & set(ANISOTROPY) and full.observations.distinct_inputs < ISOTROPY_TEST_LOCATIONS:
        said += (
            f"; with fewer than {ISOTROPY_TEST_LOCATIONS} locations this p is too small: use the "
            "bootstrap (bootstrap=499, --bootstrap 499)"
        )
    p = _tail(statistic / mean, degrees, bool(at_end))
    return LikelihoodRatio(statistic, degrees, p, f"{tested}; {said}")


def at_supremum(fit):
    """Whether a fit's log-likelihood is a maximum or a supremum, which can be compared.

    Also of a fit whose parameters are not identifiable.
    """
    return fit.outcome.good or fit.outcome.ending is Ending.UNIDENTIFIED


def _bartlett(full, contrasts):
    """Return the mean of a statistic of coefficients, per degree of freedom, and words for it."""
    inference = trend_inference(full, restricted=False)
    if inference is None:
        return 1.0, ""
    mean, note = inference.bartlett(contrasts), ""
    if not 1 / LARGEST_CORRECTION < mean < LARGEST_CORRECTION:
        # a mean far above 1 is still nearer the truth than 1
        mean = max(mean, 1.0)
        note = "; inaccurate: use gx.likelihood_ratio_test(restricted, full, bootstrap=499)"
    return mean, f" after division by {mean:.3g} (Bartlett correction{note})"


def _tail(statistic, degrees, at_end):
    """Return the probability of a larger statistic."""
    from scipy.stats import chi2

    def tail(d):
        # χ²₀ is 0
        return float(chi2.sf(statistic, d)) if d else float(statistic <= 0)

    if statistic == 0:
        return 1.0
    return 0.5 * (tail(degrees - 1) + tail(degrees)) if at_end else tail(degrees)


def _reference_distribution(degrees, at_end):
    if not at_end:
        return "compared with chi-square"
    ends = " and the ".join(at_end)
    mixture = f"½χ²({degrees - 1}) + ½χ²({degrees})"
    bound = ", an upper bound of p" if len(at_end) > 1 else ""
    return f"{ends} held at its limit: compared with {mixture}{bound}"


# The parametric bootstrap


def _draws(restricted, full, count, seed, on, checkpoint, progress):
    """Return the statistics of the draws that can be fitted, in order."""
    tasks, mark = Tasks(on, full.method), _fingerprint(restricted, full, seed)
    done = _resume(checkpoint, mark)[:count]
    values = simulated(restricted, count, seed)[len(done) :]
    with Line("bootstrapping", count, "draws", progress) as line:
        for _ in done:
            line.advance()
        for statistic in tasks.over(statistic_of, (restricted, full), values, line.advance):
            done.append(statistic)
            if checkpoint is not None:
                tables.write_json(checkpoint, {"problem": mark, "statistics": done})
    draws = [statistic for statistic in done if statistic is not None]
    if 2 * len(draws) < count:
        raise FitFailed(
            f"only {len(draws)} of {count} draws could be fitted: data simulated from the "
            "restricted fit do not identify the parameters. Fix some of them in both fits (fixed=)."
        )
    return draws


def statistic_of(fits, values):
    """Return the statistic of one draw, or None where a model has no likelihood."""
    restricted, full = fits
    observations = replace(full.observations, values=values, lower=None, upper=None, source={})
    smaller = reached(restricted, observations, restricted.model)
    if smaller is None:
        return None
    # from the restricted maximum, so that the full one is never below it; and from the data
    inside = _within(smaller, full)
    starts = (None,) if inside is None else (inside.model, None)
    ends = [reached(full, observations, start) for start in starts]
    most = max((end.log_likelihood for end in ends if end is not None), default=-inf)
    return 2 * max(most - smaller.log_likelihood, 0.0)


def reached(fit, observations, start=None):
    """Fit other observations with the settings of a fit; None where no likelihood is finite.

    The search starts at the values of a model, which may have fewer parameters; by default where
    the data suggest. The end of the search is returned, whatever its outcome: its log-likelihood is
    the largest one found.
    """
    held, values = held_values(fit), {}
    if start is not None:
        values = independent_noise(fit.model) | start.parameters()
        values = {n: value for n, value in values.items() if n not in held}
        if values.get(NUGGET) == 0:
            values[NUGGET] = START_NUGGET_RATIO * start.largest_variance
    # no direction is known of an isotropic model
    ratios = [values[name] for name in RATIOS if name in values]
    if ratios and min(ratios) == 1:
        values = {n: value for n, value in values.items() if n not in ANISOTROPY}
    for name, (lower, upper) in fit.bounds.items():
        if name in values:
            values[name] = min(max(values[name], lower), upper)
    with warnings.catch_warnings():
        # the fit has warned already
        warnings.simplefilter("ignore", GeomxpWarning)
        try:
            options = model_options(fit) | {"start": values}
            return fit_with(
                observations, None, fit.method, options, progress=False, raise_on_failure=False
            )
        except NotPositiveDefinite:
            return None


def _fingerprint(restricted, full, seed):
    """Return a hash of everything that determines the draws' statistics."""
    digest = hashlib.sha256(f"{full.observations.digest()} {seed}".encode())
    for fit in (restricted, full):
        bounds, held = sorted(fit.bounds.items()), sorted(held_values(fit).items())
        settings = fit.model, fit.coefficients.tolist(), fit.trend.text, fit.reml, fit.method
        digest.update(repr((settings, (bounds, held, fit.free, fit.boundary))).encode())
    return digest.hexdigest()


def _resume(path, mark):
    """Return the statistics in a checkpoint; none if it does not exist yet."""
    if path is None or tables.kind_of(path) is None:
        return []
    state = tables.read_json(path)
    done = state.get("statistics")
    known = isinstance(done, list) and all(
        each is None or (isinstance(each, (int, float)) and 0 <= each < inf) for each in done
    )
    if not known:
        raise InvalidInput(f"{path}: not a checkpoint of a bootstrap; choose another file.")
    if state.get("problem") != mark:
        raise InvalidInput(
            f"{path}: a checkpoint of another test (fits or seed differ): delete it or choose "
            "another file."
        )
    tables.warn_if_edited(path, state)
    return done


# Whether fits are nested


def _check_comparable(restricted, full):
    """Validate that both are maxima of the same likelihood of the same data."""
    for fit in (restricted, full):
        check_fit(fit)
        if not at_supremum(fit):
            raise InvalidInput(
                f"the fit has no estimate ({fit.outcome}): fix a parameter, or fit again with more "
                "evaluations and starts, gx.fit(observations, starts=12)."
            )
    if restricted.observations.digest() != full.observations.digest():
        raise InvalidInput("the two fits use different observations: fit both to the same.")
    if restricted.reml != full.reml:
        raise InvalidInput("one fit uses REML and the other ML: use the same for both.")
    if restricted.method.arithmetic != full.method.arithmetic:
        raise InvalidInput(
            "the two fits approximate the likelihood in different ways: use one method for both."
        )
    if _within(restricted, full) is None:
        raise InvalidInput(
            f"the fits are not nested: their families are {restricted.model.family} and "
            f"{full.model.family}. Compare them by AIC: `geomxp.compare_models`."
        )
    if type(restricted.model.response) is not type(full.model.response):
        raise InvalidInput(
            "the fits are not nested: their responses differ. Compare them by AIC, if both are "
            "densities, or both probabilities, of the same values."
        )
    if _kind(restricted.model.transform) != _kind(full.model.transform):
        raise InvalidInput(
            "the fits are not nested: their transformations differ. Compare them by AIC, "
            "or fix parameters of one transformation, for example fixed={'boxcox_power': 0}."
        )
    if full.reml and not np.array_equal(design_of(restricted), design_of(full)):
        raise InvalidInput(
            "restricted likelihoods with different trends are densities of different data "
            "(contrasts): compare trends by ML (reml=False)."
        )


def _within(restricted, full):
    """Return the restricted fit as one of the family of the full fit, or None."""
    family = type(full.model)
    found = restricted.model.as_member_of(family)
    if found is None:
        return None
    model, names = found
    if _frees_ellipse(full):
        model, names = with_ellipse(model), AXES_AS_RATIOS | names
    try:
        model.check_valid_on(full.observations.metric, full.observations.dimensions)
    except InvalidInput:
        return None
    free, boundary = (
        tuple(names.get(name, name) for name in some)
        for some in (restricted.free, restricted.boundary)
    )
    return replace(restricted, model=model, free=free, boundary=boundary)


def _frees_ellipse(fit):
    """Whether a fit estimates all lengths and all parameters of an ellipse or ellipsoid."""
    given, estimated = getattr(fit.model, "anisotropy", None), set(fit.free + fit.boundary)
    if given is None or isinstance(given, AxisRatios):
        return False
    return estimated >= {
        *given.parameters(),
        *(p.name for p in fit.model.table if p.unit == "length"),
    }


AXES_AS_RATIOS = {SECOND_AXIS.name: RATIOS[0], THIRD_AXIS.name: RATIOS[1]}
"""Parameters of one range for each axis, and those that take their places in an ellipsoid."""


def with_ellipse(model):
    """Return a model of one range for each axis as one of an ellipse or ellipsoid; others as is.

    Examples
    --------
    >>> import geomxp as gx
    >>> model = with_ellipse(gx.Matern(1.0, 2.0, 0.5, anisotropy=gx.AxisRatios(4.0)))
    >>> model.range, model.anisotropy
    (8.0, Anisotropy(angle=90.0, ratio=0.25))
    """
    given = getattr(model, "anisotropy", None)
    if not isinstance(given, AxisRatios):
        return model
    longest, ellipse = given.ellipse()
    values = {p.name: p.value * (longest if p.unit == "length" else 1.0) for p in model.table}
    values = {name: x for name, x in values.items() if name not in ANISOTROPY}
    known = values | ellipse.parameters()
    return type(model).from_parameters(known, model.transform, model.response)


def _kind(transform):
    """Return the class of a transformation, and its constants that are no parameters."""
    if transform is None:
        return None
    held = transform.constants().items() - transform.parameters().items()
    return type(transform), transform.name, sorted(held)


def _extra_parameters(restricted, full):
    """Return the covariance parameters that only the full fit estimates, in their order."""
    # a model without microscale variation or nugget covariances is one where they are 0
    theirs = full.model.parameters()
    ours = {MICROSCALE: 0.0} | independent_noise(full.model) | restricted.model.parameters()
    estimated, more = (set(fit.free + fit.boundary) for fit in (restricted, full))
    if estimated - more:
        raise InvalidInput(
            f"the fits are not nested: `restricted` estimates {', '.join(sorted(estimated - more))}"
            " and `full` does not. Exchange them, or free the same parameters."
        )
    for name, value in held_values(full).items():
        if not _isotropic(restricted, name) and ours[name] != value:
            raise InvalidInput(
                f"the fits are not nested: {name} is held at {ours[name]:g} in `restricted` and at "
                f"{value:g} in `full`."
            )
    if not set(ANISOTROPY) & set(theirs) and set(ANISOTROPY) & set(ours):
        raise InvalidInput("the fits are not nested: `restricted` is anisotropic, `full` is not.")
    return [name for name in theirs if name in more - estimated]


def independent_noise(model):
    """Return the nugget covariances of a model, as they are without: {name: 0.0}."""
    return {p.name: 0.0 for p in model.table if of_nuggets(p)}


def _isotropic(fit, name):
    """Whether a parameter has no meaning in a fit: those of anisotropy in an isotropic model."""
    return name in ANISOTROPY and name not in fit.model.parameters()


def _is_at_limit(restricted, name):
    """Whether a fit holds a parameter at a limit, from where it can move to one side only."""
    if _isotropic(restricted, name):
        return name in RATIOS
    parameter = parameter_of(restricted, name)
    return parameter.value in limits_of(restricted, parameter)


@blas_threads(0)
def _extra_contrasts(restricted, full):
    """Return contrasts C, (q, p), with Cβ = 0 where the full trend is one of the restricted fit."""
    small, large = design_of(restricted), design_of(full)
    p, scale = large.shape[1], np.abs(large).max(axis=0, initial=1e-300)
    if not small.shape[1]:
        return np.eye(p)
    rest, spanned = small, np.zeros((p, small.shape[1]))
    if p:
        spanned = np.linalg.lstsq(large / scale, small, rcond=None)[0]
        rest = small - (large / scale) @ spanned
    # rounding of a projection of n numbers
    if np.abs(rest).max() > 64 * len(small) * np.finfo(float).eps * np.abs(small).max():
        raise InvalidInput(
            f"the fits are not nested: the trend of `restricted` ({restricted.trend.text}) is "
            f"not part of that of `full` ({full.trend.text})."
        )
    # orthogonal complement of the restricted fit's coefficients
    q, _ = np.linalg.qr(spanned, mode="complete")
    return q[:, small.shape[1] :].T * scale
