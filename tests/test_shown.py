"""What an interpreter shows of results: a line that names them, and tables that can be read."""

from dataclasses import is_dataclass

import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.covariance.distance import metric_of
from geomxp.tiles import refine

HELD = ("variance", "range", "smoothness", "nugget")
MODEL = gx.Matern(1.0, 0.1, 0.5, 0.1)
SMALL, LARGE = 40, 1240
TRANSFORMATIONS = ("BoxCox", "Log", "Logit", "Sqrt", "Transformation", "TukeyGH")
FAMILIES = (
    *("Cauchy", "Gaussian", "PoweredExponential", "RationalQuadratic", "Spherical", "Wendland"),
    *("MaternSpaceTime", "Separable", "Gneiting"),
)


def family(name):
    kind = getattr(gx, name)
    return kind.from_parameters({p.name: p.value for p in kind.declared})


def observations(n):
    rng = np.random.default_rng(0)
    covariates = pd.DataFrame(rng.random((n, 9)), columns=[f"c{j}" for j in range(9)])
    rock = np.where(np.arange(n) % 2, "clay", "sand")
    return gx.Observations(rng.random((n, 2)), rng.random(n), covariates.assign(rock=rock))


def fitted(n):
    # what a neighbour is costs no n x n matrix
    return gx.fit(observations(n), MODEL, gx.Vecchia(3), fixed=HELD, progress=False)


def evaluation(n):
    method = gx.Exact(gx.by_tile_norm(1e-3), tile=n // 8)
    return gx.log_likelihood(observations(n), MODEL, method, trend="linear")


def raster(n):
    return gx.Raster(np.ones((n, 2)), np.ones((n, 2)), (0.0, 1.0, 0.0, 2.0))


def bootstrapped(n):
    return gx.Bootstrap(pd.DataFrame({"range": np.ones(n)}), {"range": 1.0}, n, 0)


def comparison(n):
    return gx.compare_models(
        observations(n), gx.Vecchia(3), smoothness=(0.5,), nuggets=(0.1,), progress=False
    )


SEVERAL = {
    "Independent": gx.Independent((1.0, 2.0), (0.2, 0.3), 0.5),
    "Coregionalization": gx.Coregionalization((1.0, 0.5, 1.0), (0.2, 0.3), 0.5),
    "ParsimoniousMatern": gx.ParsimoniousMatern((1.0, 2.0), 0.2, 0.5, 0.4),
    "FlexibleMatern": gx.FlexibleMatern((1.0, 2.0), (0.2, 0.3), 0.5, 0.4),
}


SHOWN = {
    "Anisotropy": lambda n: gx.Anisotropy(30.0, 0.5),
    "Anisotropy3D": lambda n: gx.Anisotropy3D(30.0, 10.0, 0.0, 0.5, 0.2),
    "AxisRatios": lambda n: gx.AxisRatios(0.5),
    "AxisRatios3D": lambda n: gx.AxisRatios3D(0.5, 0.2),
    "Bootstrap": bootstrapped,
    "Divergence": lambda n: gx.kl_divergence(
        MODEL, observations(n).locations, gx.Exact(gx.layered("fp16", "fp32"), tile=n // 8)
    ),
    "Estimate": lambda n: gx.Estimate(1.0, 0.1, 0.8, 1.2),
    "EstimatedDivergence": lambda n: gx.estimate_divergence(
        MODEL, observations(n).locations, gx.Exact(gx.uniform("fp32"), tile=n // 8)
    ),
    "Evaluation": evaluation,
    "Exact": lambda n: gx.Exact(gx.by_band(("fp32", 2), "fp16"), tile=n),
    "Exploration": lambda n: gx.explore(observations(n)),
    "Fit": fitted,
    "FormatDivergence": lambda n: gx.FormatDivergence(1e-6, 1e-7, 16, target=1e-3),
    "HurdleFit": lambda n: gx.HurdleFit(fitted(n), fitted(n), observations(n)),
    "LikelihoodRatio": lambda n: gx.LikelihoodRatio(1.0, 1, 0.3, "the smaller model will do"),
    "Matern": lambda n: MODEL,
    **{name: lambda n, name=name: family(name) for name in FAMILIES},
    **{name: lambda n, name=name: SEVERAL[name] for name in SEVERAL},
    "Inputs": lambda n: gx.Inputs(observations(n).locations),
    "Metric": lambda n: metric_of("euclidean"),
    "Parameter": lambda n: MODEL.table[0],
    "NoiseParameter": lambda n: MODEL.parameter("nugget"),
    "MemoryPlan": lambda n: gx.Exact(tile=n // 8, memory="100MB").plan(n),
    "Misspecification": lambda n: gx.Misspecification(*np.ones((4, n))),
    "ModelComparison": comparison,
    "Observations": observations,
    "Outcome": lambda n: gx.Outcome(gx.Ending.CONVERGED, "the gradient is 0"),
    "Prediction": lambda n: gx.Prediction(np.ones((n, 2)), np.ones(n), np.ones(n), 0.1),
    "Raster": raster,
    "RasterSeries": lambda n: gx.RasterSeries((raster(n),) * 3, np.arange(3.0)),
    "TimeAxis": lambda n: gx.TimeAxis("day", "2026-03-01"),
    "TrendTest": lambda n: gx.TrendTest(4.2, (1.0, 17.5), 0.055),
    "Validation": lambda n: gx.Validation(
        observations(n), np.ones(n), np.ones(n), np.arange(n), "leave-one-out"
    ),
    "Variogram": lambda n: gx.variogram(observations(n), directions=4),
    **{name: lambda n, name=name: getattr(gx, name)() for name in TRANSFORMATIONS},
    "Vecchia": lambda n: gx.Vecchia(ordering=np.arange(n)),
}
"""Every public class of results and choices, for so many places."""

BASES = {"Covariance", "Isotropic"}
"""Classes to derive from, which have no instances of their own."""


def test_every_public_class_of_results_is_among_them():
    public = {name for name in gx.__all__ if is_dataclass(getattr(gx, name))}
    assert set(SHOWN) | BASES == public


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_representation_names_its_class_in_a_line_that_does_not_grow(name):
    small, large = (repr(SHOWN[name](n)) for n in (SMALL, LARGE))
    for text in (small, large):
        assert name in text
        assert "\n" not in text
        assert "array(" not in text
        assert len(text) <= 600
    # numbers may have more digits
    assert abs(len(large) - len(small)) <= 60


@pytest.mark.parametrize("name", ["Observations", "Prediction", "Fit", "Evaluation", "Validation"])
def test_a_representation_says_how_many_there_are(name):
    assert f"{LARGE:,} " in repr(SHOWN[name](LARGE))


def test_a_representation_of_observations_says_what_they_are():
    text = repr(gx.datasets.load("ozone"))
    assert text == "<Observations of o3_ppb, 147 locations (lon, lat), chordal distances in km>"
    assert repr(observations(SMALL)).endswith("covariates c0, c1, c2, c3, c4, c5, … (10)>")


def test_observations_as_text_are_a_table_of_their_columns():
    seen = gx.datasets.load("meuse", covariates=("sqrt_dist", "elev"))
    head, _, _, *rows = str(seen).splitlines()
    assert head == f"155 observations, euclidean distances in {seen.unit}"
    columns = [*seen.locations.T, seen.values, *seen.covariates.T]
    names = [*seen.location_names, seen.value_name, *seen.covariate_names]
    assert [row.split()[0] for row in rows] == names
    for row, column in zip(rows, columns, strict=True):
        found = [float(word) for word in row.split()[1:]]
        expected = [column.min(), np.median(column), column.max()]
        np.testing.assert_allclose(found, expected, rtol=5e-6)
    assert str(observations(SMALL)).endswith("levels: clay, sand")


def test_predictions_as_text_are_the_field_and_an_observation():
    mean, variance = np.array([1.0, 3.0]), np.array([4.0, 9.0])
    text = str(gx.Prediction(np.ones((2, 2)), mean, variance, 16.0))
    rows = {line[:18].strip(): line[18:].split() for line in text.splitlines()[2:]}
    assert rows["mean"] == ["1", "2", "3"]
    assert rows["standard error"] == ["2", "2.5", "3"]
    assert rows["of an observation"] == ["4.47214", "4.73607", "5"]
    blocks = str(gx.Prediction(np.ones((2, 2)), mean, variance, None))
    assert blocks.startswith("Averages over 2 blocks")
    assert "of an observation" not in blocks


def test_a_raster_as_text_leaves_masked_cells_out():
    mean = np.array([[1.0, np.nan], [3.0, 2.0]])
    text = str(gx.Raster(mean, mean, (0.0, 2.0, 0.0, 4.0), value_name="zinc"))
    assert "Raster of zinc: 2 × 2 cells, x from 0 to 2, y from 0 to 4" in text
    assert "3 predictions at centres of cells" in text
    (row,) = (line for line in text.splitlines() if line.startswith("mean"))
    assert row.split() == ["mean", "1", "2", "3"]
    nothing = gx.Raster(np.full((2, 2), np.nan), np.full((2, 2), np.nan), (0.0, 2.0, 0.0, 4.0))
    assert "no numbers" in str(nothing)


def test_what_refinement_returns_is_shown_without_its_solution():
    found = refine.solve(np.eye(64) * 2.0, np.ones(64))
    assert repr(found).startswith(f"<Refinement by {found.method}: CONVERGED, residual ")
    assert "array(" not in repr(found)


def test_a_precision_map_is_shown_by_its_counts_and_drawn_as_text():
    found = gx.layered("fp16", "fp32")(np.ones((4, 4)))
    assert repr(found) == "<PrecisionMap of 4 block rows: 4 fp64, 2 fp32, 4 fp16>"
    assert str(found) == "D\nSD\nHHD\nHHSD"
