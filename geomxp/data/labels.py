"""Row labels: columns of pandas and xarray that stand beside each other are matched by them."""

from collections.abc import Mapping

import numpy as np

from ..errors import InvalidInput
from .spatial import is_grid, is_kind

SHOWN = 3
"""Labels of rows that a message shows."""


def labels_of(data):
    """Return the labels of an object's rows, a pandas index; None for arrays, lists and scalars.

    Frames and series of pandas and geopandas have labels, and xarray objects of one dimension that
    has a coordinate. The rows of a grid of several dimensions have none.

    Examples
    --------
    >>> import pandas as pd
    >>> labels_of(pd.Series([0.1, 0.2], index=["a", "b"])).tolist(), labels_of([0.1, 0.2])
    (['a', 'b'], None)
    """
    if is_kind(data, "pandas", "DataFrame", "Series"):
        return data.index
    if is_grid(data) and len(data.dims) == 1:
        return data.indexes.get(next(iter(data.dims)))
    return None


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
        own = labels_of(column)
        if own is None or (labels is not None and own.equals(labels)):
            return column
        if labels is None:
            labels, owner = own, f"`{name}`"
            return column
        rows = _positions(own, labels, name, owner)
        if not known:
            raise InvalidInput(
                f"`{name}` has the row labels of {owner} in another order, and {rows_of} without "
                f"labels cannot say which is right: put both into one order, or give "
                f"{_plain(name)}."
            )
        return (
            column.isel({next(iter(column.dims)): rows}) if is_grid(column) else column.iloc[rows]
        )

    return tuple(placed(name, column) for name, column in columns.items())


def _positions(own, labels, name, owner):
    """Return the position among a column's own labels of each label, (n,)."""
    repeated = next((index for index in (labels, own) if not index.is_unique), None)
    if repeated is not None:
        label = repeated[repeated.duplicated()].tolist()[0]
        raise InvalidInput(
            f"`{name}` has row labels that differ from those of {owner}, or their order, and "
            f"{label!r} repeats, so that they cannot be matched. To match by position give "
            f"{_plain(name)}."
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
    first = ", ".join(repr(label) for label in labels[:SHOWN].tolist())
    return f"{first}{', …' if len(labels) > SHOWN else ''} ({len(labels):,})"
