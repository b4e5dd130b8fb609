"""Cells of the table of combinations: what is asked of a model, and whether it works."""

from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

import geomxp as gx
from geomxp import testing
from geomxp.covariance.base import family_of

SPACES = (
    *("matern", "gaussian", "powered-exponential", "cauchy", "rational-quadratic"),
    *("spherical", "wendland"),
)
TIMES = ("", "separable", "gneiting", "metric")
VARIABLES = ("", "independent", "coregionalization", "parsimonious-matern", "flexible-matern")
MAPS = {
    "in the plane": None,
    "anisotropic in the plane": gx.Anisotropy(30.0, 0.5),
    "anisotropic in space": gx.Anisotropy3D(30.0, 20.0, 10.0, 0.6, 0.3),
    "one range for each axis": gx.AxisRatios3D(2.0, 0.4),
    "chordal": None,
    "great-circle": None,
}
DATA = ("plain", "replicates", "error variances", "transformed", "correlated nuggets")
METHODS = {
    "Exact": gx.Exact(),
    "mixed precision": gx.Exact(gx.by_tile_norm(1e-9), tile=16),
    "low rank": gx.Exact(gx.for_divergence(1e-8, low_rank=True), tile=16),
    "Vecchia": gx.Vecchia(59),
}
OPERATIONS = ("log_likelihood", "fit", "predict", "simulate", "leave_one_out", "block", "report")
FACTORS = (SPACES, TIMES, VARIABLES, tuple(MAPS), DATA, tuple(METHODS), OPERATIONS)

VALUES = {"variance": 1.3, "time_range": 2.0, "nugget": 0.1, "smoothness": 0.4, "shape": 1.2}
VALUES |= {"loading": 0.7, "correlation": 0.2, "power": 0.8, "decay": 1.5}
VALUES |= {"time_smoothness": 0.6, "time_power": 0.7, "interaction": 0.6, "time_decay": 0.4}


@dataclass(frozen=True)
class Cell:
    """One combination of the levels of all factors."""

    space: str
    time: str
    variables: str
    geometry: str
    data: str
    method: str
    operation: str

    @property
    def family(self):
        """Name of the family; None for a name that makes no sense."""
        alone = self.space
        if self.variables.endswith("matern"):
            if self.space != "matern":
                return None
            alone = self.variables
        elif self.variables:
            alone = f"{self.variables}-{self.space}"
        name = f"{self.time}-{alone}" if self.time else alone
        return name.removesuffix("-matern") if name == f"{self.variables}-matern" else name

    @property
    def metric(self):
        """The metric of the locations."""
        return self.geometry if self.geometry in ("chordal", "great-circle") else "euclidean"


def model_of(cell):
    """Return the model of a cell; raise `InvalidInput` where the family is no covariance."""
    kind, values = family_of(cell.family), VALUES | {"range": 0.4}
    if cell.metric != "euclidean":
        values["range"] = 1500.0
    if cell.space == "wendland":
        values |= {"smoothness": 1.0, "shape": 6.0}
    names = [*kind.declared_for(2)]
    if cell.data == "correlated nuggets" and cell.variables:
        names += kind.optional_for(2)
    values |= {"nugget_covariance": 0.04}
    model = kind.from_parameters({p.name: values[p.group] for p in names})
    model = replace(model, anisotropy=MAPS[cell.geometry])
    return replace(model, transform="sqrt") if cell.data == "transformed" else model


def observations_of(cell, n=60):
    """Return observations that a cell asks for; positive values."""
    random, turned = np.random.default_rng(3), MAPS[cell.geometry]
    places = testing.places(n, 2 if turned is None else turned.dimensions)
    if cell.metric != "euclidean":
        places = np.column_stack((random.uniform(-20, 20, n), random.uniform(-40, 40, n)))
    columns = {}
    if cell.time:
        columns["time"] = np.round(random.random(n) * 5)
    if cell.variables:
        columns["variable"] = random.permutation(np.arange(n) % 2)
    if cell.data == "replicates":
        columns["replicates"] = random.integers(1, 4, n).astype(float)
    if cell.data == "error variances":
        columns["error_variance"] = 0.1 * random.random(n)
    values = random.gamma(2.0, 1.0, n)
    return gx.Observations(places, values, metric=cell.metric, **columns)


def dense(model, seen):
    """Return the log-likelihood without a trend by the formula of a normal density."""
    inputs = seen.inputs
    sigma = model.matrix(inputs, inputs) + np.diag(model.noise(inputs).variances)
    z, jacobian = seen.values, 0.0
    if model.transform is not None:
        z, jacobian = np.sqrt(seen.values), -np.log(2 * np.sqrt(seen.values)).sum()
    value = np.linalg.slogdet(sigma)[1] + z @ np.linalg.solve(sigma, z)
    return -0.5 * (value + len(z) * np.log(2 * np.pi)) + jacobian


def run(cell, folder):
    """Do what a cell asks for; raise `InvalidInput` where it is refused."""
    model, seen, method = model_of(cell), observations_of(cell), METHODS[cell.method]
    model.check_inputs(seen.inputs)
    if cell.operation == "log_likelihood":
        found = gx.log_likelihood(seen, model, method).log_likelihood
        expected = dense(model, seen)
        assert abs(found - expected) < 1e-5 * abs(expected), (found, expected)
        return
    free = [name for name in model.parameters() if name.startswith("range")]
    held = free if cell.operation != "fit" else ()
    fixed = {n: x for n, x in model.parameters().items() if n not in free or n in held}
    if cell.operation == "fit":
        fixed.pop(free[0], None)
        fixed |= {name: model.parameters()[name] for name in free[1:]}
    known = model.parameters().items()
    bounds = {name: (0.05 * x, 20 * x) for name, x in known if name not in fixed}
    fit = gx.fit(
        *(seen, model, method),
        fixed=fixed,
        bounds=bounds,
        progress=False,
        raise_on_failure=False,
    )
    new = {"time": seen.time[:3]} if cell.time else {}
    if cell.operation == "fit":
        again = gx.log_likelihood(seen, fit.model, method).log_likelihood
        assert abs(fit.log_likelihood - again) < 1e3
        return
    if cell.operation == "predict":
        found = gx.predict(fit, seen.locations[:3] + 0.01, progress=False, **new)
        assert np.isfinite(found.mean).all()
        assert (found.variance > 0).all()
    elif cell.operation == "block":
        found = gx.predict(fit, seen.locations[:3], block=0.1, progress=False, draws=20, **new)
        assert (found.variance > 0).all()
    elif cell.operation == "simulate":
        new |= {"variable": np.array([0, 1, 1])} if cell.variables else {}
        drawn = gx.simulate(fit, seen.locations[:3] + 0.01, draws=2, seed=1, **new)
        assert np.isfinite(drawn).all()
    elif cell.operation == "leave_one_out":
        assert np.isfinite(list(gx.leave_one_out(fit).scores().values())).all()
    else:
        gx.report(fit, folder / "report.html", progress=False)


def refusal(cell, folder):
    """Return the message of a refusal; None where a cell works."""
    try:
        run(cell, folder)
    except gx.InvalidInput as error:
        return str(error)
    return None


def pairwise(seed=0):
    """Return cells in which every two levels of two factors occur together."""
    random, rows, left = np.random.default_rng(seed), [], sensible_pairs()

    def pairs(row):
        return {(a, row[a], b, row[b]) for a, b in combinations(range(len(row)), 2)} & left

    while left:
        best = None
        for _ in range(30):
            a, x, b, y = sorted(left)[random.integers(len(left))]
            row = [levels[random.integers(len(levels))] for levels in FACTORS]
            row[a], row[b] = x, y
            cell = Cell(*row)
            if cell.family is None or (cell.data == "correlated nuggets" and not cell.variables):
                continue
            if best is None or len(pairs(row)) > len(pairs(best)):
                best = row
        if best is not None:
            rows.append(Cell(*best))
            left -= pairs(best)
    return rows


def levels_of(cell):
    """Return the level of each factor, in the order of `FACTORS`."""
    return (
        *(cell.space, cell.time, cell.variables, cell.geometry),
        *(cell.data, cell.method, cell.operation),
    )


def sensible_pairs():
    """Return (factor, level, other factor, its level) of all levels that can occur together."""
    pairs = (
        (a, x, b, y)
        for a, b in combinations(range(len(FACTORS)), 2)
        for x, y in product(FACTORS[a], FACTORS[b])
    )
    return {pair for pair in pairs if not _senseless(pair)}


def _senseless(pair):
    """Whether two levels contradict each other by their meaning."""
    a, x, _, y = pair
    if y.endswith("matern") and x in SPACES and x != "matern":
        return True
    # of one variable
    return a == FACTORS.index(VARIABLES) and (x, y) == ("", "correlated nuggets")
