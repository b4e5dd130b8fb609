"""A scikit-learn estimator over `geomxp.fit` and `geomxp.predict`.

Import it by name (``from geomxp.sklearn import GeoRegressor``); geomxp itself does not need
scikit-learn.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from .data.labels import aligned, labels_of
from .data.observations import LEAST_LOCATIONS, Observations
from .data.spatial import names_say_degrees
from .errors import InvalidInput
from .estimation.fit import fit as fit_model
from .estimation.hurdle import HurdleFit
from .prediction.kriging import predict as predict_at
from .prediction.simulate import simulate

if TYPE_CHECKING:
    from ._typing import Any, ArrayLike, Floats, Frame, Whole
    from .covariance.responses import Hurdle, Response
    from .covariance.transformation import Transformation
    from .likelihood.base import Likelihood

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f'geomxp.sklearn needs scikit-learn 1.6 or later: pip install "geomxp[sklearn]" ({error}).'
    ) from None


class GeoRegressor(RegressorMixin, BaseEstimator):
    """Kriging with a Matérn model estimated by maximum likelihood, as a scikit-learn regressor.

    The first columns of X are coordinates, all others are covariates of the trend. Parameters of
    the model are estimated unless they are given, and so are the coefficients of the trend.

    Parameters
    ----------
    smoothness : float, optional
        ν, held at this value; estimated if None. 0.5 is the exponential model.
    nugget : float, optional
        τ², a variance, held at this value; estimated if None.
    trend : str, optional
        Trend, as for `geomxp.fit`. If None, "covariates" if X has covariates, else "constant".
        Covariates that are linear combinations of a constant and the covariates left of them
        (such as one-hot codes) are not used.
    coordinates : {1, 2, 3}
        Number of columns of X, from the left, that are coordinates; all columns if X has fewer.
    metric : {"euclidean", "chordal", "great-circle"}, optional
        If None, "chordal" if X is a frame with coordinates named lon and lat, else "euclidean".
    anisotropy : bool
        Estimate geometric anisotropy, in 2 or 3 dimensions.
    axis_ranges : bool
        Estimate one range for each axis.
    reml : bool
        Maximize the restricted likelihood.
    response : str, Response or Hurdle, optional
        Distribution of the values, as of `geomxp.fit`; predictions are means of values.
    transformation : str or Transformation, optional
        Transformation of y to Gaussian values, as `transform` of `geomxp.fit`: "log", "sqrt",
        "boxcox", "logit" or "tukey-gh". Predictions and draws are back-transformed.
    method : Exact or Vecchia, optional
        Method that computes the likelihood; if None the choice of `geomxp.fit`: `geomxp.Exact()` up
        to 6,000 rows, above `geomxp.Vecchia(30)` with a warning.
    starts : int
        Number of starting points of the search.

    Attributes
    ----------
    fit_ : Fit or HurdleFit
        Result of `geomxp.fit`.
    model_ : Matern
        The estimate, in the units of X and y; of a hurdle a dict of those of "presence" and
        "amount".
    covariates_ : (q,) ndarray of int
        Columns of X that are used as covariates.
    log_marginal_likelihood_value_ : float
        Log-likelihood of the training data at the estimate, restricted if REML.
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) ndarray of str
        Names of the columns, if X is a frame.

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        If the search found no maximum, because the likelihood has none or is flat. The estimator
        then holds the last state of the search; `fit_.outcome` gives the reason.

    Examples
    --------
    Without a nugget, kriging interpolates the observations:

    >>> import numpy as np
    >>> import geomxp as gx
    >>> from geomxp.sklearn import GeoRegressor
    >>> seen = gx.datasets.load("meuse")
    >>> X, y = np.hstack((seen.locations, seen.covariates)), seen.values
    >>> regressor = GeoRegressor(smoothness=0.5, nugget=0.0).fit(X, y)
    >>> bool(np.allclose(regressor.predict(X), y))
    True
    """

    def __init__(
        self,
        *,
        smoothness: float | None = None,
        nugget: float | None = None,
        trend: str | None = None,
        coordinates: int = 2,
        metric: str | None = None,
        anisotropy: bool = False,
        axis_ranges: bool = False,
        reml: bool = False,
        transformation: str | Transformation | None = None,
        response: str | Response | Hurdle | None = None,
        method: Likelihood | None = None,
        starts: int = 1,
    ) -> None:
        self.smoothness = smoothness
        self.nugget = nugget
        self.trend = trend
        self.coordinates = coordinates
        self.metric = metric
        self.anisotropy = anisotropy
        self.axis_ranges = axis_ranges
        self.reml = reml
        # a transformer of scikit-learn has a `transform`
        self.transformation = transformation
        self.response = response
        self.method = method
        self.starts = starts

    def fit(self, X: ArrayLike | Frame, y: ArrayLike) -> GeoRegressor:
        """Estimate the model.

        Parameters
        ----------
        X : (n, p) array_like
            Coordinates, then covariates.
        y : (n,) array_like

        Returns
        -------
        GeoRegressor
            Itself.

        Raises
        ------
        ValueError
            For fewer than 3 rows, NaN, text, equal values, and all other input that `geomxp.fit`
            does not accept.
        """
        (y,) = aligned(labels_of(X), "X", y=y)
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=LEAST_LOCATIONS
        )
        observations = self._observations(X, np.asarray(y, dtype=np.float64))
        trend = self.trend
        if trend is None:
            trend = "constant" if observations.covariates is None else "covariates"
        self.fit_ = fit_model(
            observations,
            method=self.method,
            fixed=self._held(),
            trend=trend,
            anisotropy=self.anisotropy,
            axis_ranges=self.axis_ranges,
            reml=self.reml,
            transform=self.transformation,
            response=self.response,
            starts=self.starts,
            progress=False,
            raise_on_failure=False,
        )
        self.model_ = (
            {name: part.model for name, part in self.fit_.parts.items()}
            if isinstance(self.fit_, HurdleFit)
            else self.fit_.model
        )
        self.log_marginal_likelihood_value_ = self.fit_.log_likelihood
        if not self.fit_.outcome.attained:
            warnings.warn(str(self.fit_.outcome), ConvergenceWarning, stacklevel=2)
        return self

    @overload
    def predict(self, X: ArrayLike | Frame, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: ArrayLike | Frame, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    def predict(self, X: ArrayLike | Frame, return_std: bool = False) -> Any:
        """Predict the field by kriging.

        Parameters
        ----------
        X : (m, p) array_like
        return_std : bool

        Returns
        -------
        mean : (m,) ndarray
            In the unit of y.
        standard_error : (m,) ndarray
            If `return_std`: standard error of the noiseless field, with the uncertainty of the
            trend. `geomxp.predict(regressor.fit_, …)` gives intervals, also for new observations.
        """
        locations, covariates = self._locations(X)
        prediction = predict_at(self.fit_, locations, covariates, progress=False)
        mean = prediction.mean
        return (mean, np.sqrt(prediction.variance)) if return_std else mean

    def score(self, X: ArrayLike | Frame, y: ArrayLike, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R² of predictions of the field.

        Parameters
        ----------
        X : (m, p) array_like
        y, sample_weight : (m,) array_like
            Series are matched to the rows of a frame X by their labels.
        """
        y, sample_weight = aligned(labels_of(X), "X", y=y, sample_weight=sample_weight)
        return super().score(X, y, sample_weight)

    def sample_y(self, X: ArrayLike | Frame, n_samples: int = 1, random_state: Any = 0) -> Floats:
        """Draw the noiseless field, given the observations.

        Parameters
        ----------
        X : (m, p) array_like
        n_samples : int
        random_state : int, RandomState or None

        Returns
        -------
        (m, n_samples) ndarray
        """
        locations, covariates = self._locations(X)
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        draws = simulate(
            self.fit_, locations, n_samples, seed, covariates=covariates, progress=False
        )
        return draws.T

    def _held(self):
        """Return the parameters that are held at given values."""
        held = {"smoothness": self.smoothness, "nugget": self.nugget}
        for name, value in held.items():
            if not (value is None or (isinstance(value, Real) and not isinstance(value, bool))):
                raise InvalidInput(f"`{name}` must be a number, or None. Got {value!r}.")
        return {name: float(value) for name, value in held.items() if value is not None}

    def _observations(self, X, y):
        """Return the observations of training data."""
        d = self.coordinates
        if not (isinstance(d, Integral) and 1 <= d <= 3):
            raise InvalidInput(f"`coordinates` must be 1, 2 or 3. Got {d!r}.")
        names = tuple(map(str, getattr(self, "feature_names_in_", ())))
        metric = self.metric
        if metric is None:
            metric = "chordal" if names_say_degrees(names[:d]) else "euclidean"
        self.covariates_ = d + independent_columns(X[:, d:])
        covariates = X[:, self.covariates_] if len(self.covariates_) else None
        used = tuple(names[j] for j in self.covariates_) if names else ()
        return Observations(X[:, :d], y, covariates, metric, names[:d], covariate_names=used)

    def _locations(self, X):
        """Return coordinates and covariates of new locations."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        d = self.fit_.observations.dimensions
        return X[:, :d], X[:, self.covariates_] if len(self.covariates_) else None


def independent_columns(covariates: Floats) -> Whole:
    """Return the columns that are not a linear combination of a constant and columns left of them.

    >>> a = np.arange(5.0)
    >>> independent_columns(np.column_stack((a, np.ones(5), a**2, 1 - 2 * a))).tolist()
    [0, 2]
    """
    n, q = covariates.shape
    basis = np.full((n, 1), 1 / np.sqrt(n))
    kept = []
    for j in range(q):
        column = covariates[:, j] / (np.abs(covariates[:, j]).max() or 1.0)
        # Gram–Schmidt, twice, so that the rest is orthogonal to rounding error
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        # of a linear combination that was computed in FP64, a few n·u remain
        if size > 1e3 * n * np.finfo(float).eps:
            basis = np.column_stack((basis, rest / size))
            kept.append(j)
    return np.array(kept, dtype=int)
