"""Write families_kriging.json: likelihoods, scores and kriging of small data sets.

Run `python -m references.make_families_kriging` in `tests/`. The values come from mpmath. They are
compared with SciPy and, where installed, with scikit-learn, GSTools, GPBoost and the R packages
gstat, RandomFields and fields; what each package gave is written beside them.
"""

import csv
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import mpmath
import numpy as np
import scipy
from mpmath import mp, mpf
from references.make_families import correlation, write

RADIUS = 6371.0
DIGITS = 20
PLACES = 5


def data_sets():
    """The data, drawn once with NumPy's generator and rounded."""
    rng = np.random.default_rng(20240613)
    plane, cube = rng.random((48 + PLACES, 2)), rng.random((40 + PLACES, 3))
    lonlat = np.column_stack(
        (rng.uniform(-180, 180, 45 + PLACES), np.degrees(np.arcsin(rng.uniform(-0.97, 0.97, 50))))
    )
    sets = {}
    for name, all_places, metric, reach in (
        ("plane", plane.round(4), "euclidean", 0.3),
        ("cube", cube.round(4), "euclidean", 0.4),
        ("globe", lonlat.round(3), "chordal", 4000.0),
    ):
        n = len(all_places) - PLACES
        h = distances(all_places[:n], all_places[:n], metric).astype(float)
        covariance = 1.5 * np.exp(-h / reach) + 0.1 * np.eye(n)
        values = np.linalg.cholesky(covariance) @ rng.standard_normal(n)
        sets[name] = {
            "metric": ["euclidean"] if metric == "euclidean" else ["chordal", "great-circle"],
            "locations": all_places[:n].tolist(),
            "values": values.round(4).tolist(),
            "new_locations": all_places[n:].tolist(),
        }
    return sets


def distances(a, b, metric):
    """Distances (len(a), len(b)) of mpf, exact for the doubles given."""

    def embed(place):
        if metric == "euclidean":
            return [mpf(float(x)) for x in place]
        lon, lat = (mpf(float(x)) * mp.pi / 180 for x in place)
        return [
            RADIUS * mpmath.cos(lat) * mpmath.cos(lon),
            RADIUS * mpmath.cos(lat) * mpmath.sin(lon),
            RADIUS * mpmath.sin(lat),
        ]

    def between(p, q):
        chord = mpmath.sqrt(mpmath.fsum((x - y) ** 2 for x, y in zip(p, q, strict=True)))
        return 2 * RADIUS * mpmath.asin(chord / (2 * RADIUS)) if metric == "great-circle" else chord

    a, b = [embed(p) for p in a], [embed(p) for p in b]
    return np.array([[between(p, q) for q in b] for p in a], dtype=object)


CASES = [
    # family, variance, range in the plane, shapes, nugget, with the great-circle distance?
    ("matern", 1.3, 0.2, {"smoothness": 0.5}, 0.08, True),
    ("matern", 0.9, 0.125, {"smoothness": 1.3}, 0.15, False),
    ("gaussian", 1.1, 0.25, {}, 0.2, False),
    ("powered-exponential", 1.4, 0.3, {"power": 1.5}, 0.1, False),
    ("powered-exponential", 1.4, 0.3, {"power": 0.75}, 0.1, True),
    ("cauchy", 1.6, 0.2, {"power": 1.25, "decay": 0.8}, 0.1, False),
    ("cauchy", 1.6, 0.2, {"power": 0.9, "decay": 0.8}, 0.1, True),
    ("cauchy", 1.2, 0.25, {"power": 2.0, "decay": 3.0}, 0.12, False),
    ("rational-quadratic", 1.2, 0.15, {"shape": 0.7}, 0.1, False),
    ("spherical", 1.3, 0.6, {}, 0.1, True),
    ("wendland", 1.3, 0.9, {"smoothness": 0.0, "shape": 2.5}, 0.1, True),
    ("wendland", 1.3, 0.9, {"smoothness": 1.0, "shape": 3.0}, 0.1, True),
    ("wendland", 1.3, 1.1, {"smoothness": 0.7, "shape": 3.5}, 0.1, True),
]
SCALE = {"plane": 1.0, "cube": 1.5, "globe": 12000.0}


def matrix(family, h, model):
    """σ² ρ(h) without a nugget."""
    shapes = {
        name: mpf(x) for name, x in model.items() if name not in ("variance", "range", "nugget")
    }
    out = np.empty(h.shape, dtype=object)
    known = {}
    for index, x in np.ndenumerate(h):
        if x not in known:
            known[x] = model["variance"] * correlation(family, x, model["range"], **shapes)
        out[index] = known[x]
    return out


def cholesky(a):
    """Lower factor; rows of mpf."""
    n = len(a)
    low = np.full((n, n), mpf(0), dtype=object)
    for j in range(n):
        row = low[j, :j]
        low[j, j] = mpmath.sqrt(a[j, j] - mpmath.fdot(row, row))
        for i in range(j + 1, n):
            low[i, j] = (a[i, j] - mpmath.fdot(low[i, :j], row)) / low[j, j]
    return low


def half_solve(low, b):
    """Low⁻¹ b."""
    out = []
    for i in range(len(b)):
        out.append((b[i] - mpmath.fdot(low[i, :i], out)) / low[i, i])
    return out


def log_likelihood(family, h, z, model):
    """(ℓ, log det, quadratic form, factor, L⁻¹z)."""
    a = matrix(family, h, model)
    for i in range(len(a)):
        a[i, i] += model["nugget"]
    low = cholesky(a)
    u = half_solve(low, z)
    log_determinant = 2 * mpmath.fsum(mpmath.log(low[i, i]) for i in range(len(z)))
    quadratic = mpmath.fdot(u, u)
    value = -(len(z) * mpmath.log(2 * mp.pi) + log_determinant + quadratic) / 2
    return value, log_determinant, quadratic, low, u


def score(family, h, z, model):
    """∂ℓ/∂log of variance, range and nugget, and ∂ℓ/∂(each shape), by central differences."""
    step = mpf(10) ** -18
    found = {}
    for name, at in model.items():
        logarithm = name in ("variance", "range", "nugget")
        both = []
        for sign in (1, -1):
            moved = at * mpmath.exp(sign * step) if logarithm else at + sign * step
            both.append(log_likelihood(family, h, z, {**model, name: moved})[0])
        found[f"log_{name}" if logarithm else name] = (both[0] - both[1]) / (2 * step)
    return found


def text(x):
    """Digits of an mpf."""
    return mpmath.nstr(x, DIGITS)


def evaluate(family, data, metric, model):
    """What is written for one case."""
    exact = {name: mpf(value) for name, value in model.items()}
    z = [mpf(x) for x in data["values"]]
    h = distances(data["locations"], data["locations"], metric)
    value, log_determinant, quadratic, low, u = log_likelihood(family, h, z, exact)
    there = matrix(family, distances(data["locations"], data["new_locations"], metric), exact)
    mean, variance = [], []
    for k in range(PLACES):
        w = half_solve(low, there[:, k])
        mean.append(mpmath.fdot(w, u))
        variance.append(exact["variance"] - mpmath.fdot(w, w))
    return {
        "log_likelihood": text(value),
        "log_determinant": text(log_determinant),
        "quadratic_form": text(quadratic),
        "score": {name: text(x) for name, x in score(family, h, z, exact).items()},
        "kriging_mean": [text(x) for x in mean],
        "kriging_variance": [text(x) for x in variance],
    }


# Packages. Each returns {quantity: value} or None.


def dense(field, cross, model, z):
    """Likelihood and kriging in FP64 from covariance matrices."""
    low = np.linalg.cholesky(field + model["nugget"] * np.eye(len(z)))
    u = scipy.linalg.solve_triangular(low, z, lower=True)
    w = scipy.linalg.solve_triangular(low, cross, lower=True)
    return {
        "log_likelihood": -0.5 * (len(z) * np.log(2 * np.pi) + u @ u) - np.log(np.diag(low)).sum(),
        "kriging_mean": w.T @ u,
        "kriging_variance": model["variance"] - (w * w).sum(0),
    }


def straight(data, metric):
    """Coordinates whose Euclidean distance is the metric's."""
    if metric == "euclidean":
        return [np.array(data[key]) for key in ("locations", "new_locations")]
    out = []
    for key in ("locations", "new_locations"):
        lon, lat = np.radians(np.array(data[key])).T
        out.append(
            RADIUS
            * np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))
        )
    return out


def with_scipy(family, data, metric, model):
    """FP64 formulas of our own."""
    a, b = straight(data, metric)
    h, g = scipy.spatial.distance.cdist(a, a), scipy.spatial.distance.cdist(a, b)
    if metric == "great-circle":
        h, g = (2 * RADIUS * np.arcsin(x / (2 * RADIUS)) for x in (h, g))

    def rho(x):
        return model["variance"] * in_doubles(family, x / model["range"], model)

    return dense(rho(h), rho(g), model, np.array(data["values"]))


def in_doubles(family, r, model, nodes=80):
    """ρ(r) with NumPy and SciPy; Wendland by Gauss-Jacobi quadrature."""
    if family == "matern":
        nu, x = model["smoothness"], np.where(r > 0, r, 1.0)
        value = 2 ** (1 - nu) / scipy.special.gamma(nu) * x**nu * scipy.special.kv(nu, x)
        return np.where(r > 0, value, 1.0)
    if family == "gaussian":
        return np.exp(-(r**2))
    if family == "powered-exponential":
        return np.exp(-(r ** model["power"]))
    if family == "cauchy":
        return (1 + r ** model["power"]) ** (-model["decay"] / model["power"])
    if family == "rational-quadratic":
        return (1 + r**2 / (2 * model["shape"])) ** -model["shape"]
    if family == "spherical":
        return np.where(r < 1, 1 - 1.5 * r + 0.5 * r**3, 0.0)
    k, m = model["smoothness"], model["shape"]
    # u = r + (1-r) t in 1/B(1+2κ,μ) ∫ (u²-r²)^κ (1-u)^(μ-1) du
    t, weights = scipy.special.roots_jacobi(nodes, m - 1, k)
    t, weights = (t + 1) / 2, weights / 2 ** (k + m)
    s = np.minimum(r, 1.0)
    inner = ((2 * s[..., None] + (1 - s[..., None]) * t) ** k) @ weights
    return np.where(r > 0, (1 - s) ** (k + m) * inner / scipy.special.beta(1 + 2 * k, m), 1.0)


def with_sklearn(family, data, metric, model):
    """GaussianProcessRegressor with the nugget as `alpha`."""
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    a = model["range"]
    if family == "gaussian":
        kernel = kernels.RBF(a / np.sqrt(2))
    elif family == "rational-quadratic":
        kernel = kernels.RationalQuadratic(a, model["shape"])
    elif family == "cauchy" and model["power"] == 2:
        # (1 + r²)^(-β/2): alpha = β/2, 2 alpha l² = a²
        kernel = kernels.RationalQuadratic(a / np.sqrt(model["decay"]), model["decay"] / 2)
    elif family == "matern":
        nu = model["smoothness"]
        kernel = kernels.Matern(a * np.sqrt(2 * nu), nu=nu)
    else:
        return None
    if metric == "great-circle":
        return None
    old, new = straight(data, metric)
    regression = GaussianProcessRegressor(
        kernels.ConstantKernel(model["variance"]) * kernel, alpha=model["nugget"], optimizer=None
    ).fit(old, data["values"])
    mean, deviation = regression.predict(new, return_std=True)
    return {
        "log_likelihood": regression.log_marginal_likelihood(),
        "kriging_mean": mean,
        "kriging_variance": deviation**2,
    }


def with_gstools(family, data, metric, model):
    """Simple kriging with the nugget as the variance of the conditions' errors."""
    import gstools

    a = model["range"]
    if family == "gaussian":
        kind, options = gstools.Gaussian, {"len_scale": a * np.sqrt(np.pi) / 2}
    elif family == "powered-exponential":
        kind, options = gstools.Stable, {"len_scale": a, "alpha": model["power"]}
    elif family == "matern":
        nu = model["smoothness"]
        kind, options = gstools.Matern, {"len_scale": a * np.sqrt(nu), "nu": nu}
    elif family == "rational-quadratic":
        kind, options = gstools.Rational, {"len_scale": a * np.sqrt(2), "alpha": model["shape"]}
    elif family == "cauchy" and model["power"] == 2:
        half = model["decay"] / 2
        kind, options = gstools.Rational, {"len_scale": a / np.sqrt(half), "alpha": half}
    elif family == "spherical":
        kind, options = gstools.Spherical, {"len_scale": a}
    elif family == "wendland" and model["smoothness"] == 0:
        kind, options = gstools.TPLSimple, {"len_scale": a, "nu": model["shape"]}
    else:
        return None
    if metric == "great-circle":
        return None
    old, new = (np.array(data[key]) for key in ("locations", "new_locations"))
    if metric == "chordal":
        # latitude first; the scale makes lengths kilometres
        options |= {"latlon": True, "geo_scale": RADIUS}
        old, new = old[:, ::-1], new[:, ::-1]
    else:
        options["dim"] = old.shape[1]
    covariance = kind(var=model["variance"], **options)
    kriging = gstools.krige.Simple(
        covariance, old.T, data["values"], mean=0.0, cond_err=model["nugget"], pseudo_inv=False
    )
    mean, variance = kriging(new.T)
    a, _ = straight(data, metric)
    dist = scipy.spatial.distance.cdist(a, a)
    if metric == "chordal":
        field = covariance.cov_yadrenko(2 * RADIUS * np.arcsin(dist / (2 * RADIUS)))
    else:
        field = covariance.covariance(dist)
    return {
        "log_likelihood": dense(field, np.zeros((len(a), 1)), model, np.array(data["values"]))[
            "log_likelihood"
        ],
        "kriging_mean": np.asarray(mean),
        "kriging_variance": np.asarray(variance),
    }


def with_gpboost(family, data, metric, model):
    """Log-likelihood only."""
    import gpboost

    options, a = {}, model["range"]
    if family in ("gaussian", "powered-exponential", "matern"):
        name = family.replace("-", "_")
        if family == "powered-exponential":
            options["cov_fct_shape"] = model["power"]
        if family == "matern":
            options["cov_fct_shape"] = model["smoothness"]
            a *= np.sqrt(2 * model["smoothness"])
        parameters = [model["nugget"], model["variance"], a]
    elif family == "wendland" and model["smoothness"] in (0, 1, 2):
        # GPBoost sets μ = (d+1)/2 + κ + ½
        if model["shape"] != len(straight(data, metric)[0][0]) / 2 + 1 + model["smoothness"]:
            return None
        name = family
        options = {"cov_fct_taper_range": a, "cov_fct_taper_shape": model["smoothness"]}
        parameters = [model["nugget"], model["variance"]]
    else:
        return None
    if metric == "great-circle":
        return None
    old, _ = straight(data, metric)
    gp = gpboost.GPModel(
        gp_coords=old, cov_function=name, likelihood="gaussian", num_parallel_threads=1, **options
    )
    value = gp.neg_log_likelihood(np.array(parameters), np.array(data["values"]))
    return {"log_likelihood": -value}


R_KRIGING = """
suppressMessages({library(gstat); library(sp)})
options(digits = 17)
old <- read.csv("old.csv"); new <- read.csv("new.csv")
formula <- as.formula(paste("~", paste(setdiff(names(old), "z"), collapse = "+")))
coordinates(old) <- formula; coordinates(new) <- formula
model <- vgm(%(variance)r, "%(kind)s", %(range)r, kappa = %(kappa)r,
             add.to = vgm(%(nugget)r, "Err", 0))
k <- krige(z ~ 1, old, new, model, beta = 0, debug.level = 0)
cat(sprintf("%%.17g", k$var1.pred), sprintf("%%.17g", k$var1.var), sep = "\\n")
"""

R_MATRIX = """
suppressMessages({library(%(package)s)})
old <- as.matrix(read.csv("old.csv")); new <- as.matrix(read.csv("new.csv"))
z <- old[, ncol(old)]; old <- old[, -ncol(old)]
n <- nrow(old); d <- as.matrix(dist(rbind(old, new)))
rho <- matrix(%(call)s, nrow(d))
field <- %(variance)r * rho
sigma <- field[1:n, 1:n] + diag(%(nugget)r, n); cross <- field[1:n, -(1:n)]
u <- backsolve(chol(sigma), z, transpose = TRUE)
w <- backsolve(chol(sigma), cross, transpose = TRUE)
ll <- -0.5 * (n * log(2 * pi) + sum(u^2)) - sum(log(diag(chol(sigma))))
cat(sprintf("%%.17g", c(ll, crossprod(w, u), %(variance)r - colSums(w^2))), sep = "\\n")
"""


def in_r(script, data, metric):
    """Numbers that an R script prints."""
    old, new = straight(data, metric)
    names = list("xyw"[: old.shape[1]])
    with tempfile.TemporaryDirectory() as folder:
        for name, rows, header in (
            ("old", np.column_stack((old, data["values"])), [*names, "z"]),
            ("new", new, names),
        ):
            with open(Path(folder) / f"{name}.csv", "w", newline="") as file:
                csv.writer(file).writerows([header, *rows.tolist()])
        done = subprocess.run(
            ["Rscript", "-e", script], cwd=folder, capture_output=True, text=True, check=True
        )
    return np.array(done.stdout.split(), dtype=float)


def with_gstat(family, data, metric, model):
    """Simple kriging; the nugget is a measurement error ("Err")."""
    kinds = {
        "gaussian": ("Gau", 0.5),
        "powered-exponential": ("Exc", model.get("power")),
        "spherical": ("Sph", 0.5),
        "matern": ("Mat", model.get("smoothness")),
    }
    if family not in kinds or metric == "great-circle":
        return None
    kind, kappa = kinds[family]
    out = in_r(R_KRIGING % {**model, "kind": kind, "kappa": kappa}, data, metric)
    return {"kriging_mean": out[:PLACES], "kriging_variance": out[PLACES:]}


def from_r_matrix(package, call, data, metric, model):
    """Dense algebra in R from a package's correlations."""
    out = in_r(R_MATRIX % {**model, "package": package, "call": call % model}, data, metric)
    return {
        "log_likelihood": out[0],
        "kriging_mean": out[1 : 1 + PLACES],
        "kriging_variance": out[1 + PLACES :],
    }


def with_random_fields(family, data, metric, model):
    """Generalized Cauchy."""
    if family != "cauchy" or metric == "great-circle":
        return None
    call = "RFcov(RMgencauchy(alpha = %(power)r, beta = %(decay)r), c(d) / %(range)r)"
    return from_r_matrix("RandomFields", call, data, metric, model)


def with_fields(family, data, metric, model):
    """Wendland's function of integer κ, whose μ is floor(d/2) + κ + 1."""
    if family != "wendland" or model["smoothness"] != 1 or metric == "great-circle":
        return None
    assert model["shape"] == 3
    call = "Wendland(c(d), aRange = %(range)r, dimension = 3, k = 1)"
    return from_r_matrix("fields", call, data, metric, model)


PACKAGES = {
    "scipy": with_scipy,
    "scikit-learn": with_sklearn,
    "gstools": with_gstools,
    "gpboost": with_gpboost,
    "gstat": with_gstat,
    "RandomFields": with_random_fields,
    "fields": with_fields,
}
IN_R = ("gstat", "RandomFields", "fields")


def version_of(package):
    """Version of a package of Python or R."""
    if package not in IN_R:
        return version(package)
    ask = f'cat(as.character(packageVersion("{package}")))'
    done = subprocess.run(["Rscript", "-e", ask], capture_output=True, text=True, check=True)
    return done.stdout


def differences(expected, found):
    """Largest difference of each quantity, relative to the largest number in it."""
    out = {}
    for name, value in found.items():
        exact = np.array(expected[name], dtype=float)
        out[name] = float(f"{np.max(np.abs(value - exact)) / np.max(np.abs(exact)):.2g}")
    return out


def listed(value):
    """A number or a list of numbers."""
    return np.asarray(value, dtype=float).tolist()


def main():
    """Compute, compare, write."""
    mp.dps = 50
    assert shutil.which("Rscript"), "the comparison with gstat needs R"
    sets, cases = data_sets(), []
    for name, data in sets.items():
        for family, variance, reach, shapes, nugget, on_sphere in CASES:
            for metric in data["metric"]:
                if metric == "great-circle" and not on_sphere:
                    continue
                model = {
                    "variance": variance,
                    "range": round(reach * SCALE[name], 6),
                    **shapes,
                    "nugget": nugget,
                }
                case = {"data": name, "metric": metric, "family": family, "parameters": model}
                case |= evaluate(family, data, metric, model)
                case["packages"], case["differences"] = {}, {}
                for package, compute in PACKAGES.items():
                    found = compute(family, data, metric, model)
                    if found is None:
                        continue
                    apart = differences(case, found)
                    print(name, metric, family, package, apart, flush=True)
                    assert max(apart.values()) < 1e-10, "a convention differs"
                    if package != "scipy":
                        case["packages"][package] = {k: listed(v) for k, v in found.items()}
                    case["differences"][package] = max(apart.values())
                cases.append(case)
    write(
        "families_kriging",
        {
            "about": "Zero mean. log_likelihood, its score (log of variance, range, nugget; shapes "
            "as they are), simple-kriging mean and variance of the noiseless field at "
            "new_locations. Strings: mpmath, 50 digits, of exactly the doubles given. packages: "
            "what other packages gave with converted parameters; differences: the largest, "
            "relative to the largest number of its kind (all below 1e-10). Globe: lon, lat in "
            "degrees, lengths in km, radius 6371.",
            "made_with": {
                "mpmath": mpmath.__version__,
                **{package: version_of(package) for package in PACKAGES},
            },
            "data": sets,
            "cases": cases,
        },
    )


if __name__ == "__main__":
    main()
