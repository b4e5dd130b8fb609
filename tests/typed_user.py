"""A user's script, annotated as a strict type checker wants it; the tests run it too."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import geomxp as gx
from geomxp import plots
from geomxp.covariance.matern import PACKAGES
from geomxp.linalg import batched, nested
from geomxp.sklearn import GeoRegressor
from geomxp.tiles import refine

Array = NDArray[np.float64]


def read(path: Path) -> gx.Observations:
    columns = ("x", "y")
    return gx.read_table(
        path, locations=columns, values="log_zinc", covariates=("sqrt_dist",), metric="euclidean"
    )


def observe() -> gx.Observations:
    places = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.5]]
    return gx.Observations(places, [1.0, 2.0, 1.5, 2.5], covariates=np.arange(4.0))


def models() -> list[gx.Matern]:
    turned = gx.Matern(1.0, 200.0, 0.5, anisotropy=(30.0, 0.5))
    assert isinstance(turned.anisotropy, gx.Anisotropy)
    angle: float = turned.anisotropy.angle
    theirs = turned.parameters() | {"anisotropy_angle": angle + 10.0}
    other = gx.Matern.from_convention("scikit-learn", variance=1, length_scale=3, nu=1.5)
    names: dict[str, float] = other.to_convention(sorted(PACKAGES)[0])
    assert names
    return [turned, gx.Matern.from_parameters(theirs), other]


def ways() -> list[gx.Exact | gx.Vecchia]:
    return [
        gx.Exact(precision=gx.by_tile_norm(1e-8), tile=64, on="cpu"),
        gx.Exact(gx.layered("fp16", "fp32"), refine="gmres", fallback=True),
        gx.Exact(gx.by_band(("fp64", 2), "fp32"), memory="4GB", scratch=Path()),
        gx.Exact(gx.for_divergence(1e-3), on=["cpu"]),
        gx.Vecchia(neighbours=10, ordering=list(range(155))),
    ]


def evaluate(seen: gx.Observations, model: gx.Matern) -> dict[str, int]:
    found = gx.log_likelihood(seen, model, gx.Exact(tile=64), trend="constant", reml=False)
    assert found.outcome.good
    formats = found.precision_map
    return formats.counts() if formats is not None else {}


def estimate(seen: gx.Observations) -> gx.Fit:
    fit = gx.fit(seen, fixed={"smoothness": 0.5}, bounds={"range": (10.0, 5000.0)}, trend="linear")
    error: float | None = fit.standard_errors["range"]
    assert error is None or error > 0
    lower, upper = fit.confidence_intervals(0.9, method="wald")["range"]
    assert lower < fit.model.range < upper
    information: Array = gx.information(fit, "expected")
    assert len(information) == len(fit.free)
    return gx.fit(seen, fit.model, gx.Exact(), fixed=("smoothness",), start={"nugget": 0.1})


def predict(fit: gx.Fit, places: Array) -> Array:
    there = gx.predict(fit, [[179500, 331000], [180000, 332000]])
    lower, upper = there.interval(0.95, of="observation")
    assert (lower < there.mean).all()
    assert (upper - lower > there.variance_of_observation * 0).all()
    blocks = gx.predict(fit, places[:2], block=(40.0, 40.0))
    field = gx.simulate(fit.model, places, draws=3, seed=0)
    given: Array = gx.simulate(fit, places, of="field")
    assert (blocks.variance > 0).all()
    return np.concatenate((field, given))


def judge(fit: gx.Fit, seen: gx.Observations) -> tuple[float, gx.Validation]:
    kl: gx.Divergence = gx.kl_divergence(fit.model, seen, gx.Exact(gx.uniform("fp32"), tile=64))
    apart: float = gx.kl_between(fit.model, gx.Matern(1.0, 200.0, 0.5, 0.1), seen.locations)
    validation = gx.cross_validate(fit, folds=5)
    scores: dict[str, float] = gx.leave_one_out(fit).scores()
    held_out: gx.Validation = gx.validate(fit, gx.Observations(seen.locations, seen.values + 1.0))
    assert held_out != validation
    crps = gx.scores.crps_gaussian(0.0, 1.0, [0.5])
    return kl.kl + apart + scores["crps"] + float(crps[0]), validation


def compare(seen: gx.Observations, fit: gx.Fit) -> tuple[gx.ModelComparison, gx.LikelihoodRatio]:
    smoother = gx.fit(seen, fixed={"smoothness": 0.5, "nugget": 0.0})
    ranked = gx.compare_models(seen, smoothness=(0.5, 1.5), trends=("constant",), criterion="bic")
    assert ranked.best.model.smoothness in (0.5, 1.5)
    return ranked, gx.likelihood_ratio_test(smoother, fit)


def keep(fit: gx.Fit, folder: Path) -> gx.Outcome:
    fit.save(folder / "fit.json")
    outcome = gx.Fit.load(folder / "fit.json").outcome
    if outcome.ending is not gx.Ending.CONVERGED:
        raise gx.FitFailed(outcome.message, fit)
    return outcome


def look(seen: gx.Observations, folder: Path) -> str | None:
    found: gx.Exploration = gx.explore(seen, trend="linear")
    around: gx.Variogram = gx.variogram(seen, directions=[0, 90], tolerance=20.0)
    assert len(around.to_frame()) == len(around)
    plots.variogram(around, ax=plots.variogram(seen))
    gx.report(found, folder / "explore.html")
    return found.command


def show(fit: gx.Fit, folder: Path) -> str:
    ax = plots.variogram(fit, bins=10, envelope=0)
    assert ax.figure is plots.prediction_map(fit, cells=10, ax=ax).figure
    gx.report(fit, folder / "fit.html", command=None)
    return ax.get_title()


def solve(a: Array) -> Array:
    lower = nested.potrf(a.copy(), layers=("fp64",))
    factors, info = batched.potrf(a[None], check=False)
    assert not info.any()
    assert (batched.potrf(a[None]) == factors).all()
    found = refine.solve(a, a @ lower, precision=gx.uniform("fp32"))
    assert found.outcome.good, str(found.outcome)
    return found.solution


def regress(seen: gx.Observations) -> tuple[Array, Array]:
    regressor = GeoRegressor(smoothness=0.5).fit(seen.locations, seen.values)
    mean, error = regressor.predict(seen.locations, return_std=True)
    again: Array = regressor.predict(seen.locations)
    assert (mean == again).all()
    return mean, error
