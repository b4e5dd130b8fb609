"""Write families.json: correlations and their derivatives with mpmath, and checks of validity.

Run `python -m references.make_families` in `tests/`. Needs mpmath, NumPy and SciPy.

Each value is that of exactly the doubles given as distances and parameters. Derivatives are
five-point differences with 120 digits; `check` confirms them by formulas or by quadrature.
"""

import json
import re
from pathlib import Path

import mpmath
import numpy as np
import scipy
from mpmath import mp, mpf

DIGITS = 22
FOLDER = Path(__file__).parent

NEAR_AND_MIDDLE = (
    *(0.0, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.0625, 0.1, 0.15),
    *(0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999, 0.999999, 1 - 1e-10),
)
DISTANCES = (
    *NEAR_AND_MIDDLE,
    *(1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.001, 1.25, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0),
    *(26.0, 30.0, 40.0, 50.0),
)
COMPACT = (*NEAR_AND_MIDDLE, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.001, 2.0, 50.0)


def matern(r, smoothness):
    """2^(1-ν)/Γ(ν) r^ν K_ν(r)."""
    scale = 2 ** (1 - smoothness) / mpmath.gamma(smoothness)
    return scale * r**smoothness * mpmath.besselk(smoothness, r)


def gaussian(r):
    """exp(-r²)."""
    return mpmath.exp(-(r**2))


def powered_exponential(r, power):
    """exp(-r^p)."""
    return mpmath.exp(-(r**power))


def cauchy(r, power, decay):
    """(1 + r^α)^(-β/α), Gneiting and Schlather (2004)."""
    return (1 + r**power) ** (-decay / power)


def rational_quadratic(r, shape):
    """(1 + r²/(2κ))^(-κ)."""
    return (1 + r**2 / (2 * shape)) ** (-shape)


def spherical(r):
    """1 - 3/2 r + 1/2 r³ below 1."""
    return 1 - mpf(3) / 2 * r + r**3 / 2 if r < 1 else mpf(0)


def wendland(r, smoothness, shape):
    """Generalized Wendland φ_{μ,κ}; κ is `smoothness`, μ is `shape`.

    Γ(κ)/Γ(2κ) = 2^(1-2κ) √π / Γ(κ+½) makes the hypergeometric form regular at κ = 0.
    """
    if r >= 1:
        return mpf(0)
    k, m = smoothness, shape
    scale = 2 ** (-2 * k - m) * mpmath.sqrt(mp.pi) / mpmath.gamma(k + mpf(1) / 2)
    scale *= mpmath.gamma(2 * k + m + 1) / mpmath.gamma(k + m + 1)
    z = 1 - r**2
    return scale * z ** (k + m) * mpmath.hyp2f1(m / 2, (m + 1) / 2, k + m + 1, z)


FAMILIES = {
    "matern": {
        "correlation": matern,
        "formula": "2^(1-nu)/Gamma(nu) r^nu K_nu(r); nu = smoothness > 0",
        "distances": DISTANCES,
        "parameters": [{"smoothness": nu} for nu in (0.3, 0.5, 1.0, 1.5, 2.3, 5.0)],
    },
    "gaussian": {
        "correlation": gaussian,
        "formula": "exp(-r^2)",
        "distances": DISTANCES,
        "parameters": [{}],
    },
    "powered-exponential": {
        "correlation": powered_exponential,
        "formula": "exp(-r^p); 0 < p = power <= 2",
        "distances": DISTANCES,
        "parameters": [{"power": p} for p in (0.25, 0.7, 1.0, 1.5, 1.9, 2.0)],
    },
    "cauchy": {
        "correlation": cauchy,
        "formula": "(1 + r^alpha)^(-beta/alpha); 0 < alpha = power <= 2, beta = decay > 0",
        "distances": DISTANCES,
        "parameters": [
            {"power": p, "decay": d}
            for p, d in ((0.5, 0.2), (0.8, 3.0), (1.0, 1.0), (1.4, 0.6), (2.0, 2.0), (2.0, 7.5))
        ],
    },
    "rational-quadratic": {
        "correlation": rational_quadratic,
        "formula": "(1 + r^2/(2 kappa))^(-kappa); kappa = shape > 0",
        "distances": DISTANCES,
        "parameters": [{"shape": s} for s in (0.1, 0.5, 1.0, 2.5, 30.0)],
    },
    "spherical": {
        "correlation": spherical,
        "formula": "1 - 3/2 r + 1/2 r^3 for r < 1, else 0",
        "distances": COMPACT,
        "parameters": [{}],
    },
    "wendland": {
        "correlation": wendland,
        "formula": "1/B(2 kappa, mu+1) int_r^1 u (u^2-r^2)^(kappa-1) (1-u)^mu du for kappa > 0, "
        "(1-r)^mu for kappa = 0, r < 1, else 0; kappa = smoothness >= 0, mu = shape",
        "distances": COMPACT,
        "parameters": [
            {"smoothness": k, "shape": m}
            for k, m in (
                *((0.0, 2.0), (0.0, 3.5), (0.3, 2.7), (0.5, 3.0)),
                *((1.0, 3.0), (1.5, 4.0), (2.0, 4.5), (3.0, 5.0)),
            )
        ],
    },
}


def correlation(family, distance, reach, **shapes):
    """ρ(h; a, shapes) in mpmath; 1 at distance 0 and 0 in the limit of a compact support."""
    if distance == 0:
        return mpf(1)
    return FAMILIES[family]["correlation"](mpf(distance) / reach, **shapes)


def slope(f):
    """f'(0) by five points."""
    h = mpf(10) ** -30
    return (f(-2 * h) - 8 * f(-h) + 8 * f(h) - f(2 * h)) / (12 * h)


def derivatives(family, r, shapes):
    """∂ρ/∂log a and ∂ρ/∂(each shape) at a = 1."""
    compact = FAMILIES[family]["distances"] is COMPACT
    names = ("log_range", *shapes)
    if r == 0 or (compact and r >= 1):
        return dict.fromkeys(names, mpf(0))
    # bound early: `name` changes
    along = {"log_range": lambda t: correlation(family, r, mpmath.exp(t), **shapes)}
    for name in shapes:
        along[name] = lambda t, name=name: correlation(
            family, r, mpf(1), **{**shapes, name: shapes[name] + t}
        )
    slopes = {name: slope(f) for name, f in along.items()}
    # differences leave 1e-90 of a derivative that is 0
    value = correlation(family, r, mpf(1), **shapes)
    return {name: x if abs(x) > mpf(10) ** -75 * value else mpf(0) for name, x in slopes.items()}


def by_formula(family, r, shapes):
    """The same derivatives from formulas, where there are short ones."""
    log = mpmath.log
    if family == "gaussian":
        return {"log_range": 2 * r**2 * gaussian(r)}
    if family == "spherical":
        return {"log_range": mpf(3) / 2 * (r - r**3)}
    if family == "powered-exponential":
        p = shapes["power"]
        value = powered_exponential(r, p) * r**p
        return {"log_range": p * value, "power": -value * log(r)}
    if family == "cauchy":
        p, d = shapes["power"], shapes["decay"]
        value, share = cauchy(r, p, d), r**p / (1 + r**p)
        return {
            "log_range": d * share * value,
            "power": value * d / p * (log(1 + r**p) / p - share * log(r)),
            "decay": -value * log(1 + r**p) / p,
        }
    if family == "rational-quadratic":
        s = shapes["shape"]
        value, q = rational_quadratic(r, s), r**2 / (2 * s)
        return {
            "log_range": value * r**2 / (1 + q),
            "shape": value * (q / (1 + q) - log(1 + q)),
        }
    if family == "matern":
        # (r^ν K_ν)' = -r^ν K_{ν-1}
        nu = shapes["smoothness"]
        scale = 2 ** (1 - nu) / mpmath.gamma(nu)
        return {"log_range": scale * r ** (nu + 1) * mpmath.besselk(nu - 1, r)}
    # Wendland by quadrature of 1/B(1+2κ,μ) ∫_r^1 (u²-r²)^κ (1-u)^(μ-1) du, which is the same
    k, m = shapes["smoothness"], shapes["shape"]
    norm = mpmath.beta(1 + 2 * k, m)
    points = [r, (1 + r) / 2, 1]

    def integral(g):
        return mpmath.quad(lambda u: (u**2 - r**2) ** k * (1 - u) ** (m - 1) * g(u), points) / norm

    value = integral(lambda u: mpf(1))
    psi = mpmath.digamma
    both = psi(1 + 2 * k + m)
    found = {
        "value": value,
        "smoothness": integral(lambda u: log(u**2 - r**2)) - 2 * value * (psi(1 + 2 * k) - both),
        "shape": integral(lambda u: log(1 - u)) - value * (psi(m) - both),
    }
    closed = {
        0: lambda: (1 - r) ** m,
        1: lambda: (1 - r) ** (m + 1) * (1 + (m + 1) * r),
        2: lambda: (1 - r) ** (m + 2) * (1 + (m + 2) * r + ((m + 2) ** 2 - 1) * r**2 / 3),
        3: lambda: (
            (1 - r) ** (m + 3)
            * (
                1
                + (m + 3) * r
                + (2 * (m + 3) ** 2 - 3) * r**2 / 5
                + ((m + 3) ** 2 - 4) * (m + 3) * r**3 / 15
            )
        ),
    }
    if k in closed:
        found["closed"] = closed[int(k)]()
    return found


def check(family, r, shapes, value, slopes):
    """Raise if formulas or quadrature do not confirm a value and its derivatives."""
    quadrature = family == "wendland"
    for name, other in by_formula(family, r, shapes).items():
        ours = value if name in ("value", "closed") else slopes[name]
        tolerance = mpf(10) ** (-20 if quadrature and name != "closed" else -30)
        assert abs(ours - other) <= tolerance * abs(ours), (family, shapes, r, name, ours, other)


def table(family):
    """All cases of one family, as they are written."""
    entry = FAMILIES[family]
    cases = []
    for parameters in entry["parameters"]:
        shapes = {name: mpf(value) for name, value in parameters.items()}
        values, slopes = [], {name: [] for name in ("log_range", *shapes)}
        for distance in entry["distances"]:
            mp.dps = 120
            r = mpf(distance)
            value = correlation(family, r, mpf(1), **shapes)
            there = derivatives(family, r, shapes)
            # quadrature is slow, and weak beside an end point
            if r > 0 and (family != "wendland" or 0.01 <= r <= 0.99):
                mp.dps = 40 if family == "wendland" else 120
                if r < 1 or entry["distances"] is not COMPACT:
                    check(family, r, shapes, value, there)
            values.append(mpmath.nstr(value, DIGITS))
            for name, each in there.items():
                slopes[name].append(mpmath.nstr(each, DIGITS))
        cases.append({"parameters": parameters, "correlation": values, "derivatives": slopes})
    return {
        "formula": entry["formula"],
        "distances": list(entry["distances"]),
        "cases": cases,
    }


# Validity


def numbers(family, h, reach, shapes):
    """ρ at an array of distances, each by mpmath, in FP64."""
    mp.dps = 20
    exact = {name: mpf(value) for name, value in shapes.items()}
    flat = [float(correlation(family, x, mpf(reach), **exact)) for x in np.ravel(h).tolist()]
    return np.reshape(flat, np.shape(h))


def legendre(family, reach, shapes, order=80, nodes=700):
    """Coefficients b_0..b_order of ψ(θ) = Σ b_n P_n(cos θ) on S²; valid iff none is negative."""
    s, weights = np.polynomial.legendre.leggauss(nodes)
    top = min(reach, np.pi) if FAMILIES[family]["distances"] is COMPACT else np.pi
    # θ = top s⁴ smooths ρ at 0
    s, weights = (s + 1) / 2, weights / 2
    theta = top * s**4
    weights = weights * top * 4 * s**3 * np.sin(theta) * numbers(family, theta, reach, shapes)
    n = np.arange(order + 1)
    polynomials = scipy.special.eval_legendre(n[:, None], np.cos(theta))
    return (2 * n + 1) / 2 * (polynomials @ weights)


ON_SPHERE = [
    # family, range in radians, shapes, valid with the great-circle distance?
    ("matern", 1.0, {"smoothness": 0.5}, True),
    ("matern", 1.0, {"smoothness": 0.25}, True),
    ("matern", 6.0, {"smoothness": 0.7}, False),
    ("matern", 1.0, {"smoothness": 1.5}, False),
    ("gaussian", 2.0, {}, False),
    ("powered-exponential", 1.0, {"power": 0.6}, True),
    ("powered-exponential", 3.0, {"power": 1.0}, True),
    ("powered-exponential", 4.0, {"power": 1.2}, False),
    ("powered-exponential", 3.0, {"power": 1.8}, False),
    ("cauchy", 1.0, {"power": 0.7, "decay": 3.0}, True),
    ("cauchy", 1.0, {"power": 1.0, "decay": 0.3}, True),
    ("cauchy", 4.0, {"power": 1.3, "decay": 1.0}, False),
    ("cauchy", 1.0, {"power": 2.0, "decay": 1.0}, False),
    ("rational-quadratic", 1.0, {"shape": 1.0}, False),
    ("spherical", 0.5, {}, True),
    ("spherical", 3.0, {}, True),
    ("spherical", 6.0, {}, True),
    ("wendland", 1.0, {"smoothness": 0.0, "shape": 2.0}, True),
    ("wendland", 6.0, {"smoothness": 0.0, "shape": 2.0}, True),
    ("wendland", 1.0, {"smoothness": 1.0, "shape": 3.0}, True),
    ("wendland", 3.140625, {"smoothness": 1.0, "shape": 3.0}, True),
    ("wendland", 3.140625, {"smoothness": 0.5, "shape": 2.5}, True),
    ("wendland", 3.140625, {"smoothness": 2.0, "shape": 4.0}, True),
    ("wendland", 6.0, {"smoothness": 1.0, "shape": 3.0}, False),
    ("wendland", 6.0, {"smoothness": 0.5, "shape": 2.5}, False),
]


def on_sphere():
    """Least Legendre coefficient, and least eigenvalue of 250 random places on the sphere."""
    normal = np.random.default_rng(1).standard_normal((250, 3))
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    chord = np.linalg.norm(normal[:, None] - normal, axis=-1)
    theta = 2 * np.arcsin(np.minimum(chord / 2, 1))
    grid = np.linspace(0, np.pi, 1001)
    rows = []
    for family, reach, shapes, valid in ON_SPHERE:
        b = legendre(family, reach, shapes)
        rho = scipy.interpolate.PchipInterpolator(grid, numbers(family, grid, reach, shapes))
        matrix = rho(theta)
        # interpolation is poor at 0, where the correlation may rise steeply: these exactly
        i, j = np.nonzero(np.triu(theta < 0.02, 1))
        matrix[i, j] = matrix[j, i] = numbers(family, theta[i, j], reach, shapes)
        np.fill_diagonal(matrix, 1.0)
        rows.append(
            {
                "family": family,
                "range_in_radians": reach,
                "parameters": shapes,
                "valid": valid,
                "least_legendre_coefficient": float(f"{b.min():.3g}"),
                "at_order": int(b.argmin()),
                "least_eigenvalue_of_250": float(f"{np.linalg.eigvalsh(matrix)[0]:.3g}"),
            }
        )
        assert (b.min() > -1e-12) == valid, rows[-1]
    return rows


def wendland_spectrum():
    """Sign of Wendland's spectral density, 1F2(λ; λ+μ/2, λ+(μ+1)/2; -z²/4), λ = (d+1)/2 + κ."""
    mp.dps = 30
    rows = []
    for dimension in (1, 2, 3):
        for kappa in (0.0, 0.5, 1.0, 2.0):
            least = (dimension + 1) / 2 + kappa
            for shape, valid in ((least, True), (least + 0.7, True), (least - 0.5, False)):
                z = np.concatenate(
                    (np.arange(0.5, 60, 0.5), *(10**e + np.arange(0, 7, 0.5) for e in (3, 4, 5)))
                )
                values = [
                    mpmath.hyp1f2(
                        mpf(least),
                        mpf(least) + mpf(shape) / 2,
                        mpf(least) + (mpf(shape) + 1) / 2,
                        -(mpf(x) ** 2) / 4,
                    )
                    * mpf(x) ** (2 * least)
                    for x in z.tolist()
                ]
                lowest = min(values)
                assert (lowest >= -(mpf(10) ** -15)) if valid else lowest < 0, (dimension, shape)
                rows.append(
                    {
                        "dimension": dimension,
                        "smoothness": kappa,
                        "shape": shape,
                        "valid": valid,
                        "least_scaled_spectral_density": float(f"{float(lowest):.3g}"),
                    }
                )
    return rows


def write(name, contents):
    """Write JSON with its innermost lists on one line."""
    text = json.dumps(contents, indent=1, ensure_ascii=False)
    flat = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    assert json.loads(flat) == contents
    (FOLDER / f"{name}.json").write_text(flat + "\n")


if __name__ == "__main__":
    write(
        "families",
        {
            "about": "Correlations rho(r), r = h/a, of exactly the doubles given, and derivatives "
            "with respect to log a and to each shape parameter; strings of 22 digits. Derivatives "
            "at r = 0 and, of compact families, at r >= 1 are 0.",
            "made_with": f"mpmath {mpmath.__version__}, 120 digits; checked "
            "by explicit derivatives (1e-30) and quadrature (Wendland: 1e-20)",
            "families": {name: table(name) for name in FAMILIES},
            "validity": {
                "great_circle": on_sphere(),
                "wendland_in_euclidean_space": wendland_spectrum(),
            },
        },
    )
