"""Where a cluster's scheduler is, and the one connection to it."""

import sys
from threading import Lock

from ..errors import InvalidInput, LostCluster, MissingDevice

TIMEOUT = 15
"""Seconds to reach a scheduler."""

_clients = {}
_lock = Lock()


def is_cluster(on):
    """Return whether the caller names a cluster: by the address of its scheduler, or a client.

    Examples
    --------
    >>> is_cluster("tcp://127.0.0.1:8786"), is_cluster("cpu")
    (True, False)
    """
    return (isinstance(on, str) and "://" in on) or _is_client(on)


def _is_client(on):
    # who has a client has imported its library
    kind = getattr(sys.modules.get("distributed"), "Client", None)
    # none while another thread is importing the library
    return kind is not None and isinstance(on, kind)


def address_of(on):
    """Return the address of a cluster's scheduler; a client is remembered under it.

    Parameters
    ----------
    on : str or dask.distributed.Client

    Raises
    ------
    InvalidInput
        If it is a client for coroutines, or one that is closed.
    """
    if not _is_client(on):
        return on
    if on.asynchronous:
        raise InvalidInput("`on` must be a client that waits: Client(…, asynchronous=False).")
    if on.status != "running" or on.scheduler is None:
        raise InvalidInput(f"`on` must be a client with a scheduler. Got one that is {on.status}.")
    with _lock:
        _clients[on.scheduler.address] = on
    return on.scheduler.address


def connect(address):
    """Return a client of the scheduler at an address, the same one at every call.

    Parameters
    ----------
    address : str
        As "tcp://host:8786".

    Raises
    ------
    MissingDevice
        If Dask is not installed.
    InvalidInput
        If it is no address.
    LostCluster
        If nobody answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MissingDevice(
            f'on="{address}" needs Dask, which is not installed: pip install "geomxp[cluster]".'
        ) from None
    with _lock:
        client = _clients.get(address)
        if client is None or client.status != "running":
            _check(address)
            try:
                client = Client(address, timeout=TIMEOUT, set_as_default=False)
            except Exception as error:
                # whatever a connection, or what is configured for it, dies of
                raise LostCluster(
                    f'no Dask scheduler answers at "{address}" ({in_one_line(error)}): check the '
                    "address, and that the scheduler runs."
                ) from None
            _clients[address] = client
        return client


def _check(address):
    """Raise `InvalidInput` where a client would raise, and then keep this process from ending.

    Dask closes one that cannot connect, but not one that is refused its address.
    """
    from distributed.comm import resolve_address
    from distributed.security import Security

    try:
        resolve_address(address)
        encrypted = address.startswith(("tls://", "wss://"))
        if encrypted and Security().get_connection_args("client").get("ssl_context") is None:
            raise ValueError("Dask's configuration names no certificates for TLS")
    except Exception as error:
        # whatever the parts of an address, or what is configured for it, die of
        raise InvalidInput(
            f'"{address}" is no address of a Dask scheduler ({in_one_line(error)}): write it as '
            '"tcp://host:8786".'
        ) from None


def in_one_line(error):
    """Return what an error says, for the end of one of our own lines."""
    return " ".join(str(error).split())[:200] or type(error).__name__
