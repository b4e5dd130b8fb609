"""How large a leaf is: where a library's own routine is as fast as another halving.

Measured on one core with AMX (experiments/nested_cholesky); a GPU needs larger leaves.
"""

from .panels import LOW

PLAIN = {"potrf": 512, "trsm": 512, "trmm": 512, "syrk": 512}
COARSE = {"potrf": 256, "trsm": 256, "trmm": 256, "syrk": 512}
"""With products in coarse formats, which outrun the leaves."""


def leaf_size(name, n, forms):
    """Return the leaf of a recursion.

    Parameters
    ----------
    name : {"potrf", "trsm", "trmm", "syrk"}
    n : int
        Order of the matrix.
    forms : sequence of Format

    Returns
    -------
    int
    """
    leaves = COARSE if any(form in LOW for form in forms) else PLAIN
    return min(leaves[name], max(n, 1))
