"""Leaf sizes of the recursions.

A leaf is as large as the order up to which a library's own routine is as fast as another halving:
measured on one core with AMX (experiments/nested_cholesky). A GPU needs larger leaves, which have
not been measured.
"""

PLAIN = {"potrf": 512, "trsm": 512, "trmm": 512, "syrk": 512}
COARSE = {"potrf": 256, "trsm": 256, "trmm": 256, "syrk": 512}
"""With products in coarse formats, which are faster than the leaves."""

LEAVES_ON_GPU = {"potrf": 1024, "trsm": 1024, "trmm": 1024, "syrk": 2048}
"""Smaller products do not fill a GPU. Not measured yet."""


def leaf_size(name, n, forms, on="cpu"):
    """Return the leaf of a recursion.

    Parameters
    ----------
    name : {"potrf", "trsm", "trmm", "syrk"}
    n : int
        Order of the matrix.
    forms : sequence of Format
    on : {"cpu", "gpu"}

    Returns
    -------
    int
    """
    leaves = COARSE if any(form.coarse for form in forms) else PLAIN
    leaves = leaves if on == "cpu" else LEAVES_ON_GPU
    return min(leaves[name], max(n, 1))
