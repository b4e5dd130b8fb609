"""Names of columns as they are written: in lists, in formulas, and in the commands of advice."""

import keyword
import shlex

from ..errors import InvalidInput


def checked_names(argument, names):
    """Return names of columns as a tuple, or raise `InvalidInput`."""
    try:
        names = () if names is None else tuple(None if isinstance(names, str) else names)
    except TypeError:
        raise InvalidInput(
            f"`{argument}` must be a sequence of column names. Got {names!r:.60}."
        ) from None
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(
                f"`{argument}` must name columns by text. Got {name!r:.60}: name the columns of a "
                "frame with frame.rename(columns=str)."
            )
    return names


def split(text):
    """Split `a,b` into names, at the commas outside quotation marks and parentheses.

    A name that contains a comma is written in quotation marks, and a quotation mark within these
    twice, as in CSV. Spaces around names are left out.

    Examples
    --------
    >>> split('East, "North, m",log(lead)')
    ('East', 'North, m', 'log(lead)')
    >>> split('maximum(lead, 1),"a ""b"", c"')
    ('maximum(lead, 1)', 'a "b", c')
    """
    line, parts = " ".join(text.split()), [""]
    nested = line.count("(") == line.count(")")
    for letter in line:
        part = parts[-1].lstrip()
        quoted = part.startswith('"')
        within = part.count('"') % 2 if quoted else nested and part.count("(") > part.count(")")
        if letter == "," and not within:
            parts.append("")
        else:
            parts[-1] += letter
    names = (_bare(part.strip()) for part in parts)
    return tuple(name for name in names if name)


def _bare(part):
    """Return a name without the quotation marks around it."""
    if len(part) > 1 and part[0] == part[-1] == '"':
        return part[1:-1].replace('""', '"').strip()
    return part


def joined(names):
    """Return names as one list, which `split` takes apart again.

    Examples
    --------
    >>> joined(["East", "North, m"])
    'East,"North, m"'
    """
    names = tuple(map(str, names))
    line = ",".join(name if split(name) == (name,) else _marked(name) for name in names)
    return line if split(line) == names else ",".join(map(_marked, names))


def _marked(name):
    return '"{}"'.format(name.replace('"', '""'))


def option(name, *names):
    """Return an option of the command line with names of columns, as a shell takes it.

    Examples
    --------
    >>> option("covariates", "pH w", "dist")
    "--covariates 'pH w,dist'"
    """
    return f"--{name} {shlex.quote(joined(names))}"


def in_formula(name):
    """Return a name as formulas take it: in backticks unless it is an identifier.

    Examples
    --------
    >>> in_formula("dist"), in_formula("pH w")
    ('dist', '`pH w`')
    """
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return name if plain else f"`{name}`"


def in_python(text):
    """Return text as a literal of Python, in double quotation marks where it can be.

    Examples
    --------
    >>> print(in_python("pH w"), in_python('a "b"'))
    "pH w" 'a "b"'
    """
    plain = text.isprintable() and not {*text} & {'"', "\\"}
    return f'"{text}"' if plain else repr(text)
