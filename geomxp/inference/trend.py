"""The mean of the field: what stands in X, by name."""

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput

TRENDS = ("zero", "constant", "linear", "covariates")


@dataclass(frozen=True)
class Trend:
    """A linear model of the mean, E z = Xβ.

    Parameters
    ----------
    kind : {"zero", "constant", "linear", "covariates"}
        No mean; 1; 1 and the coordinates; 1 and the covariates.
    names : tuple of str
        Names of the coefficients β.
    dimensions, covariates : int
        How many coordinates and covariates a place has.
    """

    kind: str
    names: tuple[str, ...]
    dimensions: int
    covariates: int

    @classmethod
    def of(cls, observations, kind):
        """Return the trend of this kind for these observations.

        Raises
        ------
        InvalidInput
            If there is no such kind, or covariates are wanted and there are none.
        """
        if kind not in TRENDS:
            raise InvalidInput(f"`trend` must be one of: {', '.join(TRENDS)}. Got {kind!r}.")
        if kind == "covariates" and observations.covariates is None:
            raise InvalidInput('trend="covariates" needs covariates; the observations have none.')
        names = {
            "zero": (),
            "constant": ("intercept",),
            "linear": ("intercept", *observations.location_names),
            "covariates": ("intercept", *observations.covariate_names),
        }[kind]
        return cls(kind, names, observations.dimensions, len(observations.covariate_names))

    def design(self, locations, covariates=None):
        """Return X, (n, p), at places.

        Parameters
        ----------
        locations : (n, d) ndarray
        covariates : (n, q) ndarray, optional
            Needed for kind "covariates" only.
        """
        ones = np.ones((len(locations), 1))
        if self.kind == "zero":
            return ones[:, :0]
        if self.kind == "constant":
            return ones
        if self.kind == "linear":
            return np.hstack((ones, locations))
        if covariates is None or np.shape(covariates) != (len(locations), self.covariates):
            got = "none" if covariates is None else f"shape {np.shape(covariates)}"
            raise InvalidInput(
                f"the trend needs {self.covariates} covariates ({', '.join(self.names[1:])}) at "
                f"each of the {len(locations)} places. Got {got}."
            )
        return np.hstack((ones, covariates))

    def check_full_rank(self, design):
        """Raise `InvalidInput` if the columns of X are linearly dependent, naming one of them."""
        n, p = design.shape
        if p == 0:
            return
        if n <= p:
            raise InvalidInput(
                f"a trend with {p} coefficients needs more than {p} locations. Got {n}."
            )
        from scipy.linalg import qr

        norms = np.abs(design).max(axis=0)
        scaled = design / np.where(norms > 0, norms, 1.0)
        _, r, order = qr(scaled, mode="economic", pivoting=True)
        diagonal = np.abs(np.diag(r))
        dependent = diagonal <= 8 * n * np.finfo(float).eps * diagonal[0]
        if dependent.any():
            name = self.names[order[int(np.argmax(dependent))]]
            raise InvalidInput(
                f"the columns of the trend are linearly dependent: {name!r} is a combination of "
                'the others. Use trend="constant", or leave a covariate out.'
            )
