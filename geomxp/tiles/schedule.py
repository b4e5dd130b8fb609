"""The order of the work: known before the run."""


def left_looking(tiles):
    """Yield every tile (i, k) of the lower triangle, after all the tiles that it needs.

    Examples
    --------
    >>> list(left_looking(2))
    [(0, 0), (1, 0), (1, 1)]
    """
    for k in range(tiles):
        for i in range(k, tiles):
            yield i, k
