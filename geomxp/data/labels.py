"""Row labels: columns of pandas and xarray that stand beside each other are matched by them."""

from collections.abc import Mapping

import numpy as np

from ..errors import InvalidInput
from .spatial import is_grid, is_kind

SHOWN_LABELS = 3
"""Labels of rows that a message shows."""


def labels_of(data):
    """Return the labels of an object's rows, a pandas index; None for arrays, lists and scalars.

    Frames and series of pandas and geopandas have labels, and xarray objects whose dimensions have
    coordinates.

    Examples
    --------
    >>> import pandas as pd
    >>> labels_of(pd.Series([0.1, 0.2], index=["a", "b"])).tolist(), labels_of([0.1, 0.2])
    (['a', 'b'], None)
    """
    if is_kind(data, "pandas", "DataFrame", "Series"):
        return data.index
    return cells_of(data, data.dims) if is_grid(data) else None


def cells_of(grid, dims):
    """Return the labels of a grid's cells in the order of dimensions, or None without coordinates.

    Of several dimensions they are a pandas.MultiIndex, as that of `to_series`.
    """
    import pandas as pd

    each = [grid.indexes.get(name) for name in dims]
    if not each or any(index is None for index in each):
        return None
    return each[0] if len(each) == 1 else pd.MultiIndex.from_product(each, names=list(dims))


def aligned(labels, owner="the locations", **columns):
    """Return columns with their rows in the order of labels, as a tuple.

    Columns without labels are unchanged: they match by position. A column with labels must have the
    same ones, in any order; labels that repeat must be in the same order. A dict holds columns.

    Parameters
    ----------
    labels : pandas.Index or None
        Labels of the rows of `owner`. If None, the first column with labels has the order of the
        rows, and the others must have its labels in its order.
    owner : str
        What has the labels, for messages.
    **columns
        Columns by the names of the arguments.

    Raises
    ------
    InvalidInput
        For other labels, and for labels whose order cannot be matched.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.Index(["a", "b", "c"])
    >>> time = pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])
    >>> time, depth = aligned(rows, time=time, depth=[7, 8, 9])
    >>> time.tolist(), depth
    ([1.0, 2.0, 3.0], [7, 8, 9])
    """
    rows_of, known = owner, labels is not None

    def placed(name, column):
        nonlocal labels, owner
        if isinstance(column, Mapping) and not is_grid(column):
            return {key: placed(f"{name}[{key!r}]", one) for key, one in column.items()}
        column = _as_rows(column)
        own = labels_of(column)
        if own is not None and labels is not None and _same_dimensions(own, labels):
            own = own.reorder_levels(labels.names)
        if own is None or (labels is not None and own.equals(labels)):
            return column
        if labels is None:
            labels, owner = own, f"`{name}`"
            return column
        rows = _positions(own, labels, name, owner)
        if not known:
            raise InvalidInput(
                f"`{name}` has the row labels of {owner} in another order, and which order is that "
                f"of {rows_of} is not known, because they have no labels: put both into one order, "
                f"or give {_plain(name)} to match by position."
            )
        return column.iloc[rows]

    return tuple(placed(name, column) for name, column in columns.items())


def _as_rows(column):
    """Return an xarray object with coordinates as a series or a frame, with a row for each cell."""
    if not is_grid(column) or labels_of(column) is None:
        return column
    one = is_kind(column, "xarray", "DataArray")
    return column.to_series() if one else column.to_dataframe()


def _same_dimensions(own, labels):
    """Whether labels of cells are of the same dimensions, perhaps in another order."""
    return own.nlevels > 1 and {*own.names} == {*labels.names} != {None}


def _positions(own, labels, name, owner):
    """Return the position among a column's own labels of each label, (n,)."""
    repeated = next((index for index in (labels, own) if not index.is_unique), None)
    if repeated is not None:
        label = repeated[repeated.duplicated()].tolist()[0]
        raise InvalidInput(
            f"`{name}` and {owner} have different row labels, or the same in another order, and "
            f"rows cannot be matched, because the label {label!r} repeats. To match by position, "
            f"give {_plain(name)}."
        )
    rows = own.get_indexer(labels) if len(own) == len(labels) else np.full(1, -1)
    if (rows < 0).any():
        raise InvalidInput(
            f"`{name}` must have the row labels of {owner}, in any order. Got {_shown(own)} "
            f"instead of {_shown(labels)}: select rows by .loc or .reindex, or give "
            f"{_plain(name)} to match by position."
        )
    return rows


def _plain(name):
    """Return the call that drops the labels of a column."""
    return f"{name}.to_numpy()"


def _shown(labels):
    """Return the first labels, and their number, as text."""
    first = ", ".join(repr(label) for label in labels[:SHOWN_LABELS].tolist())
    return f"{first}{', …' if len(labels) > SHOWN_LABELS else ''} ({len(labels):,})"
