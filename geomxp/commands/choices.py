"""What people write after the command line's options, checked, and as what the library takes."""

import csv
import warnings
from math import isfinite
from pathlib import Path

from ..errors import GeomxpError, GeomxpWarning, InvalidInput, did_you_mean
from .options import TRENDS


def words(text):
    """Split `a,b` into names; one with a comma in it stands in quotation marks.

    Examples
    --------
    >>> words('East,"North, m"')
    ('East', 'North, m')
    """
    line = " ".join(text.split())
    parts = next(csv.reader([line], skipinitialspace=True), [])
    return tuple(word.strip() for word in parts if word.strip())


def _number(option, name, text):
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{option} {name}={text}: {text!r} is not a number.") from None


def pairs(option, items):
    """Parse repeated `name=value`."""
    result = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not equals:
            raise InvalidInput(f"{option} needs name=value. Got {item!r}.")
        result[name.strip()] = _number(option, name, text)
    return result


def numbers(option, text):
    """Parse `50,20`."""
    return tuple(_number(option, "number", word) for word in words(text))


def boxes(items):
    """Parse repeated `name=lower:upper`."""
    result = {}
    for item in items or ():
        name, _, text = item.partition("=")
        lower, colon, upper = text.partition(":")
        if not colon:
            raise InvalidInput(f"--bounds needs name=lower:upper. Got {item!r}.")
        result[name.strip()] = tuple(_number("--bounds", name, part) for part in (lower, upper))
    return result


def held_or_free(option, text):
    """Parse `0.5,1.5,free`."""
    return tuple(word if word == "free" else _number(option, "value", word) for word in words(text))


def yes_or_no(option, text):
    """Parse `no,yes`."""
    answers = {"no": False, "yes": True}
    for word in words(text):
        if word not in answers:
            raise InvalidInput(f"{option} must be no, yes or no,yes. Got {text!r}.")
    return tuple(answers[word] for word in words(text))


def check_of(of):
    """Raise `InvalidInput` unless `of` names what intervals or draws are of."""
    if of not in (None, "field", "observation"):
        raise InvalidInput(f"--of must be field or observation. Got {of!r}.")


def observations(table, locations, value, covariates, metric, drop_missing, formula=None, crs=None):
    """Read a data set by name, or a table file, with the columns that a formula names."""
    from .. import datasets, tables

    given = None if covariates is None else words(covariates)
    if table in datasets.DATASETS:
        return datasets.load(
            table,
            locations=words(locations) if locations else None,
            values=value,
            covariates=given,
            formula=formula,
            metric=metric,
            drop_missing=drop_missing,
        )
    _check_there(table)
    _check_named(table, locations, value)
    return tables.read_table(
        table,
        locations=words(locations) if locations else None,
        values=value,
        covariates=given or (),
        formula=formula,
        metric=metric,
        drop_missing=drop_missing,
        crs=crs,
    )


def _check_there(table):
    """Raise `InvalidInput` where there is no such file, with the data set that was meant."""
    from .. import datasets, tables

    try:
        tables.check_there(table)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{did_you_mean(table, datasets.DATASETS)}") from None


def _check_named(table, locations, value):
    """Raise `InvalidInput` where a file does not know its columns and they are not named."""
    from .. import tables
    from ..exchange import geofiles
    from ..places import few

    ending = Path(table).suffix.lower()
    needed = ""
    if ending not in geofiles.ENDINGS and not (locations and value):
        needed = "name the columns with --locations x,y --value z"
    elif ending in geofiles.VECTORS and not value:
        needed = "name the column of the values with --value z"
    if needed:
        names = few(tables.read_frame(table).columns, 12)
        raise InvalidInput(f"{table}: {needed}. The columns are: {names}.")


def file_of(table):
    """Return the file of a table; a data set's name stands for its file."""
    from .. import datasets

    if table in datasets.DATASETS:
        return datasets.path(table)
    _check_there(table)
    return table


def places_frame(places):
    """Read a table of places as plain columns; a data set's name stands for its file."""
    from .. import tables

    return tables.read_frame(file_of(places))


def places_data(places):
    """Read places as what their file holds: a frame, points or a grid."""
    from .. import tables

    return tables.read_data(file_of(places))


def usual_trend(table):
    """Return the trend that a data set is used with; "constant" for a table."""
    from .. import datasets

    known = datasets.DATASETS.get(table)
    return known.trend if known else "constant"


def trend_of(trend, formula, covariates, default):
    """Return the trend that at most one option names; `default` without any."""
    if trend is not None and formula is not None:
        raise InvalidInput("give only one of --trend and --formula.")
    if trend is not None:
        _check_kind("--trend", trend, "A formula goes into --formula.")
    if formula is not None:
        # a column may be called as a kind of trend is
        return f"~ {formula}"
    return trend or ("covariates" if covariates else default)


def kinds_of_trend(text):
    """Parse `constant,linear`; nothing if not given."""
    kinds = words(text or "")
    for kind in kinds:
        _check_kind("--trends", kind, 'Formulas go into --formulas "A; B".')
    return kinds


def _check_kind(option, word, of_formulas):
    """Raise `InvalidInput` for what is no kind of trend; it may be a formula in a wrong place."""
    if word not in TRENDS:
        near = did_you_mean(word, TRENDS) or f" {of_formulas}"
        raise InvalidInput(f"{option} must be one of: {', '.join(TRENDS)}. Got {word!r}.{near}")


def check_intervals(method, level):
    """Raise `InvalidInput` for intervals that cannot be, before a fit takes its time."""
    from ..inference.estimate import z_value

    z_value(level)
    if method not in (None, "wald", "profile"):
        raise InvalidInput(f"--intervals must be wald or profile. Got {method!r}.")


def intervals_of(fit, method, level):
    """Return the JSON of a fit's confidence intervals: null for an end at infinity.

    None, with a warning, where the fit has none.
    """
    if method is None:
        return None
    try:
        found = fit.confidence_intervals(level, method)
    except GeomxpError as error:
        warnings.warn(f"no intervals: {error}", GeomxpWarning, stacklevel=2)
        return None
    if not found:
        warnings.warn("no intervals: no parameter was estimated.", GeomxpWarning, stacklevel=2)
        return None
    ends = {
        name: [float(end) if isfinite(end) else None for end in pair]
        for name, pair in found.items()
    }
    return {"method": method, "level": level, "parameters": ends}


def interval_lines(intervals):
    """Return the intervals as lines below a fit."""
    how = {"wald": "Wald's", "profile": "by profile likelihood"}[intervals["method"]]
    lines = ["", f"  {100 * intervals['level']:g} % confidence intervals, {how}"]
    for name, (lower, upper) in intervals["parameters"].items():
        top = "infinity" if upper is None else f"{upper:.6g}"
        lines.append(f"  {name.replace('_', ' '):<18}{lower:>14.6g}{top:>14}")
    return "\n".join(lines)


def exact(on, tile, accuracy, kl, layers, memory=None, device_memory=None, scratch=None, **refined):
    """Return the exact method with the precision that at most one option names.

    Parameters
    ----------
    on, tile, accuracy, kl, layers, memory, device_memory, scratch :
        What is written after the options of these names.
    **refined :
        refine, fallback: the same.
    """
    from ..inference.exact import Exact
    from ..precision import rules

    options = {"--accuracy": accuracy, "--kl": kl, "--layers": layers}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"give only one of {' and '.join(given)}.")
    rule = rules.uniform("fp64")
    if accuracy is not None:
        rule = rules.by_tile_norm(accuracy)
    elif kl is not None:
        rule = rules.for_divergence(kl)
    elif layers is not None:
        rule = rules.layered(*words(layers))
    refine, fallback = refined.get("refine"), refined.get("fallback") or False
    refine = None if refine == "none" else refine
    if fallback and refine is None:
        raise InvalidInput("--fallback is for --refine ir, cg or gmres.")
    return Exact(rule, tile, on, memory, device_memory, scratch, refine, fallback)


def method(name, neighbours, on, exact_only):
    """Return the way to compute that the options name.

    Parameters
    ----------
    name : {"exact", "vecchia"}
    neighbours : int or None
    on : str
    exact_only : dict
        What `exact` takes besides.
    """
    if name == "exact":
        if neighbours is not None:
            raise InvalidInput("--neighbours needs --method vecchia.")
        return exact(on, **exact_only)
    if name != "vecchia":
        near = did_you_mean(name, ("exact", "vecchia"))
        raise InvalidInput(f"--method must be exact or vecchia. Got {name!r}.{near}")
    given = [
        f"--{key.replace('_', '-')}"
        for key, value in exact_only.items()
        if not (value is None or value is False or value == "none")
    ]
    if given:
        raise InvalidInput(f"{' and '.join(given)}: not with --method vecchia.")
    from ..inference.vecchia import Vecchia

    return Vecchia(30 if neighbours is None else neighbours, on=on)


def ways(accuracies, kls, layers, tile, on, neighbours=None):
    """Return [(label, way to compute)] for `compare`: four accuracies if nothing is asked for."""
    from ..inference.vecchia import Vecchia

    if accuracies is None and kls is None and layers is None and neighbours is None:
        accuracies = "1e-5,1e-6,1e-7,1e-8"
    found = []
    for word in words(accuracies or ""):
        accuracy = _number("--accuracies", "ε", word)
        found.append(({"accuracy": accuracy}, exact(on, tile, accuracy, None, None)))
    for word in words(kls or ""):
        target = _number("--kls", "KL", word)
        found.append(({"accuracy": None, "kl_target": target}, exact(on, tile, None, target, None)))
    if layers:
        found.append(({"accuracy": None, "layers": layers}, exact(on, tile, None, None, layers)))
    for word in words(neighbours or ""):
        if not word.isdecimal():
            raise InvalidInput(f"--neighbours must be whole numbers, 10,30,60. Got {word!r}.")
        found.append(({"accuracy": None}, Vecchia(int(word), on=on)))
    if not found:
        raise InvalidInput(
            "--accuracies, --kls, --layers and --neighbours need a number or a format each."
        )
    return found
