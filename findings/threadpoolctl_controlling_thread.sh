#!/usr/bin/env bash
# threadpoolctl 3.8.0 with NumPy 2.3.5 (its wheel's OpenBLAS uses pthreads).
# Expected: `threadpool_limits(1)` in any thread sets OpenBLAS's number of threads, which is one for
#   the whole process; so it was up to threadpoolctl 3.6.0.
# What happens: while one thread is inside `threadpool_limits`, those of all other threads return without
#   an error or a warning and change nothing: the block of `threadpool_limits(1)` computes with the
#   number that another thread set. A thread that calls `threadpool_limits(n)` without `with`, or
#   a controller's `set_num_threads`, keeps the others out as long as it lives, unless
#   `OpenBLASController.clear_controlling_thread(force=True)` is called.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/show.py" <<'PYTHON'
import sys
from threading import Thread

import numpy as np
import threadpoolctl


def threads():
    (blas,) = (one for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas")
    assert blas["threading_layer"] == "pthreads", blas
    return blas["num_threads"]


print("threadpoolctl", threadpoolctl.__version__, "NumPy", np.__version__)
seen = []


def other():
    with threadpoolctl.threadpool_limits(1):
        seen.append(threads())


with threadpoolctl.threadpool_limits(2):
    print("main thread, inside threadpool_limits(2):", threads())
    thread = Thread(target=other)
    thread.start()
    thread.join()
print("another thread meanwhile, inside threadpool_limits(1):", seen[0])
sys.exit(seen[0] != int(sys.argv[1]))
PYTHON
for expected in "3.6.0 1" "3.8.0 2"; do
    read -r version threads <<< "$expected"
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install -q "threadpoolctl==$version" "numpy==2.3.5"
    OPENBLAS_NUM_THREADS=2 "$folder/$version/bin/python" "$folder/show.py" "$threads"
done
