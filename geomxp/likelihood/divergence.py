"""Kullback-Leibler divergence: between two models, and of a mixed factor from FP64."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.ordering import hilbert
from ..data.arrays import checked_inputs
from ..data.observations import Observations
from ..errors import InvalidInput, NotPositiveDefinite, NotRefined
from ..linalg.precision import PrecisionMap, layers_of
from ..runtime.devices import blas_threads, gpu_memory, human_bytes, resolve
from ..runtime.progress import Line
from ..tiles import assemble
from .base import Likelihood, coincidence, noiseless_twins
from .exact import Exact, check_is_method, check_is_model
from .factors import check_memory, explain
from .probes import WHITENED_COLUMNS, measure, trace_between
from .replicates import Groups, sufficient
from .trend import Trend, fit_trend

if TYPE_CHECKING:
    from .._typing import ArrayLike, Document, Sequence
    from ..covariance.base import Covariance
    from ..covariance.inputs import Inputs

GPU_WHITENED_COLUMNS = 1024
"""Columns of L₀ that are whitened at a time on a GPU."""


@dataclass(frozen=True)
class Divergence:
    """Divergence of an approximate covariance from FP64 at given locations.

    Parameters
    ----------
    kl : float
        ½(tr(Σₐ⁻¹Σ₀) - n + log|Σₐ| - log|Σ₀|), in nats, with Σ₀ in FP64 and Σₐ = LL': never below
        0 but by rounding, of about n·u.
    kl_log_determinant : float
        ℓ₀(θ; 0) - ℓₐ(θ; 0) = ½(log|Σₐ| - log|Σ₀|): what the papers call the divergence.
    log_determinant_error : float
        log|Σₐ| - log|Σ₀|.
    quadratic_form_error : float or None
        r'Σₐ⁻¹r - r'Σ₀⁻¹r, where there are values.
    formats : PrecisionMap or None
        As they were in the end; None for Vecchia's approximation.
    bytes : int
        Of the factor in its formats.
    promotions : int
    seconds : float
        Of the approximate factorization, generation included.
    reference_seconds : float
        Of the FP64 factorization, generation included.
    reference : dict
        log_determinant, and with values quadratic_form, in FP64.
    n : int
    neighbours : int or None
        Of Vecchia's approximation. There KL(Σ₀ ‖ Σₐ) = ½(log|Σₐ| - log|Σ₀|): the blocks are those
        of Σ₀ itself, so that the trace is n, and both divergences are one.
    """

    kl: float
    kl_log_determinant: float
    log_determinant_error: float
    quadratic_form_error: float | None
    formats: PrecisionMap | None
    bytes: int
    promotions: int
    seconds: float = field(compare=False)
    reference_seconds: float = field(compare=False)
    reference: dict[str, float]
    n: int
    neighbours: int | None = None

    @property
    def speedup(self) -> float:
        """Seconds of FP64 over seconds of this."""
        return self.reference_seconds / self.seconds

    def to_dict(self) -> Document:
        """Return a row of `geomxp compare --json`."""
        return {
            "formats": {} if self.formats is None else self.formats.counts(),
            "bytes": self.bytes,
            "kl": self.kl,
            "kl_log_determinant": self.kl_log_determinant,
            "log_determinant_error": self.log_determinant_error,
            "quadratic_form_error": self.quadratic_form_error,
            "predicted_kl": None if self.formats is None else self.formats.divergence,
            "promotions": self.promotions,
            "seconds": self.seconds,
            "speedup": self.speedup,
        } | ({} if self.neighbours is None else {"neighbours": self.neighbours})

    def __str__(self) -> str:
        lines = [
            f"KL divergence              {self.kl:.4g} nats, {self.n:,} locations",
            f"KL by log-determinants     {self.kl_log_determinant:.4g}",
            f"log-determinant error      {self.log_determinant_error:.4g}",
        ]
        if self.quadratic_form_error is not None:
            lines.append(f"quadratic form error       {self.quadratic_form_error:.4g}")
        if self.formats is None:
            lines.append(f"neighbours                 {self.neighbours}")
        else:
            if self.formats.divergence is not None:
                lines.insert(1, f"predicted                  {self.formats.divergence:.4g}")
            counts = ", ".join(f"{count} {name}" for name, count in self.formats.counts().items())
            lines.append(f"tiles                      {counts}; {self.promotions} promoted")
        lines += [
            f"memory                     {human_bytes(self.bytes)}",
            f"seconds                    {self.seconds:.3f}, {self.speedup:.2f} times FP64",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class EstimatedDivergence:
    """Divergence of a factor in tiles from Σ, estimated from random vectors without an FP64 factor.

    Parameters
    ----------
    kl : float
        ¼‖L⁻¹ΣL⁻ᵀ - I‖_F², in nats: the divergence where it is small.
    standard_error : float
        Of `kl`, from the scatter between the vectors.
    probes : int
        Number of random vectors.
    formats : PrecisionMap
        As they were in the end.
    bytes : int
        Of the factor in its formats.
    promotions : int
    seconds : float
        Of the factorization, generation included.
    n : int
    """

    kl: float
    standard_error: float
    probes: int
    formats: PrecisionMap
    bytes: int
    promotions: int
    seconds: float = field(compare=False)
    n: int

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.formats.counts().items())
        return "\n".join(
            [
                f"KL divergence              {self.kl:.3g} ± {self.standard_error:.1g} nats, "
                f"{self.n:,} locations, {self.probes} random vectors",
                f"tiles                      {counts}; {self.promotions} promoted",
                f"memory                     {human_bytes(self.bytes)}",
                f"seconds                    {self.seconds:.3f}",
            ]
        )


class _Reference:
    """FP64 factor of a model, with which others are compared."""

    def __init__(self, observations, model, design, on, patience=2.0):
        self.observations, self.model, self.design = observations, model, design
        self.patience, self.on = patience, resolve(on)
        self.factor, self.seconds = _timed(Exact(on=on), observations, model, patience)
        self.log_determinant = self.factor.log_determinant()
        self.quadratic_form = self._quadratic_form(self.factor)

    def _quadratic_form(self, factor):
        if self.design is None:
            return None
        return fit_trend(factor, self.observations.values, self.design).quadratic_form

    def compare(self, method):
        """Return the `Divergence` of a method."""
        n = len(self.observations)
        neighbours = method.neighbours
        factor, seconds = _timed(method, self.observations, self.model, self.patience)
        difference = factor.log_determinant() - self.log_determinant
        with blas_threads(n):
            step = GPU_WHITENED_COLUMNS if self.on.index is not None else WHITENED_COLUMNS
            trace = float(n)
            if neighbours is None:
                trace = trace_between(self.factor, factor, step)
        form = self._quadratic_form(factor)
        reference = {"log_determinant": self.log_determinant}
        if form is not None:
            reference["quadratic_form"] = self.quadratic_form
        return Divergence(
            kl=0.5 * (trace - n + difference),
            kl_log_determinant=0.5 * difference,
            log_determinant_error=difference,
            quadratic_form_error=None if form is None else form - self.quadratic_form,
            formats=factor.precision_map,
            bytes=factor.nbytes,
            promotions=factor.promotions,
            seconds=seconds,
            reference_seconds=self.seconds,
            reference=reference,
            n=n,
            neighbours=neighbours,
        )


def _timed(method, observations, model, patience):
    """Return a factor and its seconds, the minimum of up to three runs without preparation.

    Runs are repeated until they have taken `patience` seconds.
    """
    # of inputs: observations would be reduced to their means once more
    seconds, evaluator = [], method.prepare(observations.inputs)
    while not seconds or (len(seconds) < 3 and sum(seconds) < patience):
        start = time.perf_counter()
        with blas_threads(len(observations)):
            factor = evaluator.factorize(model)
        seconds.append(time.perf_counter() - start)
    return factor, min(seconds)


@gpu_memory()
def kl_divergence(
    model: Covariance,
    locations: ArrayLike | Inputs | Observations,
    method: Likelihood,
    *,
    metric: str = "euclidean",
    trend: str = "zero",
    progress: bool = True,
) -> Divergence:
    """Return the Kullback-Leibler divergence of a method from FP64.

    Parameters
    ----------
    model : Covariance
    locations : (n, d) array_like, Inputs or Observations
        With observations, the quadratic form is compared as well.
    method : Exact or Vecchia
    metric : str
        Of an array of locations.
    trend : str
        Of observations.
    progress : bool
        Show a line where standard error is a terminal, after two seconds.

    Returns
    -------
    Divergence

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor in FP64.

    Examples
    --------
    >>> import geomxp as gx
    >>> locations = np.random.default_rng(0).random((200, 2))
    >>> method = gx.Exact(gx.by_tile_norm(1e-6), tile=50)
    >>> kl_divergence(gx.Matern(1.0, 0.1, 0.5), locations, method).kl < 1e-6
    True
    """
    return compare(model, locations, (method,), metric=metric, trend=trend, progress=progress)[0]


@gpu_memory()
def estimate_divergence(
    model: Covariance,
    locations: ArrayLike | Inputs | Observations,
    method: Likelihood,
    *,
    metric: str = "euclidean",
    probes: int = 32,
) -> EstimatedDivergence:
    """Estimate the divergence of a method in tiles from random vectors, without an FP64 factor.

    It costs a factorization by the method, and products of Σ, generated once, with the vectors:
    for more locations than FP64 can factor. Large divergences are inaccurate.

    Parameters
    ----------
    model : Covariance
    locations : (n, d) array_like, Inputs or Observations
    method : Exact
        With tiles, without refinement.
    metric : str
        Of an array of locations.
    probes : int
        Number of random vectors, 2 or more.

    Returns
    -------
    EstimatedDivergence

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor.

    Examples
    --------
    >>> import geomxp as gx
    >>> locations = np.random.default_rng(0).random((1000, 2))
    >>> method = gx.Exact(gx.for_divergence(1e-3, low_rank=True), tile=250)
    >>> estimate_divergence(gx.Matern(1.0, 0.1, 0.5, 0.01), locations, method).kl < 1e-3
    True
    """
    check_is_model(model)
    check_is_method(method)
    if isinstance(probes, bool) or not isinstance(probes, Integral) or probes < 2:
        raise InvalidInput(f"`probes` must be a whole number, 2 or more. Got {probes!r}.")
    halved = method.whole and layers_of(method.precision) is None
    if method.approximate or not (method.tiled or halved) or method.refine:
        raise InvalidInput(
            '`method` must have tiles, or formats by norm or divergence with tile="whole", such as '
            f"Exact(for_divergence(1e-3)), and not refine. Got {method!r:.200}."
        )
    if isinstance(locations, Observations):
        locations = locations.inputs
    locations = checked_inputs(locations, metric)
    if not len(locations):
        raise InvalidInput("`locations` must hold at least one location.")
    model.check_inputs(locations)
    _check_nuggets((model,), locations)
    # replicates have the divergence of their means
    means = Groups.of_inputs(locations).reduced_inputs
    try:
        factor, seconds = _timed(method, means, model, 0.0)
    except NotPositiveDefinite as error:
        raise explain(error, locations, model) from None
    found = measure(factor, int(probes))
    return EstimatedDivergence(
        found.kl,
        found.standard_error,
        probes=found.probes,
        formats=factor.precision_map,
        bytes=factor.nbytes,
        promotions=factor.promotions,
        seconds=seconds,
        n=len(means),
    )


@gpu_memory()
def compare(
    model: Covariance,
    locations: ArrayLike | Inputs | Observations,
    methods: Sequence[Likelihood],
    *,
    metric: str = "euclidean",
    trend: str = "zero",
    progress: bool = True,
) -> list[Divergence]:
    """Return the `Divergence` of several methods, with one FP64 reference.

    Parameters
    ----------
    model : Covariance
    locations : (n, d) array_like, Inputs or Observations
    methods : sequence of Exact or Vecchia
    metric, trend, progress :
        See `kl_divergence`.

    Returns
    -------
    list of Divergence
    """
    check_is_model(model)
    if not isinstance(methods, (list, tuple)):
        raise InvalidInput(f"`methods` must be a list of methods. Got {methods!r:.80}.")
    for method in methods:
        check_is_method(method)
    observations, design = locations, None
    if not isinstance(locations, Observations):
        locations = checked_inputs(locations, metric)
    on = check_reference(locations.distinct_inputs, methods)
    if isinstance(locations, Observations):
        model.check_inputs(locations.inputs)
        # in the order of the tiles, L₀ is as triangular as L
        kind = Trend.of(locations, trend)
        design = kind.design(locations.locations, locations.covariates, locations.variable)
        kind.check_full_rank(design)
        # replicates have the divergence of their means
        means, design, kept = sufficient(locations, design)
        order = hilbert(model.isotropic(means.inputs))
        observations, design, rows = means.subset(order), design[order], kept[order]
    else:
        if not len(locations):
            raise InvalidInput("`locations` must hold at least one location.")
        model.check_inputs(locations)
        groups = Groups.of_inputs(locations)
        observations = groups.reduced_inputs
        order = hilbert(model.isotropic(observations))
        observations, rows = observations[order], groups.first[order]
    _check_nuggets((model,), locations)
    methods = [method.of_rows(rows) if method.approximate else method for method in methods]
    for method in methods:
        # report a wrong size or device before computing the reference
        method.prepare(observations.inputs)
    try:
        with Line("comparing", shown=progress) as line:
            reference, divergences = _Reference(observations, model, design, on), []
            line.expect(len(methods), "methods")
            for method in methods:
                divergences.append(reference.compare(method))
                line.advance()
            return divergences
    except NotRefined:
        raise
    except NotPositiveDefinite as error:
        # in the order of the caller's rows
        raise explain(error, locations, model) from None


def _check_nuggets(models, locations):
    """Raise `NotPositiveDefinite` where repeated locations have no noise."""
    for model in models:
        model.check_inputs(locations)
        twins = noiseless_twins(model, locations)
        if twins:
            raise NotPositiveDefinite(coincidence(locations, twins))


def check_reference(n: int, methods: Sequence[Likelihood]) -> str:
    """Return the device of the FP64 reference; raise `NotEnoughMemory` if it is too small for n."""
    on = next((method.reference_device for method in methods if not method.approximate), "cpu")
    remedy = "the reference in FP64 is one matrix; compare on fewer locations (--n 4000)"
    check_memory(n, 1, resolve(on), remedy=remedy)
    return on


def kl_between(
    p: Covariance,
    q: Covariance,
    locations: ArrayLike | Inputs | Observations,
    metric: str = "euclidean",
) -> float:
    """Return KL(N(0, Σ_p) ‖ N(0, Σ_q)) = ½(tr(Σ_q⁻¹Σ_p) - n + log|Σ_q| - log|Σ_p|).

    Parameters
    ----------
    p, q : Covariance
    locations : (n, d) array_like, Inputs or Observations
    metric : str
        Of an array of locations.

    Returns
    -------
    float, in nats
        Of all values, also where locations are repeated.

    Raises
    ------
    NotPositiveDefinite
        If Σ has no Cholesky factor in FP64, or locations are repeated and a nugget is 0.
    InvalidInput
        If the divergence overflows FP64.

    Examples
    --------
    >>> from geomxp import Matern
    >>> model = Matern(1.0, 0.3, 0.5)
    >>> abs(kl_between(model, model, np.random.default_rng(0).random((20, 2)))) < 1e-12
    True
    """
    check_is_model(p, "p")
    check_is_model(q, "q")
    if p.response is not None or q.response is not None:
        raise InvalidInput("divergences are for Gaussian values: give models without a response.")
    if isinstance(locations, Observations):
        locations = locations.inputs
    locations = checked_inputs(locations, metric)
    if not len(locations):
        raise InvalidInput("`locations` must hold at least one location.")
    _check_nuggets((p, q), locations)
    groups = Groups.of_inputs(locations)
    means = groups.reduced_inputs
    evaluator = Exact().prepare(means)
    with blas_threads(len(means)):
        factor_p, factor_q = evaluator.factorize(p), evaluator.factorize(q)
        sigma = assemble.covariance_matrix(p, means, metric)
        sigma = np.tril(sigma) + np.tril(sigma, -1).T
        trace = np.trace(factor_q.solve(np.asfortranarray(sigma)))
    difference = factor_q.log_determinant() - factor_p.log_determinant()
    divergence = 0.5 * (float(trace) - len(means) + difference)
    # deviations from the means are noise
    several = groups.counts > 1
    ratio = groups.noise(p)[several] / groups.noise(q)[several]
    divergence += 0.5 * float((groups.counts[several] - 1) @ (ratio - 1 - np.log(ratio)))
    if not np.isfinite(divergence):
        raise InvalidInput("the divergence overflows FP64: give models whose variances are alike.")
    return divergence
