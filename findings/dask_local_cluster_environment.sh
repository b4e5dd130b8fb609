#!/usr/bin/env bash
# Dask distributed 2026.8.0, `LocalCluster` with worker processes, and environment variables of the caller.
#
# Expected: OMP_NUM_THREADS=1 and the like, which Dask sets so that workers do not compete for cores, are set in the
# workers only.
# What happens: they stay in the environment of the process that started the cluster, also after the cluster is closed.
# Processes that it starts later, and libraries that read the variables at run time, use one core.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check dask==2026.8.0 distributed==2026.8.0
cat > show.py <<'PYTHON'
import os
import sys

import distributed

NAMES = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"


def main():
    print("distributed", distributed.__version__)
    print("before:", [os.environ.get(name) for name in NAMES])
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        pass
    after = [os.environ.get(name) for name in NAMES]
    print("after the cluster is closed:", after)
    sys.exit(after != ["1", "1", "1"])


if __name__ == "__main__":
    main()
PYTHON
env -u OMP_NUM_THREADS -u MKL_NUM_THREADS -u OPENBLAS_NUM_THREADS env/bin/python show.py
