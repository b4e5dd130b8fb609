#!/usr/bin/env bash
# netCDF4 1.7.5.1.post1, automatic masks of variables of one byte without `_FillValue`.
#
# Expected: no default fill value for bytes. The netCDF library's documentation says that readers should assume none,
# because the few values of a byte may all be data.
# What happens: 255 in an unsigned and -127 in a signed byte are masked. They are not if the variable was created with
# fill_value=False, which another reader, such as xarray, does not see.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check netCDF4==1.7.5.1.post1 numpy==2.4.6
env/bin/python - <<'PYTHON'
import netCDF4
import numpy as np

found = {}
print(f"netCDF4 {netCDF4.__version__}, netCDF {netCDF4.__netcdf4libversion__}")
with netCDF4.Dataset("t.nc", "w", diskless=True) as file:
    file.createDimension("x", 3)
    for name, kind, fill, values in (
        ("a", "u1", None, [0, 254, 255]),
        ("b", "i1", None, [0, -126, -127]),
        ("c", "u1", False, [0, 254, 255]),
    ):
        variable = file.createVariable(name, kind, ("x",), fill_value=fill)
        variable[:] = values
        found[name] = int(np.ma.getmaskarray(file[name][:]).sum())
        print(f"{kind}, fill_value={fill}: {values} are read as", file[name][:])
raise SystemExit(found != {"a": 1, "b": 1, "c": 0})
PYTHON
