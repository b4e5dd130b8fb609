"""Censored values: their limits in the cells of a table, by options, and in words."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidInput
from . import tables
from .readers import MISSING_CELLS
from .summaries import counted
from .tables import LIMIT_PATTERN, RANGE_PATTERN

if TYPE_CHECKING:
    from typing import TypeAlias

    import pandas

    from .._typing import Floats

    Limit: TypeAlias = float | pandas.Series | None


def is_censored(lower: Floats, upper: Floats) -> np.ndarray:
    """Return whether the limits of values differ, (n,); not where they are NaN."""
    return lower < upper


def representative(values: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return the value where it is known, the limit where there is one, else the middle, (n,).

    Examples
    --------
    >>> representative(np.zeros(3), np.array([-np.inf, 2.0, 0.0]), np.array([0.2, 3.0, 0.0]))
    array([0.2, 2.5, 0. ])
    """
    values = np.where(np.isneginf(lower), upper, values)
    values = np.where(np.isposinf(upper), lower, values)
    both = is_censored(lower, upper) & np.isfinite(lower) & np.isfinite(upper)
    with np.errstate(invalid="ignore"):
        return np.where(both, lower / 2 + upper / 2, values)


def counts_in_words(values, lower, upper, numbers=True):
    """Return how many values are censored as a sentence, without `numbers` shorter; "" if none is.

    Examples
    --------
    >>> values, lower = np.array([0.2, 2.0, 9.0]), np.array([-np.inf, 2.0, 9.0])
    >>> counts_in_words(values, lower, values)
    '1 of 3 values is below a limit (0.2)'
    >>> counts_in_words(values, lower, np.array([0.2, 3.0, np.inf]), numbers=False)
    '1 of 3 values below a limit, 1 above a limit, 1 between two limits'
    """
    if lower is None or not is_censored(lower, upper).any():
        return ""
    below, above = np.isneginf(lower), np.isposinf(upper)
    between = is_censored(lower, upper) & ~below & ~above
    kinds = (
        (below, upper[below], "below a limit"),
        (above, lower[above], "above a limit"),
        (between, np.concatenate((lower[between], upper[between])), "between two limits"),
    )
    parts = []
    for rows, limits, words in kinds:
        count = int(rows.sum())
        if not count:
            continue
        many = f"{count:,}"
        if not parts:
            many += f" of {counted(len(values), 'value')}"
        if not parts and numbers:
            many += " is" if count == 1 else " are"
        ends = dict.fromkeys((f"{limits.min():g}", f"{limits.max():g}"))
        parts.append(f"{many} {words}" + (f" ({' to '.join(ends)})" if numbers else ""))
    return ", ".join(parts)


# Cells of a table

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
ONE_LIMIT = re.compile(rf"({LIMIT_PATTERN})({NUMBER})")
TWO_LIMITS = re.compile(rf"({NUMBER}){RANGE_PATTERN}({NUMBER})")

UNDETECTED = frozenset(
    {
        *("nd", "n.d.", "n.d", "bd", "bdl", "bql", "blq", "bld", "blod", "bloq", "bmdl", "non-detect"),
        *("<lod", "<dl", "<loq", "<ld", "<lq", "<mdl", "<rl", "<bdl", "<detection limit"),
        *("not detected", "none detected", "nondetect", "undetected", "non detect"),
        *("below detection limit", "below detection", "below limit of detection"),
        *("below the detection limit", "below quantification limit", "below lod", "below dl"),
    }
)
"""Cells that say that a value is below a detection limit, in lower case."""

TRUE_WORDS, FALSE_WORDS = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}
"""Cells of a column of flags, in lower case."""


@dataclass(frozen=True)
class Cells:
    """Cells of a column of values, (m,) each, NaN where a value is missing.

    Attributes
    ----------
    name : str
    values, lower, upper : (m,) ndarray
        Representative values and their limits, equal where the value is known.
    plain : (m,) ndarray of bool
        Cells that are a number, whose limit an option may give.
    undetected : (m,) ndarray of bool
        Cells such as ND, until an option gives their limit.
    written : (m,) ndarray
        Numbers before options changed them.
    """

    name: str
    values: Floats
    lower: Floats
    upper: Floats
    plain: np.ndarray
    undetected: np.ndarray
    written: Floats

    @classmethod
    def of(cls, column, name: str, missing=()) -> Cells:
        """Read the cells of a pandas Series: numbers, "<0.5", ">100", "0.2-0.5" and ND.

        `missing` are numbers that mark a missing value.

        Raises
        ------
        InvalidInput
            For a cell of other text.

        Examples
        --------
        >>> import pandas as pd
        >>> cells = Cells.of(pd.Series(["1.5", "<0.5", "2-3", "-9999"]), "zinc", (-9999,))
        >>> cells.lower, cells.upper, cells.values
        (array([ 1.5, -inf,  2. ,  nan]), array([1.5, 0.5, 3. , nan]), array([1.5, 0.5, 2.5, nan]))
        """
        numbers, rows = tables.numbers_and_text(column)
        numbers = np.where(np.isin(numbers, missing), np.nan, numbers)
        lower, upper = numbers.copy(), numbers.copy()
        undetected = np.zeros(len(numbers), dtype=bool)
        texts = column.iloc[rows].astype(str).str.strip().tolist()
        known = {text: _limits_in(text) for text in dict.fromkeys(texts)}
        unknown = [row for row, text in zip(rows, texts, strict=True) if known[text] is None]
        tables.refuse_text(column, name, unknown)
        for row, text in zip(rows, texts, strict=True):
            if known[text] == ():
                undetected[row] = True
                continue
            lower[row], upper[row] = known[text]
            if lower[row] > upper[row]:
                raise InvalidInput(
                    f"row {row + 1}, column {name!r}: the first limit of {text!r:.40} must be at "
                    "most the second one."
                )
        plain = np.isfinite(numbers)
        numbers = representative(numbers, lower, upper)
        numbers[rows] = np.where(is_censored(lower, upper), numbers, lower)[rows]
        return cls(name, numbers, lower, upper, plain, undetected, numbers)

    @property
    def censored(self) -> np.ndarray:
        """Whether each value is known only to lie between limits, (m,)."""
        return is_censored(self.lower, self.upper)

    def with_negative(self) -> Cells:
        """Return the cells with negative numbers, -x, read as values below x.

        Examples
        --------
        >>> import pandas as pd
        >>> Cells.of(pd.Series([1.5, -0.2]), "zinc").with_negative().upper
        array([1.5, 0.2])
        """
        rows = self.plain & (self.values < 0)
        return self._between(rows, -np.inf, np.abs(self.values))

    def with_limits(self, below: Limit = None, above: Limit = None) -> Cells:
        """Return the cells with values at or beyond limits read as censored.

        Parameters
        ----------
        below, above : float or Series, optional
            One limit for all; that of each row, missing where there is none; or flags, true where
            the value itself is a limit.

        Raises
        ------
        InvalidInput
            For cells such as ND without a limit below which they are, and for values that are at
            or beyond both limits.

        Examples
        --------
        >>> import pandas as pd
        >>> cells = Cells.of(pd.Series(["1.5", "0.1", "ND"]), "zinc").with_limits(below=0.2)
        >>> cells.lower, cells.upper
        (array([ 1.5, -inf, -inf]), array([1.5, 0.2, 0.2]))
        """
        low, low_flags = self._limit(below)
        high, high_flags = self._limit(above)
        with np.errstate(invalid="ignore"):
            under = self.plain & (low_flags if low is None else self.values <= low)
            over = self.plain & (high_flags if high is None else self.values >= high)
        both = np.flatnonzero(under & over)
        if len(both):
            row = both[0]
            raise InvalidInput(
                f"row {row + 1}, column {self.name!r}: {self.values[row]:g} is both below and "
                f"above a limit ({counted(len(both), 'such row')}): change below= (--below) or "
                "above= (--above)."
            )
        low = self.values if low is None else low
        high = self.values if high is None else high
        found = self._between(under, -np.inf, low)._between(over, high, np.inf)
        unknown = np.flatnonzero(self.undetected & ~np.isfinite(low))
        if len(unknown):
            raise InvalidInput(
                f"row {unknown[0] + 1}, column {self.name!r}: a value that was not detected needs "
                f"its limit ({counted(len(unknown), 'such row')}): give the limit, below=0.2 "
                '(--below 0.2), or its column, below="limit". If the value is missing, empty the '
                "cell (--drop-missing)."
            )
        return found._between(self.undetected, -np.inf, low)

    def _between(self, rows, lower, upper):
        """Return the cells with these limits in some rows."""
        if not rows.any():
            return self
        lower, upper = np.where(rows, lower, self.lower), np.where(rows, upper, self.upper)
        values = np.where(rows, representative(self.values, lower, upper), self.values)
        plain = self.plain & ~rows
        return replace(self, values=values, lower=lower, upper=upper, plain=plain)

    def _limit(self, given):
        """Return the limit of each row, NaN without one, or None; and the flags, (m,)."""
        absent = np.zeros(len(self.values), dtype=bool)
        if given is None:
            return None, absent
        if isinstance(given, float):
            return np.full(len(absent), given), absent
        flags = _flags(given)
        if flags is None:
            numbers, text = tables.numbers_and_text(given)
            tables.refuse_text(given, given.name, text)
            return np.where(np.isfinite(numbers), numbers, np.nan), absent
        return None, flags


def _limits_in(text):
    """Return the limits that a cell states, () if it says "not detected", None for other text."""
    word = re.sub(r"\s+", " ", text.lower())
    if re.sub(r"^< ", "<", word) in UNDETECTED:
        return ()
    one = ONE_LIMIT.fullmatch(text)
    if one is not None:
        number = float(one[2])
        return (-np.inf, number) if one[1][0] in "<≤" else (number, np.inf)
    two = TWO_LIMITS.fullmatch(text)
    return None if two is None else (float(two[1]), float(two[2]))


def _flags(column):
    """Return whether each cell of a column of flags is true, (m,); None for other columns.

    A missing cell is not true.
    """
    import pandas as pd

    codes, cells = pd.factorize(column)
    words = [str(cell).strip().lower().removesuffix(".0") for cell in cells]
    used = {word for word in words if word not in MISSING_CELLS}
    if not used or not used <= TRUE_WORDS | FALSE_WORDS:
        return None
    # missing cells have the code -1
    true = np.array([*(word in TRUE_WORDS for word in words), False])[codes]
    if true.all() and used == {"1"}:
        raise InvalidInput(
            f"column {column.name!r} holds only the number 1, which may be a flag or a limit: for "
            "a limit of 1 give the number, below=1 (--below 1); for flags write true."
        )
    return true


# Functions of values

INCREASING_FUNCTIONS = {"I", "cbrt", "exp", "expm1", "log", "log10", "log1p", "log2", "sqrt"}


def transformed(source, values, lower, upper, rows):
    """Return values and their limits, (n,) each, transformed by the function of a source.

    A lower limit outside the function's domain becomes -inf. `rows` are those of the table, (n,).

    Raises
    ------
    InvalidInput
        For censored values and a function that is not known to be increasing, and where the
        function of a value or an upper limit is not finite.
    """
    censored = is_censored(lower, upper)
    if censored.any() and not is_increasing(source.function.plain):
        row = int(np.argmax(censored))
        known = ", ".join(sorted(INCREASING_FUNCTIONS - {"I"}))
        raise InvalidInput(
            f"{source.text} of values with limits must be an increasing function, such as {known}. "
            f"The value in row {rows[row] + 1} has limits ({int(censored.sum())} such rows): use "
            "one of these functions, or the column itself."
        )

    def of(numbers, where):
        result = np.array(numbers)
        result[where] = source.values([numbers[where]], rows=rows[where])
        return result

    found = of(values, ~censored)
    low, high = np.array(lower), of(upper, censored & np.isfinite(upper))
    inside = censored & np.isfinite(lower)
    # outside the domain of a logarithm there are no values
    low[inside] = source.function.values(lower[inside]) if inside.any() else low[inside]
    low[censored & ~np.isfinite(low)] = -np.inf
    low, high = np.where(censored, low, found), np.where(censored, high, found)
    only = np.flatnonzero(np.isinf(low) & np.isinf(high))
    if len(only):
        source.values([lower[only]], rows=rows[only])
    return representative(found, low, high), low, high


def is_increasing(text: str) -> bool:
    """Whether an expression is known to be an increasing function of its only name.

    Examples
    --------
    >>> is_increasing("log10(zinc)"), is_increasing("I(zinc / 1000 + 1)"), is_increasing("abs(zinc)")
    (True, True, False)
    """
    return _increasing(ast.parse(text, mode="eval").body)


def _increasing(node):
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).removeprefix("np.")
        one = len(node.args) == 1 and not node.keywords
        return name in INCREASING_FUNCTIONS and one and _increasing(node.args[0])
    if not isinstance(node, ast.BinOp):
        return False
    left, right = _constant(node.left), _constant(node.right)
    if isinstance(node.op, ast.Add):
        return any(
            constant is not None and _increasing(other)
            for constant, other in ((left, node.right), (right, node.left))
        )
    if isinstance(node.op, ast.Sub):
        return right is not None and _increasing(node.left)
    if isinstance(node.op, ast.Mult):
        return any(
            constant is not None and constant > 0 and _increasing(other)
            for constant, other in ((left, node.right), (right, node.left))
        )
    divided = isinstance(node.op, ast.Div) and right is not None and right > 0
    return divided and _increasing(node.left)


def _constant(node):
    """Return the number of a constant, or None."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = getattr(node.operand if negative else node, "value", None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return -value if negative else value
