"""How much of a device's fast memory a factorization takes, and what it can do with it."""

from ..errors import NotEnoughMemory
from ..execution.devices import human_bytes
from .plan import Sizes, least_blocks


def beside(layout, formats, streams):
    """Return the bytes that streams need beside their tiles: operands in other formats.

    Parameters
    ----------
    layout : Layout
    formats : PrecisionMap
    streams : int
        Tiles in work at one time.
    """
    largest = 8 * layout.tile**2
    return streams * (largest if formats.all_fp64 else 4 * largest)


def least(layout, formats, streams):
    """Return the smallest budget with which a device can work; parameters as of `beside`."""
    sizes = Sizes(layout, formats)
    return least_blocks(streams) * sizes.block + beside(layout, formats, streams)


def check(budget, layout, formats, streams):
    """Raise `NotEnoughMemory` if a budget is below the least."""
    needed = least(layout, formats, streams)
    if budget < needed:
        raise NotEnoughMemory(
            f"tiles of {layout.tile} rows, {streams} in work at one time, need at least "
            f"{human_bytes(needed)}. Got {human_bytes(budget)}: allow more, or use smaller tiles."
        )


def useful(needed):
    """Return how much fast memory can be of use at most for tiles of so many bytes."""
    return 2 * needed + 2**28


def bounded(asked, layout, formats, streams):
    """Return how many of the bytes asked for a device takes; more would only be looked after.

    Raises
    ------
    NotEnoughMemory
        If they are below the least.
    """
    check(asked, layout, formats, streams)
    most = max(useful(formats.bytes(layout)), least(layout, formats, streams))
    return min(asked, most)


def panel_width(layout, formats, streams, room):
    """Return how many columns a panel has, for the rows that it reads again to stay.

    Parameters
    ----------
    layout : Layout
    formats : PrecisionMap
    streams : int
        Of all devices.
    room : int
        Bytes for tiles, of the device with the least.
    """
    row = 2 * formats.bytes(layout) / layout.tiles
    rows = int(0.9 * room / max(1, row)) - streams
    return max(1, min(rows, layout.tiles))
