#!/usr/bin/env bash
# netCDF4 1.7.5.1.post1, automatic masks of a FP32 variable whose `valid_min` is 0.1 in FP64.
#
# Expected: values below 0.1 are masked. Attributes from Python's floats are FP64, and -999 is below 0.1 in every format.
# What happens: an end that the type of the variable does not represent exactly is not used at all, with a Python
# warning. A `valid_min` of 0.5 masks -999, one of 0.1 does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check netCDF4==1.7.5.1.post1 numpy==2.4.6
env/bin/python - <<'PYTHON'
import warnings

import netCDF4
import numpy as np

found = {}
print(f"netCDF4 {netCDF4.__version__}, netCDF {netCDF4.__netcdf4libversion__}")
with netCDF4.Dataset("t.nc", "w", diskless=True) as file, warnings.catch_warnings():
    warnings.simplefilter("ignore")
    file.createDimension("x", 3)
    for name, least in (("a", 0.5), ("b", 0.1)):
        variable = file.createVariable(name, "f4", ("x",))
        variable.valid_min = least
        variable[:] = [1.0, -999.0, 2.0]
        found[least] = np.ma.getmaskarray(file[name][:]).tolist()
        print("valid_min", least, "in FP64: the values of a FP32 variable are", file[name][:])
raise SystemExit(found != {0.5: [False, True, False], 0.1: [False, False, False]})
PYTHON
