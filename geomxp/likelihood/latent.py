"""The likelihood of responses for searches: Laplace's approximation with the trend profiled out.

`LaplaceEvaluator` is to responses what the evaluators of `exact` and `vecchia` are to Gaussian
values. Its value is a smooth function of the parameters with exact derivatives; with Vecchia's
approximation it uses the log-determinant of an incomplete factor, and `reported` corrects that.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..covariance.noise import variances_in
from ..covariance.responses import Data
from ..errors import Ending, InvalidInput, NotPositiveDefinite, Outcome
from ..runtime.devices import blas_threads
from ..vecchia.blocks import Neighbours
from .base import Derivatives, Evaluation, Evaluator, GaussianValues
from .laplace import DenseLaplace, VecchiaLaplace
from .vecchia import KEPT_NEIGHBOURS_DIVERGENCE

if TYPE_CHECKING:
    from .._typing import Floats
    from ..covariance.base import Covariance
    from ..data.observations import Observations
    from .laplace import LaplaceDerivatives

KEPT_RESULTS = 64
"""Limit on the results that an evaluator keeps."""

SAME_DIGITS = 12
"""Digits to which the parameters of two models must agree for the models to count as one."""

SAME_INFORMATION = 1e-3
"""Relative change of parameters up to which the observed information is not computed again."""

INFORMATION_REACH = 0.5
"""Largest change of the logarithm of a parameter for which the information for scoring is kept."""

HESSIAN_STEP = 2e-4
"""Step of differences of derivatives, relative to a parameter; for coefficients 100 times as many
standard errors."""

NOISE_STEP = 1e-4
"""Step of a difference by a noise variance that is 0, in units of the variance of the field."""

TRANSFORM_STEP = 1e-3
"""Step of differences of ℓ by parameters of a transformation, relative to them or to 1."""

LEAST_WEIGHT = 1e-6
"""Least weight of a working value, in units of the median of the positive ones."""

RESPONSE_COLUMNS = "trials", "offset", "exposure", "lower", "upper"
"""Columns of observations that only models with a response use."""

LARGEST_OFFSET = 50.0
"""Largest absolute offset on the scale of the link: the exponential of 50 is 5e21."""

REPORTED_ERROR = 0.025
"""Largest standard error of a reported log-likelihood, up to about 100,000 locations."""


def check_columns(response, trials=None, exposure=None):
    """Raise `InvalidInput` for trials or exposures that a response cannot have."""
    if exposure is not None and response.used_link not in ("log", "cloglog"):
        raise InvalidInput(
            f"an exposure needs the link log or cloglog, and this {response.name} response has the "
            f"link {response.used_link}: use `offset`, or leave the exposure out."
        )
    if trials is not None and not response.counts_trials:
        raise InvalidInput(
            f"`trials` are for binomial responses. Got a {response.name} response: leave them out, "
            'or use response="binomial" (--response binomial).'
        )


def check_response(method, observations, model, reml):
    """Raise `InvalidInput`, with a remedy, where a response cannot be computed as asked."""
    response = model.response
    if reml:
        raise InvalidInput(
            f"a {response.name} response has no restricted likelihood that is comparable across "
            "trends: leave `reml` (--reml) out."
        )
    plain = (method.neighbours, method.ordering) if method.approximate else ()
    plain = type(method)(*plain)
    if method != plain or not isinstance(getattr(method, "ordering", ""), str):
        raise InvalidInput(
            f"a {response.name} response is computed in FP64, in RAM and on the CPU: use "
            "gx.Exact() or gx.Vecchia(30) without further options (--method exact|vecchia "
            f"[--neighbours]). Got {method!r:.120}."
        )
    for name in ("error_variance", "replicates"):
        if getattr(observations, name) is not None:
            raise InvalidInput(
                f"`{name}` is for Gaussian values. A {response.name} response has a distribution "
                "of its own: leave it out."
            )
    if observations.limits_in_words and not response.transformable:
        raise InvalidInput(
            f"{observations.limits_in_words}, and a {response.name} response needs exact values: "
            'use response="censored" (--response censored).'
        )
    check_columns(response, observations.trials, observations.exposure)
    offset = observations.total_offset
    if offset is not None and np.abs(offset).max() > LARGEST_OFFSET:
        raise InvalidInput(
            f"the offset, with the logarithm of the exposure, has the absolute value "
            f"{np.abs(offset).max():g}: use units of the exposure, and offsets, for which it is at "
            f"most {LARGEST_OFFSET:g}."
        )
    if response.transformable and observations.lower is None:
        raise InvalidInput(
            "a censored response needs limits: text such as <0.5 in the column of the values, or "
            "`below` or `above` (--below, --above). If there are none, leave the response out: "
            "the nugget is then the variance of the errors."
        )


def check_values(observations, model):
    """Raise `InvalidInput` for values that a response cannot have."""
    with np.errstate(all="ignore"):
        model.response.check(data_of(observations, model.transform)[0])


def data_of(observations: Observations, transform=None) -> tuple[Data, float]:
    """Return the values of a response, transformed, and the log-Jacobian of those not censored."""
    columns = {name: getattr(observations, name) for name in ("trials", "lower", "upper")}
    data = Data(observations.values, **columns)
    if transform is None:
        return data, 0.0
    own = transform.of(observations.variable)
    exact = np.ones(len(data), dtype=bool) if data.lower is None else data.lower == data.upper
    with np.errstate(all="ignore"):
        z = own.transform(data.values)
        low, high = (
            np.where(np.isinf(ends), ends, np.where(exact, z, own.transform(ends)))
            for ends in (data.lower, data.upper)
        )
        # below the support a lower limit says nothing
        low = np.where(np.isnan(low) & ~exact, -np.inf, low)
        jacobian = float(own.log_jacobian(data.values)[exact].sum())
    if not (np.isfinite(z[exact]).all() and not np.isnan(high).any() and np.isfinite(jacobian)):
        raise NotPositiveDefinite(
            f"the transformation {transform.name!r} does not map all values to finite numbers."
        )
    return replace(data, values=z, lower=low, upper=high), jacobian


class WorkingValues:
    """η near each value, in place of Gaussian values where searches look at these."""

    def __init__(self, observations, response):
        self._observations, self._response = observations, response

    def at(self, transform):
        """See `Values.at`."""
        data, jacobian = data_of(self._observations, transform)
        return GaussianValues(self._response.guess(data), jacobian)


@dataclass(frozen=True)
class Best:
    """The coefficients of the trend with the largest ℓ, their information, and derivatives there.

    The information, (p, p), is that of the coefficients, for given parameters of the model.
    """

    coefficients: Floats
    information: Floats
    derivatives: LaplaceDerivatives


class LaplaceEvaluator(Evaluator):
    """ℓ(θ) of a response, with the trend's coefficients profiled out, and its derivatives.

    Parameters
    ----------
    observations : Observations
    design : (n, p) array or None
    method : Exact or Vecchia
        Dense matrices of order n, or Vecchia's approximation of the field.
    response : Response
        Only its kind counts; each model has its own parameters.
    """

    scoring = True
    expensive = True

    def __init__(self, observations, design, method, response):
        self.observations, self.method = observations, method
        n = len(observations)
        self.design = np.zeros((n, 0)) if design is None else design
        self.values = WorkingValues(observations, response)
        arguments = observations, None, self.design, observations.total_offset
        self.laplace = DenseLaplace(*arguments)
        if method.approximate:
            self.laplace = VecchiaLaplace(*arguments, method.neighbours, method.ordering)
        self.moves = method.approximate and not (
            observations.time is None and observations.variable is None
        )
        self._neighbours = Neighbours(observations.inputs, method.neighbours or 1)
        self._held = False
        self._best, self._joint, self._names = OrderedDict(), OrderedDict(), ()
        self._start, self._information, self._transform = None, None, "unknown"
        self._jacobian = 0.0

    # neighbours in time, or of several variables

    def freeze(self, model):
        """Keep the neighbours of a model in time, or of several variables, for all models."""
        if self.moves:
            self._hold(self._neighbours.key_of(bare(model)))
            self._held = True

    def _hold(self, key):
        if key != self.laplace.key:
            self.laplace.key = key
            self._best.clear()
            self._joint.clear()

    def would_move(self, model, exactly=False):
        """Whether neighbours other than those that are kept suit a model better."""
        field = bare(model)
        if not self._held or self._neighbours.key_of(field) == self.laplace.key:
            return False
        loss = self._neighbours.loss(field, self.laplace.key)
        return exactly or loss > KEPT_NEIGHBOURS_DIVERGENCE

    # ℓ

    def keeps(self, model):
        """See `Evaluator.keeps`."""
        return _key(model) in self._best

    def __call__(self, model):
        """Evaluate the log-likelihood; -inf with an outcome where the field has no mode."""
        return self._evaluation(model, lambda best: (best.derivatives.log_likelihood, 0.0))

    def at(self, model, coefficients):
        """Evaluate the log-likelihood at coefficients of the trend."""
        self._know(model)
        n, p = self.design.shape
        mode = self.laplace.mode(bare(model), model.response, coefficients)
        nan = float("nan")
        return Evaluation(
            mode.log_likelihood + self._jacobian,
            nan,
            nan,
            Outcome(Ending.COMPUTED),
            n,
            coefficients=np.asarray(coefficients, dtype=float),
            coefficient_covariance=np.full((p, p), 0.0),
        )

    def reported(self, model):
        """Evaluate with a corrected log-determinant, and the standard error of the correction."""
        parts = {}

        def corrected(best):
            mode = self.mode(model, best)
            change, error = mode.correction(REPORTED_ERROR)
            eta = self.laplace.offset + self.design @ best.coefficients + mode.eta
            slopes = model.response.derivatives(self.laplace.data, eta)
            # f̂'Qf̂ = f̂'g, and log|I + KW|
            form = float(mode.eta @ slopes.eta[0])
            value = mode.log_likelihood + change
            parts["quadratic_form"] = form
            parts["log_determinant"] = 2 * float(slopes.value.sum() - value) - form
            return value, error

        return replace(self._evaluation(model, corrected), **parts)

    @blas_threads(0)
    def _evaluation(self, model, value_of):
        start, n = time.perf_counter(), len(self.observations)
        try:
            best = self._solved(model)
            value, error = value_of(best)
            if not np.isfinite(value):
                raise NotPositiveDefinite("the log-likelihood overflows FP64.")
        except NotPositiveDefinite as failure:
            outcome = Outcome(Ending.NOT_POSITIVE_DEFINITE, str(failure))
            return Evaluation.failed(outcome, n, time.perf_counter() - start)
        inverse = np.linalg.inv(best.information) if len(best.information) else best.information
        nan = float("nan")
        return Evaluation(
            log_likelihood=value + self._jacobian,
            log_determinant=nan,
            quadratic_form=nan,
            outcome=Outcome(Ending.COMPUTED),
            n=n,
            coefficients=best.coefficients,
            coefficient_covariance=inverse,
            seconds=time.perf_counter() - start,
            log_jacobian=self._jacobian,
            error=error,
        )

    def mode(self, model, best=None):
        """Return the mode of the field at the best coefficients."""
        best = best or self._solved(model)
        return self.laplace.mode(bare(model), model.response, best.coefficients)

    def _know(self, model):
        """Prepare the values as a model transforms them, and its neighbours."""
        if self._transform != model.transform:
            self.laplace.data, self._jacobian = data_of(self.observations, model.transform)
            self._transform = model.transform
        if self.moves and not self._held:
            self._hold(self._neighbours.key_of(bare(model)))

    def _solved(self, model, names=()):
        """Return the `Best` coefficients of a model, with derivatives by these names at least."""
        model.check_inputs(self.observations.inputs)
        self._know(model)
        key = _key(model)
        known = self._best.get(key)
        if known is not None and set(names) <= set(known.derivatives.parameters):
            return known
        # searches ask for a value and then for derivatives, at one model after the other
        self._names = tuple(dict.fromkeys((*self._names, *names)))
        wanted = [name for name in self._names if name in model.parameters()]
        field, of_field = bare(model), []
        of_field = [name for name in wanted if name in field.parameters()]
        start = self._start if known is None else known.coefficients
        if start is None:
            target = model.response.guess(self.laplace.data) - self.laplace.offset
            start = np.linalg.lstsq(self.design, target, rcond=None)[0]
        found = Best(*self.laplace.at_best_coefficients(field, model.response, start, of_field))
        self._start = found.coefficients
        self._best[key] = found
        while len(self._best) > KEPT_RESULTS:
            self._best.popitem(last=False)
        return found

    # derivatives

    @blas_threads(0)
    def derivatives(self, model, names, *, curvature=False):
        """Return the score, and an information for scoring.

        For parameters of the field it is that of Gaussian working values, for those of the response
        the sum of products of the scores of the values. With `curvature`, also return the observed
        information, by differences of the score.
        """
        names = tuple(names)
        known = () if model.transform is None else tuple(model.transform.parameters())
        ours = tuple(name for name in names if name not in known)
        best = self._solved(model, ours)
        score = {name: best.derivatives.parameters[name] for name in ours}
        score |= self._by_shared_noise(model, ours)
        score |= {name: self._by_transform(model, name) for name in names if name in known}
        found = Derivatives(
            names,
            np.array([score[name] for name in names]),
            self._scoring_information(model, names, known, score),
        )
        return replace(found, observed=self._observed(model, names)) if curvature else found

    def _by_shared_noise(self, model, names):
        """Return the derivatives by variances of noise that are 0 where values share the field.

        Values at one place share it only without noise: the differences are one-sided.
        """
        if not self.observations.duplicate_inputs:
            return {}
        found, values = {}, model.parameters()
        for name in [p.name for p in variances_in(model) if p.name in names]:
            if values[name] == 0:
                step = NOISE_STEP * model.largest_variance
                moved = self(model.replace(**{name: step})).log_likelihood
                found[name] = (moved - self(model).log_likelihood) / step
        return found

    def has_curvature(self, names):
        """See `Evaluator.has_curvature`."""
        return True

    def observed_information(self, model, names=None):
        """Return minus the Hessian of ℓ with the coefficients profiled out, (k, k)."""
        return self._observed(model, tuple(model.parameters() if names is None else names))

    def expected_information(self, model, names=None):
        """Return the observed information: there is no formula for the expected one."""
        return self.observed_information(model, names)

    def _by_transform(self, model, name):
        """Return the derivative of ℓ by a parameter of the transformation, by differences."""
        sides = self._sides(model, name, TRANSFORM_STEP)
        ends = [self(moved).log_likelihood for moved in sides]
        if not np.isfinite(ends).all():
            value = model.parameters()[name]
            raise NotPositiveDefinite(f"ℓ is not finite on both sides of {name}={value:g}.")
        self._know(model)
        return (ends[0] - ends[1]) / _between(sides, name)

    def _scoring_information(self, model, names, known, score):
        """Return the information for scoring, (k, k), scaled from that of a model near this one."""
        values = model.parameters()
        at = np.array([values[name] for name in names])
        if self._information is not None and self._information[0] == names:
            _, before, information = self._information
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(at == before, 1.0, before / at)
            near = (ratio > 0) & (
                np.abs(np.log(np.where(ratio > 0, ratio, 1.0))) < INFORMATION_REACH
            )
            if near.all():
                return information * np.outer(ratio, ratio)
        ours = [k for k, name in enumerate(names) if name not in known]
        some = tuple(names[k] for k in ours)
        best, information = self._solved(model, some), np.zeros((len(names),) * 2)
        information[np.ix_(ours, ours)] = self.laplace.information(
            bare(model), model.response, best.coefficients, some
        )
        for k, name in enumerate(names):
            if name in known:
                sides = self._sides(model, name, TRANSFORM_STEP)
                ends = [self._by_transform(moved, name) for moved in sides]
                information[k, k] = max((ends[1] - ends[0]) / _between(sides, name), 1e-8)
        self._know(model)
        self._information = names, at, information
        return information

    def _observed(self, model, names):
        """Return the observed information of names, with the coefficients profiled out."""
        p, joint = self.design.shape[1], self.joint_information(model, names)
        if not p:
            return joint
        k = len(names)
        return joint[:k, :k] - joint[:k, k:] @ np.linalg.solve(joint[k:, k:], joint[k:, :k])

    @blas_threads(0)
    def joint_information(self, model, names):
        """Return minus the Hessian of ℓ by these parameters and the coefficients, (k + p, k + p).

        By central differences of its exact derivatives.
        """
        values = np.array(list(model.parameters().values()))
        for (kind, others, at), known in reversed(self._joint.items()):
            near = np.abs(values - np.array(at)) <= SAME_INFORMATION * np.abs(values)
            if kind is type(model) and others == names and near.all():
                return known
        key = type(model), names, tuple(values.tolist())
        self._joint[key] = self._differences(model, names)
        while len(self._joint) > KEPT_RESULTS:
            self._joint.popitem(last=False)
        return self._joint[key]

    def _differences(self, model, names):
        best, rows = self._solved(model, self._of_ours(model, names)), []
        beta, p = best.coefficients, self.design.shape[1]
        steps = np.zeros(p)
        if p:
            steps = HESSIAN_STEP * np.sqrt(np.diag(np.linalg.inv(best.information)))
        known = () if model.transform is None else tuple(model.transform.parameters())
        for name in names:
            step = 10 * TRANSFORM_STEP if name in known else HESSIAN_STEP
            ends = self._sides(model, name, step)
            slopes = [self._gradient(end, beta, names, known) for end in ends]
            rows.append((slopes[1] - slopes[0]) / _between(ends, name))
        for j in range(p):
            move = np.zeros(p)
            move[j] = 100 * steps[j]
            slopes = [self._gradient(model, beta + side * move, names, known) for side in (1, -1)]
            rows.append((slopes[1] - slopes[0]) / (2 * move[j]))
        self._know(model)
        joint = np.array(rows).reshape(len(names) + p, len(names) + p)
        return (joint + joint.T) / 2

    def _sides(self, model, name, share):
        """Return models with a parameter above and below its value, as far as it may be."""
        parameter = model.parameter(name)
        value = parameter.value
        step = share * abs(value)
        if parameter.transform == "identity":
            step = share * max(abs(value), 1.0)
        if value == 0 and parameter.unit == "value²":
            step = share * model.largest_variance
        ends = []
        for side in (1, -1):
            try:
                moved = model.replace(**{name: value + side * step})
                moved.check_inputs(self.observations.inputs)
            except InvalidInput:
                moved = model
            ends.append(moved)
        return ends

    def _of_ours(self, model, names):
        known = () if model.transform is None else model.transform.parameters()
        return tuple(name for name in names if name not in known)

    def _gradient(self, model, beta, names, known):
        """Return the derivatives of ℓ by names and coefficients, (k + p,), at coefficients."""
        self._know(model)
        field = bare(model)
        of_field = [name for name in names if name in field.parameters()]
        found = self.laplace.derivatives(field, model.response, beta, of_field)
        slopes = dict(found.parameters)
        for name in names:
            if name in known:
                slopes[name] = self._by_transform_at(model, beta, name)
        return np.r_[[slopes[name] for name in names], found.coefficients]

    def _by_transform_at(self, model, beta, name):
        """Return the derivative of ℓ by a parameter of the transformation at coefficients."""
        ends, sides = [], self._sides(model, name, TRANSFORM_STEP)
        for moved in sides:
            self._know(moved)
            ends.append(
                self.laplace.log_likelihood(bare(moved), moved.response, beta) + self._jacobian
            )
        self._know(model)
        return (ends[0] - ends[1]) / _between(sides, name)

    def coefficient_covariance(self, model, names):
        """Return the covariance of the coefficients, (p, p), from the whole Hessian.

        `names` are the parameters that were estimated.
        """
        k, joint = len(names), self.joint_information(model, tuple(names))
        return np.linalg.inv(joint)[k:, k:]

    # Gaussian data with the same mode

    @blas_threads(0)
    def working(self, model, coefficients):
        """Return working values z, (n,), and their error variances, (n,).

        Gaussian values z = η + g/W with error variances 1/W give the same mode of the field, and
        the same variances where W is the curvature of the values' log density. Curvatures that are
        not positive are replaced by a small number: such values say little about the field.
        """
        self._know(model)
        mode = self.laplace.mode(bare(model), model.response, coefficients)
        eta = self.laplace.offset + self.design @ coefficients + mode.eta
        slopes = model.response.derivatives(self.laplace.data, eta)
        g, w = slopes.eta[0], -slopes.eta[1]
        least = LEAST_WEIGHT * (float(np.median(w[w > 0])) if (w > 0).any() else 1.0)
        w = np.maximum(w, least)
        return eta - self.laplace.offset + g / w, 1.0 / w


def _between(sides, name):
    """Return the difference of a parameter of two models."""
    return sides[0].parameters()[name] - sides[1].parameters()[name]


def bare(model: Covariance) -> Covariance:
    """Return the model of the field alone."""
    return replace(model, response=None, transform=None)


def _key(model):
    """Return what distinguishes a model: its class and its parameters to some digits."""
    values = model.parameters().values()
    return (
        type(model),
        type(model.response),
        model.response.used_link,
        tuple(float(f"{value:.{SAME_DIGITS}g}") for value in values),
    )
