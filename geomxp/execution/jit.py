"""Names from numba and llvmlite; importing this module without them raises `MissingPackage`.

Modules of compiled loops import these names from here. Such a module is imported only inside the
functions that call its loops, so that a fit on a GPU works without numba.
"""

from ..errors import MissingPackage

try:
    from llvmlite import binding, ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic, models, overload, register_model
except ImportError as error:
    raise MissingPackage(
        f"this computation on the CPU needs numba, which cannot be imported ({error}): "
        'pip install numba. Or compute on a GPU: gx.Exact(on="gpu") needs no numba.'
    ) from error

__all__ = [
    "binding",
    "cgutils",
    "intrinsic",
    "ir",
    "models",
    "njit",
    "overload",
    "register_model",
    "types",
]
