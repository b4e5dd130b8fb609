"""Prediction supports: points from arrays, frames and grids, and blocks that are averaged.

A block is a rectangle about a location, a polygon, or a given set of points, at one time and of one
variable. Its covariance with an observation is an integral over the block, and its variance an
integral over pairs of its points. For models with terms (`covariance.term`) in one and two
Euclidean dimensions both are exact to 1e-8 σ² for sides up to 100 ranges and 1,000 times each other
(`geomxp.prediction.averages`), to 3e-8 σ² for correlations of compact support. Elsewhere, and with
`discretisation`, a block is approximated by a regular set of points.
"""

import warnings
from dataclasses import asdict, replace

import numpy as np
import scipy

from ..covariance.base import Tabulated
from ..covariance.distance import metric_of, near_meridian
from ..covariance.inputs import Inputs
from ..data import spatial, tables, times
from ..data.arrays import (
    LARGEST_COORDINATE,
    as_numbers,
    checked_inputs,
    checked_locations,
    checked_variable,
    variable_numbers,
)
from ..data.formula import Formula
from ..data.labels import aligned, cells_of, labels_of
from ..data.observations import Observations
from ..data.reading import column_or_function
from ..errors import GeomxpWarning, InvalidInput, NotPositiveDefinite, check_whole
from ..estimation.result import WorkingFit, design_of
from ..likelihood.base import coincidence, noiseless_twins
from ..likelihood.latent import check_columns
from ..runtime.devices import free_memory, require_memory
from .averages import gauss, interior_rule, mapped, near_pairs, term_averages, term_variance

FEWER_POINTS_REMEDY = (
    "use fewer points (--discretisation, discretisation=), or leave their number out"
)
"""Remedy where a block has too many points."""

CHUNK_ENTRIES, CHUNK_NODES = 1 << 22, 1 << 18
"""Covariances between nodes and observations held, and nodes at which a trend is evaluated, at one
time."""

REGULAR_SIDE_POINTS, GAUSS_SIDE_NODES = 6, 6
"""Points along a side where integrals are sums (on the sphere and in three dimensions), and nodes
along it for distant observations, where the rule's error is 1e-9 σ²."""

WORKING_NEIGHBOURS = 160
"""Fewest working values of a response from which a prediction is made, unless the caller says how
many: standard deviations are then within 2 % of those from all at 99 % of locations."""

THIN_BLOCK_AREA_RATIO = 1e-4
"""Smallest area over squared extent of a block: the integrals over the boundary of a thinner one
cancel, and fewer than eight digits remain."""


# New locations in arrays, frames and grids


def targets_of(
    fit,
    new_locations,
    covariates=None,
    time=None,
    variable=None,
    error_variance=None,
    *,
    polygons=None,
    blocks=None,
):
    """Return `Inputs` in the system of a fit's observations, covariates, and their table.

    New locations are an array, Inputs, Observations, a frame or a grid. A pandas frame must have
    the columns of the observations' coordinates; points of a geopandas frame and cells of a grid
    are reprojected. Cells of a grid with a missing covariate are dropped, with a warning.
    Covariates are as `Trend.design` takes them, by name from a frame, a grid or observations if not
    given. The table is the frame or grid that the locations came from; None for others.

    For a model of several variables `variable` is a name or number, one for each location, or a
    tuple of those to predict at every location: all variables if neither it nor the locations say
    which. The inputs, covariates and table then have a row for each location and variable, first
    all variables of the first location.

    New locations that are the centres of a geopandas frame of `polygons` have its columns. Those of
    other `blocks` than rectangles must be so many.
    """
    observations, table, of_table = fit.observations, None, covariates is None
    asked, time_unit, dates_in_utc = time is not None, "", False
    labels, own = labels_of(new_locations), None
    if isinstance(new_locations, Observations):
        labels = new_locations.row_labels
    if spatial.is_frame(new_locations):
        timed = time is None and observations.time is not None
        new_locations, own, table = _from_frame(fit, new_locations, covariates, timed)
        labels = labels if table.dims is None else cells_of(table.source, table.dims)
    elif polygons is not None:
        table = spatial.of_polygons(polygons)
        labels, own = labels_of(polygons), table.columns
    columns = {"covariates": covariates, "time": time, "variable": variable}
    covariates, time, variable, error_variance = aligned(
        labels, **columns, error_variance=error_variance
    )
    if table is not None:
        covariates = own if of_table else covariates
        own_time = _column_of(table, observations, "time")
        if time is None:
            time, time_unit, dates_in_utc = own_time, table.time_unit, table.dims is not None
        elif own_time is not None and table.dims is None:
            # results stand beside the times that were asked for
            table = table.with_column(observations.time_name, time)
        own = _column_of(table, observations, "variable")
        if own is not None and variable is not None:
            raise InvalidInput(
                f"the new locations have a column {observations.variable_name!r}: leave `variable` "
                "(--variable) out, or drop the column."
            )
        variable = own if variable is None else variable
        if error_variance is None:
            error_variance = _column_of(table, observations, "error_variance")
        elif isinstance(error_variance, str):
            error_variance = column_or_function(table.columns, error_variance, "error_variance", 2)
    elif isinstance(error_variance, str):
        raise InvalidInput(
            "`error_variance` may name a column if `new_locations` are a frame. Got "
            f"{error_variance!r}: give a number, or one for each location."
        )
    if isinstance(new_locations, (Inputs, Observations)):
        if isinstance(new_locations, Observations):
            new_locations = on_axes_of(observations, new_locations)
        if new_locations.metric != observations.metric:
            raise InvalidInput(
                f"`new_locations` must be {observations.metric}. Got {new_locations.metric}."
            )
        if isinstance(new_locations, Observations):
            covariates = new_locations if covariates is None else covariates
            if new_locations.variable_names and variable is None:
                # other observations may number the variables otherwise
                variable = np.array(new_locations.variable_names)[new_locations.variable]
            new_locations = new_locations.inputs
    axis = observations.time_axis
    time = axis.numbers(time, time_unit, dates_in_utc)
    if asked and table is not None and table.dims is not None and observations.time is not None:
        table = table.at_time(observations.time_name, axis.dates(time))
    inputs = checked_inputs(new_locations, observations.metric, time, None, error_variance)
    if blocks not in (None, len(inputs)):
        raise InvalidInput(
            f"`new_locations` must hold one location for each of the {blocks} blocks, "
            f"or be left out. Got {len(inputs)}."
        )
    if of_table and table is not None and inputs.time is not None:
        # the trend may be one of the time
        name = observations.time_name
        covariates = (
            covariates.assign(**{name: inputs.time}) if name in fit.trend.needs else covariates
        )
    every, variable = _variables_of(fit, variable, inputs)
    if every is None:
        inputs = checked_inputs(inputs, variable=variable)
    else:
        rows = np.repeat(np.arange(len(inputs)), len(every))
        if covariates is not None and fit.trend.needs:
            covariates = of_rows(covariates, len(inputs), "locations")[rows]
        table = None if table is None else table.repeated(len(every))
        inputs = replace(inputs[rows], variable=np.tile(every, len(inputs)))
    if inputs.dimensions != observations.dimensions:
        raise InvalidInput(
            f"`new_locations` must have {observations.dimensions} columns of coordinates, as the "
            f"observations have. Got {inputs.dimensions}."
        )
    fit.model.check_inputs(inputs)
    return inputs, covariates, table


def on_axes_of(seen, others):
    """Return other observations in the coordinate system of those seen, and in their times."""
    changes, apart = {}, seen.system != others.system and others.system is not None
    if apart and seen.system is None:
        raise InvalidInput(
            f"the new observations are in {spatial.title(others.system)}, and those of the fit "
            'have no coordinate reference system: read those with crs="EPSG:…" (--crs).'
        )
    if apart and not spatial.same(seen.system, others.system):
        locations = others.locations.copy()
        locations[:, :2] = spatial.reproject(locations[:, :2], others.system, seen.system)
        changes = {"locations": locations, "crs": seen.crs, "length_unit": seen.length_unit}
        changes["metric"] = seen.metric
    axis, own = seen.time_axis, others.time_axis
    if seen.time is not None and others.time is not None and own != axis:
        changes["time"] = axis.numbers(times.Times(others.time, own))
        changes |= {f"time_{name}": text for name, text in asdict(axis).items()}
    if not changes:
        return others
    with warnings.catch_warnings():
        # all coordinates have been checked already
        warnings.simplefilter("ignore", GeomxpWarning)
        return replace(others, **changes)


def _variables_of(fit, variable, inputs):
    """Return the variables to predict at every location, or None; and those of the locations."""
    seen, m = fit.observations, len(inputs)
    if seen.variable is None or "variable" not in fit.model.uses:
        if variable is not None and np.asarray(variable).dtype.kind in "OU":
            raise InvalidInput(
                "the observations are of one variable: leave `variable` (--variable) out."
            )
        return None, variable
    if variable is None and inputs.variable is not None:
        return None, None
    labels = seen.variable_labels
    listed = isinstance(variable, tuple) or (isinstance(variable, list) and len(variable) != m)
    if variable is not None and not listed:
        inputs = replace(inputs, variable=None)
        return None, checked_inputs(inputs, variable=variable_numbers(variable, labels)).variable
    # without `variable` those that have observations
    every = [labels[k] for k in fit.trend.each] if variable is None else list(variable)
    every = checked_variable(variable_numbers(every, labels), len(every), labels)
    if not len(every) or len(np.unique(every)) < len(every):
        raise InvalidInput(
            "`variable` must be one variable, one for each location, or different variables to "
            f"predict at each of the {m:,} locations. Got {len(every)} that are not different."
        )
    return every, None


def _column_of(table, observations, name):
    """Return a column of a table that the observations have too, such as their times, or None."""
    column, columns = getattr(observations, f"{name}_name"), table.columns
    if name == "time" and table.time is not None:
        return columns[table.time]
    if getattr(observations, name) is None:
        return None
    if name != "variable" and name != "time" and column not in columns.columns:
        # a function of columns, such as the square of standard errors
        needed = Formula.of_values(column, name, 2)
        known = needed is not None and {*needed.variables} <= {*columns.columns}
        return column_or_function(columns, column, name, 2) if known else None
    return columns[column] if column in columns.columns else None


def _from_frame(fit, data, covariates, timed):
    """As `targets_of`, for a frame or a grid; `timed`: whether a grid has times."""
    observations, names = fit.observations, fit.observations.location_names
    needed, time = fit.trend.needs if covariates is None else (), None
    variables = {*data.coords, *spatial.variable_names(data)} if spatial.is_grid(data) else ()
    chosen = names if set(names) <= set(variables) else ()
    if timed and variables:
        known = observations.time_name in variables
        time = observations.time_name if known else spatial.time_of(data, locations=chosen)
    table = spatial.tabulate(data, needed, chosen, time)
    if len(table.locations) != observations.dimensions:
        # in 1-D, in 3-D and without points the columns are found by name
        table = table.with_locations(names)
    table.check_geometry()
    if table.dims is not None:
        own = (*table.locations, *filter(None, [table.time]))
        table = _known_cells(table, (*needed, *own))
    locations = tables.number_columns(table.columns, table.locations)
    _reproject(locations, table, observations)
    return locations, table.columns if needed else covariates, table


def _reproject(locations, table, observations):
    """Transform (m, d) locations of a table to the system of the observations, in place."""
    target = observations.system
    geographic = None if table.metric is None else metric_of(table.metric).geographic
    if table.crs is None and observations.geographic and geographic is False:
        raise InvalidInput(
            "`new_locations` must be longitude and latitude, as the observations are."
        )
    degrees = geographic and spatial.names_say_degrees(observations.location_names)
    if table.crs is None or (target is None and degrees):
        return
    if target is None:
        raise InvalidInput(
            f"`new_locations` are in {spatial.title(table.crs)}, and the observations have no "
            'coordinate reference system: read them with crs="EPSG:…", or give locations without '
            "one."
        )
    locations[:, :2] = spatial.reproject(locations[:, :2], table.crs, target)


def _known_cells(table, names):
    """Return the cells of a grid where the covariates are known; warn about the others."""
    tables.check_columns(table.columns, names)
    known = table.columns[list(names)].notna().all(axis=1).to_numpy()
    if not known.all():
        lacking = [name for name in names if table.columns[name].isna().any()]
        warnings.warn(
            f"{int((~known).sum()):,} of {len(known):,} cells have no {' or no '.join(lacking)} "
            "and are not predicted.",
            GeomxpWarning,
            stacklevel=5,
        )
    return replace(table, columns=table.columns[known], rows=known)


# Targets of kriging


def check_of(of):
    """Raise `InvalidInput` for a prediction of anything but the field or an observation."""
    if not isinstance(of, str) or of not in ("field", "observation"):
        raise InvalidInput(f'`of` must be "field" or "observation". Got {of!r}.')


def new_columns(fit, table, count, **given):
    """Return trials and total offset of new observations, each (m,) or None, by name or as given.

    Columns of the table of new locations with the names of those of the fit are used.
    """
    seen, found = fit.observations, {}
    if fit.model.response is not None:
        check_columns(fit.model.response, given["trials"], given["exposure"])
    for name, value in given.items():
        if value is None and table is not None and getattr(seen, name) is not None:
            value = _column_of(table, seen, name)
        if isinstance(value, str):
            if table is None:
                raise InvalidInput(
                    f"`{name}` may name a column if `new_locations` are a frame. Got {value!r}: "
                    "give a number, or one for each location."
                )
            value = column_or_function(table.columns, value, name, 2)
        if value is not None:
            value = as_numbers(value, name)
            if value.shape not in ((), (count,)):
                raise InvalidInput(
                    f"`{name}` must be a number, or one for each of the {count} new locations. Got "
                    f"shape {value.shape}."
                )
            value = np.broadcast_to(value, count)
            if not np.isfinite(value).all() or (name != "offset" and not (value > 0).all()):
                kind = "finite" if name == "offset" else "positive"
                raise InvalidInput(f"`{name}` of new observations must be {kind} numbers.")
            if name == "trials" and (value != np.round(value)).any():
                raise InvalidInput("`trials` of new observations must be whole numbers.")
        found[name] = value
    offset = found["offset"]
    if found["exposure"] is not None:
        offset = np.log(found["exposure"]) + (0.0 if offset is None else offset)
    return found["trials"], offset


def own_coefficients(fit, trend):
    """Return a trend with a fit's own coefficients, if they are not those of least squares."""
    if not isinstance(fit, WorkingFit):
        return trend
    residual = fit.observations.values - design_of(fit) @ fit.coefficients
    return replace(trend, coefficients=fit.coefficients, residual=residual)


def neighbour_count(fit, neighbours, further=0):
    """Return the number of observations that a target is predicted from; validate it.

    So many `further` locations, which are drawn before it, may be among them.
    """
    observations = fit.observations
    twins = noiseless_twins(fit.model, observations)
    if twins:
        raise NotPositiveDefinite(coincidence(observations, twins))
    if neighbours is None:
        neighbours = 2 * fit.method.neighbours
        if isinstance(fit, WorkingFit):
            # their noise is large: the field is known from many values
            neighbours = max(neighbours, WORKING_NEIGHBOURS)
    else:
        check_whole("neighbours", neighbours)
    return min(int(neighbours), len(observations) + further)


class Points:
    """`Inputs` as targets of kriging: the field there, or with `measured` values observed there."""

    def __init__(self, inputs, measured=False):
        self.inputs, self.locations, self.measured = inputs, inputs.locations, measured

    def inputs_of(self, model):
        """Return the inputs for covariances with observations."""
        return self.inputs if self.measured else model.of_field(self.inputs)

    def __len__(self):
        return len(self.inputs)

    def part(self, part):
        """Return a slice of the targets."""
        return Points(self.inputs[part], self.measured)

    def design(self, trend, covariates=None):
        """Return the trend's X₀, (m, p)."""
        return trend.design(self.locations, covariates, self.inputs.variable)

    def covariances(self, model, locations, metric, index=None):
        """Return the covariances of the field at observations and targets, (n, m), Fortran order.

        With `index` they are generated on the GPU of that number, and stay there.
        """
        return _between(model, locations, self.inputs_of(model), metric, index)

    def covariances_with(self, model, locations, metric, near):
        """Return None: the covariances of points with their neighbours follow from the model."""
        return

    def variances(self, model, metric):
        """Return the field's variance at each target, (m,)."""
        return model.diagonal(self.inputs)


def _between(model, a, b, metric, index):
    """Return the covariances of the field between two sets of inputs, on the CPU or a GPU."""
    a, b = Inputs.of(a, metric), Inputs.of(b, metric)
    return model.matrix(a, b) if index is None else model.pairs(a, b).covariance(index)


class Blocks:
    """Averages over blocks as targets of kriging; the interface of `Points`.

    `inputs` hold the centres, or the locations that represent blocks, and the time and the variable
    of each block. `rule(first, last)` gives nodes (N, d) and weights (N,) of the rules that
    integrate over these blocks, one block after the other; a block has `counts` nodes, and weights
    that sum to 1. `edges` are boundaries relative to the locations, as of `Region`: one that all
    blocks share, a list with one for each, or None for blocks that are sets of points. Blocks are
    `alike` if all have one shape and Euclidean distances.
    """

    def __init__(self, inputs, rule, counts, edges=None, alike=False):
        self.inputs, self.locations, self.rule, self.counts = inputs, inputs.locations, rule, counts
        self.edges, self.alike = edges, alike

    @classmethod
    def of_nodes(cls, inputs, nodes, weights, edges=None):
        """Make blocks from the nodes (k, d) and weights (k,) of each block's rule."""

        def rule(first, last):
            return np.vstack(nodes[first:last]), np.concatenate(weights[first:last])

        return cls(inputs, rule, np.array([len(points) for points in nodes]), edges)

    def __len__(self):
        return len(self.inputs)

    def inputs_of(self, model):
        """Return the inputs that represent blocks among observations."""
        return model.of_field(self.inputs)

    def part(self, part):
        """Return a slice, without a step, of the targets."""
        start, stop, _ = part.indices(len(self))
        edges = self.edges[part] if isinstance(self.edges, list) else self.edges

        def rule(first, last):
            return self.rule(start + first, start + last)

        return Blocks(self.inputs[start:stop], rule, self.counts[start:stop], edges, self.alike)

    def at_nodes(self, nodes, owners):
        """Return the inputs at nodes of the blocks `owners`."""
        return replace(self.inputs[owners], locations=nodes)

    def design(self, trend, covariates=None):
        """Return the averages of the trend's columns, (m, p); covariates are those of blocks."""
        result = np.zeros((len(self), len(trend.names)))
        needed = covariates is not None and len(trend.needs) > 0
        rows = of_rows(covariates, len(self)) if needed else None
        for nodes, weights, owners in self.pieces(CHUNK_NODES):
            known = rows[owners] if needed else None
            variable = self.inputs[owners].variable
            design = trend.design(nodes, known, variable)
            np.add.at(result, owners, weights[:, None] * design)
        return result

    def covariances(self, model, locations, metric, index=None):
        """Return the covariances of averages and field at locations, (n, m), Fortran order.

        The result is a NumPy array even if a GPU generates the covariances of the nodes.
        """
        known = Inputs.of(locations, metric)
        result = np.zeros((len(known), len(self)), order="F")
        most = max(1, CHUNK_ENTRIES // len(known))
        for nodes, weights, owners in self.pieces(most):
            # a block with very many nodes comes in pieces
            for at in range(0, len(nodes), most):
                own, some = owners[at : at + most], slice(at, at + most)
                averaging = scipy.sparse.csc_array(
                    (weights[some], own - own[0], np.arange(len(own) + 1))
                )
                field = model.of_field(self.at_nodes(nodes[some], own))
                among = _between(model, known, field, metric, index)
                among = among if index is None else among.get(order="A")
                result[:, own[0] : own[-1] + 1] += (averaging @ among.T).T
        if self.edges is not None:
            self._integrate_near(model, known, result)
        return result

    def covariances_with(self, model, locations, metric, near):
        """Return the covariances of each average with its neighbours, (k, m) for near (k, m)."""
        known = Inputs.of(locations, metric)
        return np.vstack(
            [
                self.part(slice(b, b + 1)).covariances(model, known[rows], metric)[:, 0]
                for b, rows in enumerate(near)
            ]
        )

    def variances(self, model, metric):
        """Return the variance of the field's average over each block, (m,)."""
        rows = of = np.arange(len(self))
        if self.alike and isinstance(model, Tabulated):
            # the field of a variable has one variance everywhere
            kinds = self.inputs.variable
            kinds = np.zeros(len(self)) if kinds is None else kinds
            _, rows, of = np.unique(kinds, return_index=True, return_inverse=True)
        return np.array([self._variance(model, b) for b in rows])[of]

    def _variance(self, model, b):
        if self.edges is not None:
            one = self.inputs_of(model)[b : b + 1]
            terms = model.terms(self.inputs.dimensions)
            return sum(term_variance(term, self._edges(b), one) for term in terms)
        nodes, weights = self.rule(b, b + 1)
        field = model.of_field(self.at_nodes(nodes, np.full(len(nodes), b)))
        return weights @ model.matrix(field, field) @ weights

    def _integrate_near(self, model, known, result):
        """Replace sums by integrals for blocks near an observation."""
        terms, own = model.terms(self.inputs.dimensions), self.inputs_of(model)
        trees = [scipy.spatial.cKDTree(mapped(term, known.points)) for term in terms]
        step = max(len(own), 1) if self.alike else 1
        for b in range(0, len(own), step):
            some, edges = own[b : b + step], self._edges(b)
            near = [
                rows * len(some) + columns
                for term, tree in zip(terms, trees, strict=True)
                for rows, columns in [near_pairs(term, tree, edges, known, some)]
            ]
            rows, columns = np.divmod(np.unique(np.concatenate(near)), len(some))
            pairs = known[rows], some[columns]
            result[rows, b + columns] = sum(term_averages(term, edges, *pairs) for term in terms)

    def _edges(self, b):
        """Return the boundary of a block."""
        return self.edges[b] if isinstance(self.edges, list) else self.edges

    def pieces(self, most):
        """Yield nodes, weights and blocks of the nodes, for blocks of at most this many nodes."""
        ends, first = np.cumsum(self.counts), 0
        while first < len(ends):
            before = ends[first] - self.counts[first]
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            owners = np.repeat(np.arange(first, last), self.counts[first:last])
            yield *self.rule(first, last), owners
            first = last


def of_rows(covariates, count, what="blocks"):
    """Return the covariates of blocks or locations, to be indexed by their numbers."""
    if isinstance(covariates, Observations):
        covariates = covariates.covariate_frame()
    if isinstance(covariates, dict):
        import pandas as pd

        covariates = pd.DataFrame(covariates)
    frame = spatial.is_kind(covariates, "pandas", "DataFrame")
    covariates = covariates if frame else np.asarray(covariates)
    if len(covariates) != count:
        raise InvalidInput(
            f"`covariates` must have one row for each of the {count} {what}. Got {len(covariates)}."
        )
    return covariates.iloc if frame else covariates


# Blocks as users give them: rectangles about locations, polygons, sets of points


def blocks_of(
    fit,
    block,
    new_locations=None,
    covariates=None,
    discretisation=None,
    time=None,
    variable=None,
):
    """Return the blocks that a caller of `predict` gives, their covariates and their table.

    They are rectangles about the locations by their sides, polygons, or sets of points (b, k, d)
    with equal weights. Locations, if given, are the centres of rectangles; for other blocks they
    represent them in the result in place of their centres. All else is as of `targets_of`.
    """
    observations, sides = fit.observations, are_sides(block)
    if discretisation is not None:
        check_whole("discretisation", discretisation)
    if sides and new_locations is None:
        raise InvalidInput("blocks given by their sides need `new_locations`, their centres.")
    euclidean = metric_of(observations.metric).embedding is None
    plane = euclidean and observations.dimensions <= 2 and isinstance(fit.model, Tabulated)
    count = None if plane and discretisation is None else int(discretisation or REGULAR_SIDE_POINTS)
    blocks, polygons, nodes = None, None, ()
    if not sides:
        columns = {"covariates": covariates, "time": time, "variable": variable}
        new_locations, covariates, time, variable = aligned(
            labels_of(block), "the blocks", new_locations=new_locations, **columns
        )
        if not (isinstance(block, np.ndarray) and block.ndim == 3):
            centres, nodes, weights, edges = _polygons(block, count, observations)
        elif discretisation is None:
            centres, nodes, weights, edges = _point_sets(block, observations)
        else:
            raise InvalidInput("`discretisation` is not for blocks that are sets of points.")
        blocks = len(centres)
        if new_locations is None:
            new_locations = centres
            polygons = block if spatial.is_geographic_frame(block) else None
    inputs, covariates, table = targets_of(
        fit, new_locations, covariates, time, variable, polygons=polygons, blocks=blocks
    )
    # a block has no measurement
    inputs = replace(inputs, error_variance=None)
    if sides:
        return _rectangles(block, inputs, count, observations), covariates, table
    rows = np.repeat(np.arange(blocks), len(inputs) // blocks)
    if edges is not None:
        moves = centres[rows] - inputs.locations
        edges = [edges[b] + move for b, move in zip(rows, moves, strict=True)]
    nodes, weights = ([each[b] for b in rows] for each in (nodes, weights))
    return Blocks.of_nodes(inputs, nodes, weights, edges), covariates, table


def are_sides(block):
    """Whether blocks are given by their sides."""
    try:
        array = np.asarray(block)
    except ValueError:
        return False
    return array.ndim <= 1 and array.size > 0 and array.dtype.kind in "iuf"


def _point_sets(block, observations):
    """Return centres, nodes, weights and no edges of blocks that are sets of points."""
    count, each, d = block.shape
    if d != observations.dimensions or not count or not each:
        raise InvalidInput(
            "`block` as an array of points must have the shape (blocks, points, "
            f"{observations.dimensions}). Got {block.shape}."
        )
    nodes = checked_locations(block.reshape(-1, d), observations.metric).reshape(block.shape)
    weights = np.full((count, each), 1 / each)
    centres = _centres_in_degrees(nodes) if observations.geographic else nodes.mean(axis=1)
    return centres, nodes, weights, None


def _centres_in_degrees(nodes):
    """Return the centres of sets of points on the sphere, (b, 2), also across the date line."""
    lon, lat = np.radians(nodes).transpose(2, 0, 1)
    x, y = (np.cos(lat) * part(lon) for part in (np.cos, np.sin))
    x, y, z = (part.mean(axis=1) for part in (x, y, np.sin(lat)))
    return np.degrees(np.column_stack((np.arctan2(y, x), np.arctan2(z, np.hypot(x, y)))))


def _rectangles(block, inputs, count, observations):
    """Return equal rectangles (intervals, boxes) about inputs."""
    d, locations = observations.dimensions, inputs.locations
    sides = np.asarray(block, dtype=np.float64)
    if sides.ndim and sides.shape != (d,):
        raise InvalidInput(f"`block` must be {d} side(s), one for each coordinate. Got {block!r}.")
    sides = np.broadcast_to(sides, (d,))
    if not (np.isfinite(sides).all() and (sides > 0).all()):
        raise InvalidInput(f"the sides of `block` must be greater than 0. Got {block!r}.")
    if sides.max() > LARGEST_COORDINATE:
        raise InvalidInput(
            f"the sides of `block` must be at most {LARGEST_COORDINATE:g}, so that squares of "
            f"distances are finite. Got {block!r}."
        )
    if count is not None:
        require_memory(
            f"a grid of {count:,} points along a block needs", 100 * count**d, FEWER_POINTS_REMEDY
        )
    if count is None:
        g, w = gauss(GAUSS_SIDE_NODES)
        half = sides / 2
        corners = half * [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]] if d == 2 else None
        edges = np.append(-half, half) if d == 1 else _edges_of_ring(corners)
        _check_thick(float(sides.prod()), float(sides.max()), "the rectangle of `block`")
    else:
        g, w, edges = _regular(count), np.full(count, 2 / count), None
    mesh = np.stack(np.meshgrid(*[g] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = np.prod(np.meshgrid(*[w / 2] * d, indexing="ij"), axis=0).ravel()
    euclidean = metric_of(observations.metric).embedding is None
    spherical = observations.geographic

    def rule(first, last):
        some = locations[first:last]
        if spherical:
            nodes = _in_degrees(some, mesh, sides, first)
        else:
            nodes = some[:, None] + mesh * (sides / 2)
        return nodes.reshape(-1, d), np.tile(weights, len(some))

    counts = np.full(len(locations), len(mesh))
    return Blocks(inputs, rule, counts, edges, alike=euclidean)


def check_points(blocks: Blocks, discretisation: int | None = None) -> None:
    """Raise `NotEnoughMemory` if the covariances of all points of a block do not fit.

    `discretisation` are the points along its longer side, if the user gives them.
    """
    points = 0 if blocks.edges is not None else int(blocks.counts.max(initial=0))
    free = free_memory()
    remedy = f"use at most {int((free / 24) ** 0.5):,} points for a block"
    if discretisation is not None and points:
        # points grow with the power of the dimensions, and bytes with their square
        power = 0.5 / blocks.locations.shape[1]
        fitting = int(discretisation * (free / (24 * points**2)) ** power)
        remedy = f"use at most {fitting:,} along it (--discretisation {fitting}, discretisation=)"
    # with distances, and a copy
    require_memory(f"a block of {points:,} points needs", 24 * points**2, remedy, free)


def _check_thick(area, extent, name):
    """Raise `InvalidInput` for a block of the plane that is too thin to integrate over."""
    if area < THIN_BLOCK_AREA_RATIO * extent * extent:
        raise InvalidInput(
            f"{name} is too thin to integrate over (area {area:.3g}, extent {extent:.3g}): give "
            "`discretisation`, for points along it."
        )


def _regular(count):
    """Return the midpoints of this many equal parts of (-1, 1)."""
    return (2 * np.arange(count) + 1) / count - 1


def _in_degrees(locations, mesh, sides, first=0):
    """Return nodes of equal areas on the sphere, (m, k, 2) in degrees."""
    south, north = locations[:, 1] - sides[1] / 2, locations[:, 1] + sides[1] / 2
    beyond = (south < -90) | (north > 90)
    if beyond.any():
        raise InvalidInput(
            f"block {first + int(np.argmax(beyond)) + 1} reaches over a pole: use smaller blocks "
            "there."
        )
    low, high = np.sin(np.radians(south))[:, None], np.sin(np.radians(north))[:, None]
    # equal steps of the sine of the latitude enclose equal areas
    latitude = np.degrees(np.arcsin((low + high) / 2 + mesh[:, 1] * (high - low) / 2))
    longitude = locations[:, :1] + mesh[:, 0] * sides[0] / 2
    return np.stack((longitude, latitude), axis=-1)


def _polygons(block, count, observations):
    """Return centres, nodes, weights and edges (or None) of blocks that are polygons."""
    if observations.dimensions != 2:
        raise InvalidInput(
            f"blocks that are polygons need locations in the plane. Got {observations.dimensions} "
            "coordinate(s): give a block's sides, or its points as an array (b, k, d)."
        )
    centres, nodes, weights, edges = [], [], [], []
    for number, polygon in enumerate(polygons_of(block, observations), start=1):
        around = edges_of(polygon)
        checked_locations(around[:, 0], observations.metric)
        if count is None:
            extent = float(np.ptp(around, axis=(0, 1)).max())
            _check_thick(polygon.area, extent, f"block {number}")
            centre, points, share = interior_rule(around, GAUSS_SIDE_NODES)
        else:
            points = _points_inside(polygon, count, observations.geographic, number)
            centre, share = points.mean(axis=0), np.full(len(points), 1 / len(points))
        centres.append(centre)
        nodes.append(points)
        weights.append(share)
        edges.append(around - centre)
    return np.array(centres), nodes, weights, edges if count is None else None


def _points_inside(polygon, count, spherical, number):
    """Return a regular grid of points within a polygon."""
    low, high = np.reshape(polygon.bounds, (2, 2))
    step = (high - low).max() / count
    # of which some are inside
    require_memory(
        f"a grid of {count:,} points along a block needs", 100 * count**2, FEWER_POINTS_REMEDY
    )
    parts = np.maximum(np.round((high - low) / step), 1).astype(int)
    middle, half = (low + high) / 2, (high - low) / 2
    mesh = np.stack(np.meshgrid(*map(_regular, parts), indexing="ij"), axis=-1).reshape(-1, 2)
    points = _in_degrees(middle[None], mesh, 2 * half)[0] if spherical else middle + mesh * half
    points = points[inside(polygon, points)]
    if not len(points):
        raise InvalidInput(
            f"block {number}: no point of a grid of {count} lies inside: use a larger "
            "`discretisation`."
        )
    return points


# Polygons


def polygons_of(shapes, observations, name="block"):
    """Return polygons as valid, oriented shapely geometries in the system of observations.

    `shapes` are a geopandas frame or series (reprojected), a shapely geometry, an array of corners
    (c, 2), or a sequence of these; `name` is the argument for messages.
    """
    import shapely

    one = isinstance(shapes, np.ndarray) and shapes.ndim == 2
    if spatial.is_geographic_frame(shapes):
        polygons = list(_reprojected(shapes, observations).geometry)
    elif one or isinstance(shapes, shapely.Geometry):
        polygons = [shapes]
    else:
        try:
            polygons = list(shapes)
        except TypeError:
            polygons = []
    if not polygons:
        needed = {
            "block": "the sides of a rectangle, a list of polygons or an array of points (b, k, d)",
            "mask": "an array of bool, a path or polygons",
        }[name]
        raise InvalidInput(f"`{name}` must be {needed}. Got {type(shapes).__name__}.")
    return [
        _valid(p, f"{name} {number}", observations) for number, p in enumerate(polygons, start=1)
    ]


def _reprojected(frame, observations):
    """Return a geopandas object in the coordinate reference system of observations."""
    if frame.crs is None:
        return frame
    name, target = spatial.describe(frame.crs).name, observations.system
    if target is None:
        raise InvalidInput(
            f"the polygons are in {spatial.title(name)}, and the observations have no coordinate "
            'reference system: read them with crs="EPSG:…", or give polygons without one.'
        )
    return frame if spatial.same(name, target) else frame.to_crs(target)


def _valid(polygon, name, observations):
    """Return a polygon as a valid shapely geometry on one branch, exteriors counter-clockwise."""
    import shapely

    if not isinstance(polygon, shapely.Geometry):
        polygon = _from_corners(polygon, name)
    if polygon.geom_type not in ("Polygon", "MultiPolygon") or polygon.is_empty:
        kind = "an empty geometry" if polygon.is_empty else f"a {polygon.geom_type}"
        raise InvalidInput(f"{name} must be a polygon. Got {kind}.")
    polygon = _across(polygon, name, observations)
    if not polygon.is_valid:
        raise InvalidInput(
            f"{name}: the polygon is not valid ({shapely.is_valid_reason(polygon)}): repair it "
            "with shapely.make_valid."
        )
    return shapely.orient_polygons(polygon)


def _across(polygon, name, observations):
    """Return a polygon whose corners lie on both sides of the date line on one branch."""
    import shapely

    metric, corners = metric_of(observations.metric), shapely.get_coordinates(polygon)
    if not (metric.turns and 180 < np.ptp(corners[:, 0]) < np.inf):
        return polygon
    middle = metric.branch_of(corners)[1]
    width = 360.0 if middle is None else np.ptp(near_meridian(corners[:, 0], middle))
    if not 0 < width < np.ptp(corners[:, 0]):
        # all round the globe, as from -180 to 180, or on a shortest branch already
        return polygon
    wide = observations.central_meridian is None or np.ptp(observations.locations[:, 0]) > 180
    west, east = corners[:, 0].min(), corners[:, 0].max()
    if wide and polygon.geom_type == "Polygon" and east - west < 360:
        warnings.warn(
            f"{name} has longitudes from {west:g} to {east:g}, and is taken the short way round, "
            f"{width:.4g} degrees wide: write {west + 360:g} for {west:g} to confirm "
            "this, or add corners along the long way.",
            GeomxpWarning,
            stacklevel=7,
        )

    def move(corners):
        return np.column_stack((near_meridian(corners[:, 0], middle), corners[:, 1]))

    polygon = shapely.transform(polygon, move)
    # parts that were cut at the date line now touch
    parts = shapely.get_parts(polygon)
    return shapely.union_all(parts) if shapely.is_valid(parts).all() else polygon


def _from_corners(corners, name):
    """Return the shapely polygon of an array of corners, (c, 2)."""
    import shapely

    try:
        corners = np.asarray(corners, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        corners = np.zeros(0)
    if corners.ndim != 2 or corners.shape[1] != 2:
        raise InvalidInput(
            f"{name} must be a polygon: corners (c, 2), or a shapely polygon. "
            f"Got shape {corners.shape}."
        )
    if not np.isfinite(corners).all():
        raise InvalidInput(f"{name}: the corners of a polygon must be finite numbers.")
    if shapely.MultiPoint(corners).convex_hull.area == 0:
        raise InvalidInput(
            f"{name}: a polygon needs at least 3 corners that are not on one line. "
            f"Got {len(corners)} corners."
        )
    return shapely.Polygon(corners)


def edges_of(polygon):
    """Return the edges of a shapely polygon, (e, 2, 2), with the polygon on their left."""
    import shapely

    rings = shapely.get_rings(shapely.get_parts(polygon))
    edges = np.concatenate([_edges_of_ring(shapely.get_coordinates(ring)) for ring in rings])
    return edges[(edges[:, 0] != edges[:, 1]).any(axis=1)]


def _edges_of_ring(corners):
    """Return the edges of a closed ring of corners, (c, 2, 2) for (c + 1, 2)."""
    return np.stack((corners[:-1], corners[1:]), axis=1)


def inside(polygon, points):
    """Return which points (k, 2) lie inside a shapely polygon, not on its boundary."""
    import shapely

    shapely.prepare(polygon)
    return shapely.contains_xy(polygon, *points.T)
