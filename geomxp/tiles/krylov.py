"""Iterations that bring an approximate solution of Ax = b to full accuracy: IR, CG and GMRES.

All columns of b go side by side, so that one product with A serves them all; each has its own
scalars. A column that is good is not touched again.
"""

import numpy as np

BASIS = 60
"""Vectors that GMRES keeps before it starts anew."""

PATIENCE = {"ir": 6, "cg": 60, "gmres": 2 * BASIS}
"""Iterations that do not halve the residual, after which a method is given up."""


class Progress:
    """Residuals of all columns, and what they say.

    Parameters
    ----------
    measure : callable
        ``measure(r)`` returns each column's residual in the sense of the tolerance.
    enough : callable
        ``enough(x)`` returns which measure is good: the tolerance, or what cannot be told from
        rounding.
    accept : callable
        ``accept(r, x)`` returns which columns are good.
    limit : int
        Of iterations.
    patience : int
        See `PATIENCE`.
    """

    def __init__(self, measure, enough, accept, limit, patience):
        self.measure, self.enough, self.accept = measure, enough, accept
        self.limit, self.patience = limit, patience
        self.history, self.iterations, self.ending = [], 0, None

    def good(self, residual, x):
        """Take note of the true residuals; return which columns are good."""
        values = self.measure(residual)
        self.history.append((self.iterations, float(np.max(values, initial=0.0))))
        good = self.accept(residual, x)
        self._all = bool(good.all())
        return good

    def go_on(self):
        """Return whether to go on; say why not in `ending`."""
        values = [value for _, value in self.history]
        if self._all:
            self.ending = "converged"
        elif not np.isfinite(values[-1]) or values[-1] > 1e3 * values[0]:
            self.ending = "diverged"
        elif min(values[-self.patience :]) > 0.5 * min(values[: -self.patience], default=np.inf):
            self.ending = "stalled"
        elif self.iterations >= self.limit:
            self.ending = "limit"
        return self.ending is None


def classic(multiply, precondition, b, progress):
    """Solve by iterative refinement: x <- x + M⁻¹(b - Ax).

    Parameters
    ----------
    multiply : callable
        x to Ax, in FP64.
    precondition : callable
        r to M⁻¹r.
    b : (n, m) ndarray
    progress : Progress

    Returns
    -------
    (n, m) ndarray
    """
    x = precondition(b)
    progress.iterations = 1
    while True:
        residual = b - multiply(x)
        good = progress.good(residual, x)
        if not progress.go_on():
            return x
        x = x + np.where(good, 0.0, precondition(residual))
        progress.iterations += 1


def conjugate_gradients(multiply, precondition, b, progress):
    """Solve by conjugate gradients; see `classic`. Hestenes & Stiefel (1952), preconditioned."""
    x, residual = np.zeros_like(b), b.copy()
    z = precondition(residual)
    p, rho = z, np.sum(residual * z, axis=0)
    good = progress.good(residual, x)
    while progress.go_on():
        q = multiply(p)
        with np.errstate(invalid="ignore", divide="ignore"):
            alpha = np.where(good, 0.0, rho / np.sum(p * q, axis=0))
        x = x + alpha * p
        residual = residual - alpha * q
        progress.iterations += 1
        if progress.accept(residual, x).all() or not progress.iterations % 20:
            # what was updated is not what is true
            residual = b - multiply(x)
        good = progress.good(residual, x)
        z = precondition(residual)
        rho, before = np.sum(residual * z, axis=0), rho
        with np.errstate(invalid="ignore", divide="ignore"):
            p = z + np.where(good, 0.0, rho / before) * p
    return x


def gmres(multiply, precondition, b, progress):
    """Solve by flexible GMRES with M on the right; see `classic`. Saad (1993), algorithm 2.2.

    M⁻¹ is applied in FP32, so that it is not quite the same map each time: the flexible form keeps
    what it gave. The true residual is looked at when the estimate says that it is good.
    """
    x, residual = np.zeros_like(b), b
    good = progress.good(residual, x)
    while progress.go_on():
        step, estimates = _cycle(multiply, precondition, x, residual, good, progress)
        x = x + step * ~good
        residual = b - multiply(x)
        progress.history += estimates
        good = progress.good(residual, x)
    return x


def _cycle(multiply, precondition, x, residual, good, progress):
    """Return δx after one cycle of Arnoldi's process, and the estimated residuals on the way."""
    norms = np.linalg.norm(residual, axis=0)
    safe = np.where(norms > 0, norms, 1.0)
    basis, given = [residual / safe], []
    h = np.zeros((BASIS + 1, BASIS, residual.shape[1]))
    # how the measure of a residual hangs on its Euclidean norm, as far as one can tell here
    ratio = progress.measure(residual) / safe
    estimates = []
    for k in range(min(BASIS, max(1, progress.limit - progress.iterations))):
        given.append(precondition(basis[k]))
        w = multiply(given[k])
        # twice, for orthogonality to the last digit
        for _ in range(2):
            for j, v in enumerate(basis):
                part = np.sum(v * w, axis=0)
                h[j, k] += part
                w = w - part * v
        h[k + 1, k] = np.linalg.norm(w, axis=0)
        progress.iterations += 1
        y, left = _least_squares(h[: k + 2, : k + 1], norms)
        step = sum(z * c for z, c in zip(given, y, strict=True))
        estimate = float(np.max(np.where(good, 0.0, left * ratio), initial=0.0))
        if estimate <= 0.5 * progress.enough(x + step).min() or not np.isfinite(estimate):
            break
        estimates.append((progress.iterations, estimate))
        basis.append(w / np.where(h[k + 1, k] > 0, h[k + 1, k], 1.0))
    return step, estimates


def _least_squares(h, norms):
    """Return the columns of y that make ‖norm e₁ - H y‖ least, and what is left of them."""
    rows, columns, m = h.shape
    y, left = np.zeros((columns, m)), np.zeros(m)
    for j in range(m):
        e = np.zeros(rows)
        e[0] = norms[j]
        y[:, j], *_ = np.linalg.lstsq(h[:, :, j], e, rcond=None)
        left[j] = np.linalg.norm(e - h[:, :, j] @ y[:, j])
    return y, left


METHODS = {"ir": classic, "cg": conjugate_gradients, "gmres": gmres}
