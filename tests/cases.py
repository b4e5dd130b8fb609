"""Cases of parametrized tests."""

from itertools import combinations, product


def by_pairs(*values):
    """Return cases in which each pair of values of two arguments occurs.

    A fault that depends on one or two arguments is found by these cases as by the full product,
    which grows with the number of arguments. A new value may change which other cases are chosen,
    and with them names like `chosen17`.

    Parameters
    ----------
    *values : sequence
        The values of each argument.

    Returns
    -------
    list of tuple
        In the order of the full product; always the same.

    Examples
    --------
    >>> by_pairs("ab", (1, 2), "xy")
    [('a', 1, 'x'), ('a', 2, 'y'), ('b', 1, 'y'), ('b', 2, 'x')]
    """
    # by index, so that values need not be hashable
    cases = list(product(*(range(len(v)) for v in values)))
    pairs = {case: set(combinations(enumerate(case), 2)) for case in cases}
    missing, chosen = set().union(*pairs.values()), set()
    while missing:
        best = max(cases, key=lambda case: len(pairs[case] & missing))
        chosen.add(best)
        missing -= pairs[best]
    # with one argument there are no pairs
    return [
        tuple(v[i] for v, i in zip(values, case, strict=True))
        for case in cases
        if case in chosen or len(values) < 2
    ]
