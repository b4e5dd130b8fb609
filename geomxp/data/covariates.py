"""Columns of covariates: numbers as they are, text as codes of its levels."""

import numpy as np

from ..data import tables
from ..errors import InvalidInput
from .formula import Formula


def encode(frame, names, levels=None, texts=()):
    """Return columns of a frame as numbers; those of text as positions in their levels.

    A column is text if it has cells, and none of them is a number.

    Parameters
    ----------
    frame : pandas.DataFrame
    names : sequence of str
    levels : dict of str to sequence of str, optional
        Of the columns of text, where they are known; all others hold numbers.
    texts : collection of str
        Columns that are text already if one cell is not a number.

    Returns
    -------
    codes : (n, len(names)) ndarray
        NaN where a cell is missing.
    levels : dict of str to tuple of str
        Sorted, of the columns of text.

    Raises
    ------
    InvalidInput
        For a column that is not there, a cell that is not a number, or one whose level is not
        known (row and value are named).

    Examples
    --------
    >>> import pandas as pd
    >>> encode(pd.DataFrame({"rock": ["lime", "clay", "lime"], "z": [1, 2, 3]}), ["rock", "z"])[1]
    {'rock': ('clay', 'lime')}
    """
    columns, found = [np.empty((len(frame), 0))], {}
    for name in names:
        known = None if levels is None else levels.get(name)
        if known is not None or (levels is None and _is_text(frame, name, name in texts)):
            codes, found[name] = _codes(frame, name, known)
            columns.append(codes[:, None])
        else:
            columns.append(tables.number_columns(frame, (name,)))
    return np.hstack(columns), found


def decode(codes, levels):
    """Return the text that codes stand for.

    Parameters
    ----------
    codes : (n,) ndarray
        Whole numbers from 0.
    levels : sequence of str

    Returns
    -------
    (n,) ndarray of str objects
    """
    return np.array(levels, dtype=object)[np.asarray(codes).astype(np.intp)]


def check_codes(columns, names, levels):
    """Raise `InvalidInput` unless columns of text, (n, q), hold positions in their levels."""
    for name, words in levels.items():
        codes = columns[:, list(names).index(name)]
        bad = np.flatnonzero(~np.isin(codes, np.arange(len(words))))
        if len(bad):
            raise InvalidInput(
                f"covariate {name!r} holds codes of {len(words)} levels, 0 to {len(words) - 1}. "
                f"Got {codes[bad[0]]:g} in row {bad[0] + 1}: give a frame with the text itself."
            )


def needed(locations, covariates, formula):
    """Return the covariates that are named, those that formulas use besides, and categories.

    Parameters
    ----------
    locations, covariates : sequence of str
    formula : str, sequence of str or None

    Returns
    -------
    names : tuple of str
    categories : frozenset of str
        Columns that may hold any text.
    """
    if formula is None:
        return tuple(covariates), frozenset()
    texts = (formula,) if isinstance(formula, str) else tuple(formula)
    parsed = [Formula.parse(text) for text in texts]
    names = dict.fromkeys(covariates)
    for each in parsed:
        names |= dict.fromkeys(name for name in each.variables if name not in locations)
    elsewhere = {name for each in parsed for name in set(each.variables) - each.categories}
    return tuple(names), frozenset(set().union(*(e.categories for e in parsed)) - elsewhere)


def _cells(frame, name):
    """Return the cells of a column as text, missing ones as NA."""
    tables.check_columns(frame, (name,))
    text = frame[name].astype("string").str.strip()
    return text.mask(text.str.lower().isin(tables.MISSING).fillna(False))


def _is_text(frame, name, any_word):
    """Whether a column holds text: no cell that is there is a number, or not every one."""
    import pandas as pd

    tables.check_columns(frame, (name,))
    if pd.api.types.is_numeric_dtype(frame[name]):
        return False
    cells = _cells(frame, name).dropna()
    words = pd.to_numeric(cells, errors="coerce").isna()
    return bool(len(words) and (words.any() if any_word else words.all()))


def _codes(frame, name, levels):
    """Return positions in the levels, those found if none are known, and the levels."""
    cells = _cells(frame, name)
    there = cells.notna().to_numpy()
    levels = tuple(sorted(cells.dropna().unique())) if levels is None else tuple(levels)
    places = {word: float(k) for k, word in enumerate(levels)}
    codes = np.array([places.get(word, -1.0) for word in cells[there]])
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        row = int(np.flatnonzero(there)[unknown[0]])
        raise InvalidInput(
            f"row {row + 1}, column {name!r}: {cells.iloc[row]!r} is a level that no observation "
            f"has ({len(unknown)} such rows). The levels are: {', '.join(levels)}."
        )
    result = np.full(len(cells), np.nan)
    result[there] = codes
    return result, levels
