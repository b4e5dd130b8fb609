"""Observations predicted by a fit that has not seen them."""

import warnings
from dataclasses import replace

import numpy as np

from ..errors import FitFailed, GeomxpError, GeomxpWarning, NotPositiveDefinite
from ..execution.devices import blas_threads
from ..inference.vecchia import Vecchia


def predicted(common, rows):
    """Return mean and variance, (k,), of the observations of one fold, from all others.

    Parameters
    ----------
    common : tuple
        The fit; its design, (n, p); the label of each row's fold, (n,); whether to estimate anew;
        and a `HeldOut` of all rows, for an exact fit whose parameters are held.
    rows : (k,) ndarray of int

    Raises
    ------
    GeomxpError
        One that names the fold.
    """
    fit, design, labels, refit, held = common
    seen, label = fit.observations, labels[rows[0]]
    rest = np.setdiff1d(np.arange(len(seen)), rows)
    try:
        fit.trend.check_full_rank(design[rest])
        if held is not None:
            with blas_threads(len(seen)):
                return held.together(rows)
        if not refit:
            return _predict(_held_without(fit, rest, design), rows, seen)
        again = _fitted_without(fit, rest)
        if not again.outcome.good:
            # of who asks for the validation
            warnings.warn(f"fold {label}: {again.outcome}", GeomxpWarning, stacklevel=4)
        return _predict(again, rows, seen)
    except GeomxpError as error:
        raise _named(error, label) from error


def _predict(fit, rows, seen):
    """Return mean and variance of observations, from a fit of others."""
    from ..inference.predict import predict

    covariates = None if seen.covariates is None else seen.covariates[rows]
    there = predict(fit, seen.locations[rows], covariates, progress=False)
    return there.mean, there.variance_of_observation


def _of_rows(how, rest):
    """Return the way to compute with the rest of the rows."""
    if isinstance(how, Vecchia):
        return how.of_rows(rest)
    if how.tile is not None:
        return replace(how, tile=min(how.tile, len(rest)))
    return how


def _held_without(fit, rest, design):
    """Return the fit with the rest of the observations: its model, their coefficients."""
    part, how = _subset(fit.observations, rest), _of_rows(fit.method, rest)
    found = how.prepare(part, design[rest], fit.reml)(fit.model)
    if not np.isfinite(found.log_likelihood):
        raise NotPositiveDefinite(found.outcome.message)
    return replace(
        fit,
        observations=part,
        method=how,
        coefficients=found.coefficients,
        coefficient_covariance=found.coefficient_covariance,
    )


def _fitted_without(fit, rest):
    """Return a fit to the rest of the observations, made as the fit was, and starting there."""
    from ..inference.fit import fit as run

    estimated = fit.free + fit.boundary
    values = fit.model.parameters()
    return run(
        _subset(fit.observations, rest),
        fit.model,
        _of_rows(fit.method, rest),
        fixed={name: value for name, value in values.items() if name not in estimated},
        bounds=fit.bounds,
        trend=fit.trend.text,
        reml=fit.reml,
        progress=False,
    )


def _subset(seen, rows):
    with warnings.catch_warnings():
        # said already, about all of the coordinates
        warnings.simplefilter("ignore", GeomxpWarning)
        return seen.subset(rows)


def _named(error, label):
    """Return an error of the same kind that names the fold."""
    message = f"fold {label}: {error}"
    return type(error)(message, error.fit) if isinstance(error, FitFailed) else type(error)(message)
