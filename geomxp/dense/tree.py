"""A symmetric matrix as a tree of blocks, each stored in its own format.

    [A11    ]    A21 in the first layer's format, A11 and A22 trees of the other layers,
    [A21 A22]    leaves FP32 or FP64

("fp16", "fp16", "fp32") takes five eighths of FP32's lower triangle. Factorization and solves work
in place; their text is that of `dense.halves`, to which a dense array is such a tree of views.
"""

from dataclasses import dataclass

import numpy as np

from ..cuda import device_of
from ..errors import InvalidInput
from . import halves, nested, views, working
from .cholesky import factor, leaves
from .panels import LOW, Panel


@dataclass(init=False)
class StoredTriangle(halves.Triangle):
    """A `Triangle` whose off-diagonal block lives in its format.

    Parameters
    ----------
    a : (n, n) FP32 or FP64 view
        Copied.
    forms, leaf, first, bound
        See `Triangle`.
    """

    def __init__(self, a, forms, leaf, first=0, bound=None):
        self._n = n = len(a)
        self.forms, self.leaf, self.unit, self.first = forms, leaf, False, first
        # what the block is stored in, whatever it is read in
        self.form, self.last = forms[0], forms[-1]
        self.half = halves.halve(n, leaf) if n > leaf else 0
        self.panels, self._prepared, self.bound, self.quarter = {}, {}, bound, False
        if not self.half:
            self.a = a.astype(forms[-1].dtype, order="F")
            return
        h, inner = self.half, forms[1:] or forms
        self.a11 = StoredTriangle(a[:h, :h], inner, leaf, first, bound)
        self.a22 = StoredTriangle(a[h:, h:], inner, leaf, first + h, bound)
        self._whole = None
        self.close(a[h:, :h].astype(forms[-1].dtype, order="F"))

    @property
    def order(self):
        """Rows and columns."""
        return self._n

    def is_one_view(self, largest):
        """Return whether all of this is one view: no, its blocks are stored apart."""
        return False

    def open(self):
        """Return A21 in the leaves' format, to be written over and given to `close`."""
        if self._whole is not None:
            return self._whole
        panel = self.panels[self.form]
        block = working.empty_like(panel.values, self.last.dtype)
        panel.widen(slice(0, panel.shape[0]), slice(0, self.half), block)
        return block

    def close(self, block):
        """Store A21 in its format, a power of two for each leaf's columns."""
        form = self.form
        if form not in LOW:
            self._whole = block
            return
        panel = Panel(form, block.shape, block)
        for first in range(0, self.half, self.leaf):
            columns = slice(first, min(first + self.leaf, self.half))
            panel.put(columns, block[:, columns])
        self.panels = {form: panel}

    def keep(self, rows):
        """Store A21, final now; casts for coarser blocks are made again when they are read."""
        if self.form in LOW:
            self.panels = {self.form: rows.panels[self.form]}

    def cast(self, form):
        """Return A21 as a panel in a format: as it is stored, or cast for this one reader."""
        if form in self.panels:
            return self.panels[form]
        block = self.open()
        panel = Panel(form, block.shape, block, self.bound)
        panel.put(slice(0, self.half), block)
        return panel

    @property
    def nbytes(self):
        """Bytes of all numbers in their formats; of leaves the lower triangle counts."""
        if not self.half:
            return len(self.a) * (len(self.a) + 1) // 2 * self.a.itemsize
        block = self._whole if self._whole is not None else self.panels[self.form]
        return block.nbytes + self.a11.nbytes + self.a22.nbytes


class SymmetricTree:
    """A symmetric positive definite matrix in layered formats.

    Parameters
    ----------
    a : (n, n) NumPy or CuPy array of FP64 or FP32
        Its lower triangle is read.
    layers : sequence of str
        See `nested.potrf`.
    leaf : int, optional

    Examples
    --------
    >>> a = np.eye(300) + 1e-3
    >>> tree = SymmetricTree(a, ("fp16", "fp32"), leaf=64).potrf()
    >>> bool(abs(a @ tree.solve(np.ones(300)) - 1).max() < 1e-4)
    True
    """

    def __init__(self, a, layers=("fp16", "fp32"), leaf=None):
        nested.check_matrix("a", a, square=True)
        forms = nested.check_layers(layers, a)
        working.check_finite(a)
        leaf = nested.check_leaf(leaf, "potrf", a, forms)
        self.shape = a.shape
        self._forms = forms
        diagonal = a.diagonal() if isinstance(a, np.ndarray) else a.diagonal().get()
        logs = working.half_logs(diagonal)
        bound = float(np.exp2((logs - np.round(logs)).max(initial=-np.inf)))
        with device_of(a):
            self._d = working.module(a).asarray(np.exp2(-np.round(logs)))
            # above the diagonal too: casts warn of what uninitialized memory may hold
            work = working.module(a).zeros(a.shape, forms[-1].dtype, order="F")
            working.copy_lower(a, work, self._d, self._d)
            self._root = StoredTriangle(work, forms, leaf, bound=bound)
        self.factored = False

    @property
    def nbytes(self):
        """Bytes of all numbers in their formats."""
        return self._root.nbytes

    def potrf(self):
        """Overwrite the matrix with its Cholesky factor, and return it.

        Raises
        ------
        NotPositiveDefinite
            What is left then is neither the matrix nor its factor.
        ValueError
            If it is factored already.
        """
        if self.factored is not False:
            raise ValueError("the tree is factored already: make a new one from the matrix.")
        # a failure leaves neither: the tree can be used no more
        self.factored = None
        factor(self._root, self._forms)
        self.factored = True
        return self

    def log_determinant(self):
        """Return log|A| of a factored tree."""
        self._check_factored()
        xp = working.module(self._d)
        with device_of(self._d):
            diagonal = xp.concatenate([leaf.a.diagonal() for leaf in leaves(self._root)])
            return 2.0 * float(xp.log(diagonal.astype(np.float64) / self._d).sum())

    def solve(self, b):
        """Return A⁻¹b of a factored tree for (n,) or (n, m), FP64 arithmetic on what is stored.

        On a GPU the result is a CuPy array.
        """
        self._check_factored()
        xp = working.module(self._d)
        with device_of(self._d):
            b = xp.asarray(b, dtype=np.float64)
            if b.ndim not in (1, 2) or len(b) != len(self._d):
                raise InvalidInput(f"`b` must have {len(self._d)} rows. Got shape {b.shape}.")
            x = xp.array((b if b.ndim == 2 else b[:, None]).T * self._d, order="F")
            for transposed in (True, False):
                _solve(self._root, x, transposed)
            return (x * self._d).T.reshape(b.shape)

    def to_dense(self):
        """Return the lower triangle (of A, or of L once factored) as FP64, zeros above."""
        if self.factored is None:
            raise ValueError("the factorization of this tree failed: make a new one.")
        with device_of(self._d):
            lower = working.module(self._d).zeros(self.shape, order="F")
            _write(self._root, lower)
            lower /= self._d[:, None]
            return lower if self.factored else lower / self._d

    def _check_factored(self):
        if not self.factored:
            raise ValueError("the tree is not factored: call potrf() first.")


def _write(t, out):
    if not t.half:
        out[...] = working.module(t.a).tril(t.a)
        return
    h = t.half
    out[h:, :h] = t.open()
    _write(t.a11, out[:h, :h])
    _write(t.a22, out[h:, h:])


def _solve(t, x, transposed):
    """X <- X L⁻' or X L⁻¹ in FP64, blocks widened one at a time; see `halves.solve`."""
    if not t.half:
        views.solve(t.a.astype(np.float64, order="F", copy=False), x, transposed)
        return
    one, two = x[:, : t.half], x[:, t.half :]
    block = t.open().astype(np.float64, copy=False)
    if transposed:
        _solve(t.a11, one, True)
        two -= one @ block.T
        _solve(t.a22, two, True)
    else:
        _solve(t.a22, two, False)
        one -= two @ block
        _solve(t.a11, one, False)
