"""How other packages write the Matérn model, and the way to and from our parameters.

Ours: C(h) = σ² · 2^(1-ν)/Γ(ν) · (h/a)^ν · K_ν(h/a), nugget τ² a variance. Every other
convention scales the range by a function of ν, and some count the nugget in units of σ².
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from ..errors import InvalidInput


def _one(nu):
    return 1.0


def _root_of_2nu(nu):
    return sqrt(2 * nu)


@dataclass(frozen=True)
class Convention:
    """One package's way of writing the model.

    Parameters
    ----------
    names : tuple of str
        The package's words for variance, range, smoothness and nugget.
    scale : callable
        The package's range over ours, as a function of ν.
    relative_nugget : bool
        Whether its nugget is τ²/σ².
    inverse_range : bool
        Whether it gives 1/range.
    """

    names: tuple[str, str, str, str]
    scale: Callable = _one
    relative_nugget: bool = False
    inverse_range: bool = False


PACKAGES = {
    "geomxp": Convention(("variance", "range", "smoothness", "nugget")),
    "exageostat": Convention(("sigma_sq", "beta", "nu", "nugget")),
    "scikit-learn": Convention(("variance", "length_scale", "nu", "noise_level"), _root_of_2nu),
    "gpytorch": Convention(("outputscale", "lengthscale", "nu", "noise"), _root_of_2nu),
    "gpboost": Convention(("variance", "range", "shape", "error_term"), _root_of_2nu),
    "openturns": Convention(
        ("amplitude_squared", "scale", "nu", "nugget_factor"), _root_of_2nu, relative_nugget=True
    ),
    "gstools": Convention(("var", "len_scale", "nu", "nugget"), sqrt),
    "geor": Convention(("sigmasq", "phi", "kappa", "tausq")),
    "gstat": Convention(("psill", "range", "kappa", "nugget")),
    "fields": Convention(("sigma2", "aRange", "smoothness", "tau2")),
    "spmodel": Convention(("de", "range", "extra", "ie"), _root_of_2nu),
    "spamm": Convention(("lambda", "rho", "nu", "phi"), inverse_range=True),
    "gpgp": Convention(("variance", "range", "smoothness", "nugget"), relative_nugget=True),
}


def _named(package):
    try:
        return PACKAGES[package.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(PACKAGES)
        raise InvalidInput(f"`package` must be one of: {known}. Got {package!r}.") from None


def to_ours(package, parameters):
    """Translate a package's parameters to ours, as keyword arguments of `Matern`."""
    convention = _named(package)
    variance, range_, smoothness, nugget = convention.names
    wrong = set(parameters) - set(convention.names)
    missing = {variance, range_, smoothness} - set(parameters)
    if wrong or missing:
        raise InvalidInput(
            f"{package} calls its parameters {', '.join(convention.names)}. "
            f"Got {', '.join(map(str, parameters)) or 'none'}."
        )
    sigma2, nu = float(parameters[variance]), float(parameters[smoothness])
    length = float(parameters[range_])
    if length <= 0 or nu <= 0:
        raise InvalidInput(
            f"`{range_}` and `{smoothness}` must be greater than 0. Got {length:g} and {nu:g}."
        )
    length = 1 / length if convention.inverse_range else length
    tau2 = float(parameters.get(nugget, 0.0))
    return {
        "variance": sigma2,
        "range": length / convention.scale(nu),
        "smoothness": nu,
        "nugget": tau2 * sigma2 if convention.relative_nugget else tau2,
    }


def from_ours(package, parameters):
    """Translate our parameters (a dict as of `Matern.parameters`) to a package's own names."""
    convention = _named(package)
    if "anisotropy_ratio" in parameters:
        raise InvalidInput("`to_convention` translates isotropic models only.")
    sigma2, nu, tau2 = (parameters[name] for name in ("variance", "smoothness", "nugget"))
    length = parameters["range"] * convention.scale(nu)
    ours = (
        sigma2,
        1 / length if convention.inverse_range else length,
        nu,
        tau2 / sigma2 if convention.relative_nugget else tau2,
    )
    return dict(zip(convention.names, ours, strict=True))
