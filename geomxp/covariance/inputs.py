"""Locations, times and variables: the arguments of covariances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.equality import by_content
from .distance import Metric, meridians, metric_of
from .generate import box_of

if TYPE_CHECKING:
    from .._typing import Any, ArrayLike, Floats, Whole


@by_content
@dataclass(frozen=True, eq=False)
class Inputs:
    """Locations, times and variables: the arguments of a covariance.

    Inputs can stand for observations where no values are needed.

    Parameters
    ----------
    locations : (n, d) ndarray
    metric : Metric or str
    time : (n,) ndarray, optional
        For space-time families.
    variable : (n,) ndarray of int, optional
        Number of the variable, from 0; for multivariate families.
    error_variance : (n,) ndarray, optional
        Known variance of each measurement's error, in addition to the nugget; 0 if not given.
    replicates : (n,) ndarray, optional
        Number of measurements of which each value is the mean; 1 if not given.

    Examples
    --------
    >>> inputs = Inputs(np.zeros((3, 2)), time=np.array([0.0, 1.0, 0.0]))
    >>> inputs, inputs.duplicate()
    (<Inputs: 3 locations, euclidean, time>, (0, 2))
    """

    locations: Floats
    metric: Metric | str = "euclidean"
    time: Floats | None = None
    variable: Whole | None = None
    error_variance: Floats | None = None
    replicates: Floats | None = None

    values = covariates = None

    @classmethod
    def of(cls, inputs: Inputs | ArrayLike, metric: Metric | str = "euclidean") -> Inputs:
        """Return inputs unchanged; combine locations and a metric into inputs."""
        if isinstance(inputs, Inputs):
            return inputs
        return cls(np.asarray(inputs, dtype=np.float64), metric)

    def __len__(self) -> int:
        return len(self.locations)

    def __getstate__(self) -> dict[str, Any]:
        # functions among its keys may not be pickled
        return {name: value for name, value in vars(self).items() if name != "diagonals"}

    def __repr__(self) -> str:
        extra = [name for name in ("time", "variable") if getattr(self, name) is not None]
        parts = [f"{len(self):,} locations", str(self.metric), *extra]
        return f"<Inputs: {', '.join(parts)}>"

    def __getitem__(self, rows: slice | Whole) -> Inputs:
        columns = self.time, self.variable, self.error_variance, self.replicates
        some = (None if column is None else column[rows] for column in columns)
        return Inputs(self.locations[rows], self.metric, *some)

    def with_rows_of(self, other: Inputs) -> Inputs:
        """Return these locations (times, variables) and those of other inputs, without errors."""
        pairs = ((getattr(one, name) for one in (self, other)) for name in ("time", "variable"))
        columns = (None if a is None else np.concatenate((a, b)) for a, b in pairs)
        return Inputs(np.vstack((self.locations, other.locations)), self.metric, *columns)

    @property
    def points(self) -> Floats:
        """Points of the metric's Euclidean space, (n, k)."""
        return metric_of(self.metric).embed(self.locations)

    @cached_property
    def box(self) -> Floats:
        """Lowest and highest coordinates of the points, (2, k)."""
        return box_of(self.points)

    @cached_property
    def lags(self) -> tuple[float, float]:
        """The smallest and the largest lag between different times; 1 and 1 without."""
        between = np.diff(np.unique(self.time))
        return (float(between.min()), float(between.sum())) if len(between) else (1.0, 1.0)

    @cached_property
    def median_step(self) -> float:
        """The median step between different times; 0 without."""
        steps = np.diff(np.unique(self.time))
        return float(np.median(steps)) if len(steps) else 0.0

    @cached_property
    def diagonals(self) -> dict[Any, Any]:
        """Diagonals of the noise, and more that `Noise.of` keeps with them."""
        return {}

    def with_variable_axes(self, axes: Floats) -> Floats:
        """Return points (n, k + q) whose last coordinates are those of the variables, (p, q)."""
        return np.column_stack((self.points, axes[self.variable]))

    def with_time_axis(self, scale: float) -> Floats:
        """Return points (n, k + 1) whose last coordinate is the time, multiplied by a factor."""
        return np.column_stack((self.points, self.time * scale))

    @property
    def inputs(self) -> Inputs:
        """The inputs themselves, as `Observations.inputs`."""
        return self

    @property
    def dimensions(self) -> int:
        """Number of coordinates, d."""
        return self.locations.shape[-1]

    @property
    def variables(self) -> int:
        """Number of variables: 1, or one more than the largest number in `variable`."""
        return 1 if self.variable is None else int(self.variable.max(initial=0)) + 1

    def first_rows(self) -> Whole:
        """Return the first row with the same inputs as each row, (n,)."""
        locations = self.locations + 0.0
        if metric_of(self.metric).geographic:
            locations[:, 0] = meridians(locations)
        extra = [column for column in (self.time, self.variable) if column is not None]
        keys = np.column_stack([locations, *extra])
        order = np.lexsort(keys.T[::-1])
        new = np.ones(len(order), dtype=bool)
        new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
        # lexsort is stable: rows with the same inputs stay in their order
        rows = np.empty_like(order)
        rows[order] = order[new][np.cumsum(new) - 1]
        return rows

    @cached_property
    def distinct_inputs(self) -> int:
        """Number of distinct locations; those of different times or variables are different."""
        return len(np.unique(self.first_rows()))

    @cached_property
    def distinct_locations(self) -> int:
        """Number of distinct locations, whatever their times and variables."""
        return replace(self, time=None, variable=None).distinct_inputs

    @property
    def duplicate_inputs(self) -> bool:
        """Whether several rows have the same location, time and variable."""
        return self.distinct_inputs < len(self)

    def duplicate(self) -> tuple[int, int] | None:
        """Return the first rows (i, j), i < j, that have equal inputs and no known error, or None.

        With such rows the model needs a nugget.
        """
        if self.error_variance is not None:
            exact = np.flatnonzero(self.error_variance == 0)
            pair = replace(self[exact], error_variance=None).duplicate()
            return pair and (int(exact[pair[0]]), int(exact[pair[1]]))
        first = self.first_rows()
        later = np.flatnonzero(first != np.arange(len(first)))
        return (int(first[later[0]]), int(later[0])) if len(later) else None
