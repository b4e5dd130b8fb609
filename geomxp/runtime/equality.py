"""Equality of frozen dataclasses that hold arrays: by content."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from .._typing import Any

Class = TypeVar("Class", bound=type)


def by_content(cls: Class) -> Class:
    """Let `==` of a dataclass compare contents, where that of dataclasses raises for arrays.

    Objects are equal if they are of one class and all fields are the `same` that do not have
    compare=False. They have no hash.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @by_content
    ... @dataclass(frozen=True)
    ... class Point:
    ...     at: np.ndarray
    >>> Point(np.array([0.0, np.nan])) == Point(np.array([0.0, np.nan])), Point(np.ones(2)) == 1
    (True, False)
    """
    names = [field.name for field in fields(cls) if field.compare]

    def equal(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in names)

    cls.__eq__, cls.__hash__ = equal, None
    return cls


def same(a: Any, b: Any) -> bool:
    """Whether two values have the same content.

    Arrays need one shape and equal numbers; NaN equal NaN.

    Examples
    --------
    >>> same({"a": [np.arange(3)]}, {"a": [np.array([0.0, 1.0, 2.0])]}), same(np.ones(1), 1.0)
    (True, False)
    """
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if type(a) is not type(b) or a.shape != b.shape:
            return False
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))
