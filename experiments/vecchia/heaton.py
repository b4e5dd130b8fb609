"""Predict the 42,740 held-out places of Heaton et al. (2019, JABES 24:398) by Vecchia kriging.

    python experiments/vecchia/heaton.py [satellite] [simulated] --data FOLDER [--tiny]

Writes results/heaton.csv: for each way to fit, the estimates, MAE, RMSE, CRPS, interval score and
coverage of 95 % intervals, and seconds, beside the best published rows. FOLDER holds
heaton_satellite.csv.gz and heaton_simulated.csv.gz, made from the public data of the paper
(github.com/finnlindgren/heatoncomparison); they are not part of this repository. Without --data,
or with --tiny, a small synthetic set stands in.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import pandas as pd
from scipy.special import ndtr

import geomxp as gx
from geomxp.prediction.simulate import lay_out

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import write_rows

HERE = Path(__file__).parent
PUBLISHED = {
    "satellite": (
        ("SPDE (published)", 1.10, 1.53, 0.83, 0.97),
        ("NNGP conjugate (published)", 1.21, 1.64, 0.85, 0.95),
        ("NNGP response (published)", 1.24, 1.68, 0.87, 0.94),
        ("LatticeKrig (published)", 1.22, 1.68, 0.87, 0.96),
        ("periodic embedding (published)", 1.29, 1.79, 0.91, 0.93),
        ("partition (published)", 1.41, 1.80, 1.02, 0.86),
        ("MRA (published)", 1.33, 1.85, 0.94, 0.92),
        ("gapfill (published)", 1.33, 1.86, 1.17, 0.36),
        ("LAGP (published)", 1.65, 2.08, 1.17, 0.83),
        ("tapering (published)", 1.87, 2.45, 1.32, 0.93),
        ("metakriging (published)", 2.08, 2.50, 1.44, 0.89),
        ("predictive process (published)", 2.05, 2.52, 1.85, 0.75),
        ("GpGp 0.5.1, m = 30 and 60 (rerun)", 1.198, 1.652, 0.850, 0.935),
    ),
    "simulated": (
        ("best published", 0.61, 0.83, None, None),
        ("GpGp 0.5.1 (rerun)", 0.611, 0.840, 0.433, 0.951),
    ),
}
EXPONENTIAL = {"fixed": {"smoothness": 0.5}}
ANISOTROPIC = EXPONENTIAL | {"anisotropy": True}
WAYS = {
    "satellite": (
        ("exponential, linear trend, degrees", EXPONENTIAL | {"trend": "linear"}),
        ("exponential, constant, km", EXPONENTIAL | {"metric": "chordal"}),
        ("exponential, anisotropic, linear trend", ANISOTROPIC | {"trend": "linear"}),
        ("exponential, anisotropic, constant", ANISOTROPIC),
        ("nu free, linear trend, degrees", {"trend": "linear"}),
        ("nu free, anisotropic, constant", {"anisotropy": True}),
    ),
    "simulated": (
        ("exponential, constant, degrees", EXPONENTIAL),
        ("nu free, constant, degrees", {}),
    ),
}
"""Smoothness ½ is what most methods of the paper had; the likelihood prefers another."""


def scores(prediction, truth):
    """Return MAE, RMSE, CRPS, interval score and coverage of 95 % intervals of observations."""
    mean, sd = prediction.mean, np.sqrt(prediction.variance_of_observation)
    lower, upper = prediction.interval(0.95, of="observation")
    error = truth - mean
    z = error / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # Gneiting and Raftery 2007 (JASA 102:359), section 4.2 and 6.2
    crps = sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    outside = np.maximum(lower - truth, 0) + np.maximum(truth - upper, 0)
    return {
        "mae": np.abs(error).mean(),
        "rmse": np.sqrt((error**2).mean()),
        "crps": crps.mean(),
        "interval_score": (upper - lower + 2 / 0.05 * outside).mean(),
        "coverage": ((lower <= truth) & (truth <= upper)).mean(),
    }


def load(name, folder):
    """Return (places, values) that were observed, and those held out."""
    frame = pd.read_csv(folder / f"heaton_{name}.csv.gz")
    seen = frame.MaskTemp.notna()
    held = ~seen & frame.TrueTemp.notna()
    places = frame[["Lon", "Lat"]].to_numpy()
    return (
        (places[seen], frame.MaskTemp[seen].to_numpy()),
        (places[held], frame.TrueTemp[held].to_numpy()),
    )


def synthetic(n=900):
    """Return a small set of the same form."""
    places = lay_out(n, "grid")
    values = 40 + gx.simulate(gx.Matern(16.0, 0.3, 0.5, 0.05), places, seed=1)[0]
    held = np.hypot(*(places - 0.4).T) < 0.15
    return (places[~held], values[~held]), (places[held], values[held])


def rows_of(data, label, observed, held, way, neighbours):
    """Fit, and yield the scores of predictions from several numbers of neighbours."""
    way = dict(way)
    metric = way.pop("metric", "euclidean")
    with warnings.catch_warnings():
        # degrees are what the paper's other methods used
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        seen = gx.Observations(*observed, metric=metric)
    start = time.perf_counter()
    fit = gx.fit(seen, None, gx.Vecchia(neighbours), raise_on_failure=False, **way)
    fitted = time.perf_counter()
    model = fit.model
    for count in (2 * neighbours, 20 * neighbours // 3):
        begun = time.perf_counter()
        prediction = gx.predict(fit, held[0], neighbours=count)
        yield {
            "data": data,
            "method": f"geomxp Vecchia({neighbours}), {label}",
            "predicted_from": count,
            **scores(prediction, held[1]),
            "variance": model.variance,
            "range": model.range,
            "smoothness": model.smoothness,
            "nugget": model.nugget,
            "angle": getattr(model.anisotropy, "angle", ""),
            "ratio": getattr(model.anisotropy, "ratio", ""),
            "log_likelihood": fit.log_likelihood,
            "standard_errors": sum(error is not None for error in fit.standard_errors.values()),
            "outcome": str(fit.outcome.ending),
            "evaluations": fit.evaluations,
            "seconds_fit": fitted - start,
            "seconds_predict": time.perf_counter() - begun,
        }


def published(data, keys):
    """Yield the published rows."""
    for method, *numbers in PUBLISHED[data]:
        row = dict.fromkeys(keys, "") | {"data": data, "method": method}
        pairs = zip(("mae", "rmse", "crps", "coverage"), numbers, strict=True)
        yield row | {name: "" if value is None else value for name, value in pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", help="satellite, simulated")
    parser.add_argument("--data", type=Path, help="folder of the data files")
    parser.add_argument("--neighbours", type=int, default=30)
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    rows = []
    for data in options.sets or tuple(WAYS):
        small = options.tiny or options.data is None
        observed, held = synthetic() if small else load(data, options.data)
        name = f"synthetic stand-in for {data}" if small else data
        for label, way in WAYS[data]:
            way = way | {"metric": "euclidean"} if small else way
            count = 10 if small else options.neighbours
            for row in rows_of(name, label, observed, held, way, count):
                rows.append(row)
                print(*(f"{k}={v}" for k, v in row.items()), flush=True)
        if not small:
            rows += published(data, list(rows[0]))
        write_rows(options.output / "heaton.csv", rows)


if __name__ == "__main__":
    main()
