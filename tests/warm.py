"""Python processes that begin with libraries imported.

Importing libraries takes longer than many a script that a test runs. `python_with` starts a process
that imports them once and forks for each script:

    with python_with("numpy", "pandas") as python:
        subprocess.run([*python, "script.py", "--tiny"])

The script has its own arguments, environment, folder, streams and exit status. Scripts run one
after another: one that starts another by the same words waits forever. What Python and the
libraries read from the environment when they start is that of the process that imported them.
geomxp should not be among them: it is then imported by each script, as usual.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

INTERVAL = 0.02
"""Seconds between two looks at a running script."""


@contextmanager
def python_with(*libraries, **environment):
    """Start the process that imports; yield the words of a command that take Python's place.

    Parameters
    ----------
    *libraries : str
        Modules.
    **environment : str
        Variables beside those of this process, read by Python and the libraries when they start.
    """
    if not hasattr(os, "fork"):
        yield [sys.executable]
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "socket")
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", path, *libraries],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # an interrupt from the terminal ends what asks, and then the server ends the script
            start_new_session=True,
        )
        with server:
            if not server.stdout.readline():
                raise RuntimeError(f"{libraries} could not be imported")
            # no site-packages and no settings: this process only waits for the script
            yield [sys.executable, "-I", "-S", __file__, "ask", path]


def ask(path, words):
    """Have a script run with this process's streams; return its exit status."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"."], [0, 1, 2])
        about = {"words": words, "environment": dict(os.environ), "folder": str(Path.cwd())}
        server.sendall(json.dumps(about).encode() + b"\n")
        status = server.makefile().read()
    return int(status) if status else 1


def serve(path, libraries):
    """Import libraries, and fork for each script; return what a fork is to run, at the end None."""
    for name in libraries:
        importlib.import_module(name)
    if "numba" in libraries:
        prepare_numba()
    os.set_blocking(0, False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(INTERVAL)
        print("ready", flush=True)
        # the other end of the standard input is closed at the end
        while sys.stdin.buffer.raw.read(1) is None:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            with client:
                client.settimeout(None)
                _, streams, _, _ = socket.recv_fds(client, 1, 3)
                about = json.loads(client.makefile().readline())
                process = os.fork()
                if not process:
                    os.setsid()
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    about["streams"] = streams
                    break
                for stream in streams:
                    os.close(stream)
                status = _status(process, client)
                # the process that asked may have been killed
                with suppress(OSError):
                    client.sendall(str(status).encode())
        else:
            return None
    for stream in about["streams"]:
        os.close(stream)
    return about


def prepare_numba():
    """Load what the first call of a compiled function would load."""
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def _status(process, client):
    """Wait for a fork, which is killed if its client is; return its exit status."""
    client.settimeout(INTERVAL)
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        try:
            client.recv(1)
        except TimeoutError:
            continue
        except OSError:
            pass
        os.kill(process, signal.SIGKILL)
        time.sleep(INTERVAL)
    client.settimeout(None)
    return os.waitstatus_to_exitcode(ended[1]) % 256


def run(words, environment, folder):
    """Run a script, or a module after -m, as Python would."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    module = words[0] == "-m"
    sys.argv = words[module:]
    if not sys.flags.safe_path:
        sys.path[0] = folder if module else str(Path(words[0]).parent)
    if module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    what, where, *others = sys.argv[1:]
    if what == "ask":
        sys.exit(ask(where, others))
    task = serve(where, others)
    if task:
        run(task["words"], task["environment"], task["folder"])
