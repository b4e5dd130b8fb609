#!/usr/bin/env bash
# xarray 2026.9.0 with netCDF4 1.7.5.1.post1, cells of a NetCDF file that were never written.
#
# Expected: NaN, because netCDF4, which reads the file, masks them, and xarray decodes missing values by default.
# What happens: xarray turns netCDF4's masks off and knows `_FillValue` and `missing_value` only. Without these
# attributes, the usual case, cells that were never written are 9.97e36, and values outside `valid_range` are data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check xarray==2026.9.0 netCDF4==1.7.5.1.post1 numpy==2.4.6 pandas==3.1.1
env/bin/python - <<'PYTHON'
import netCDF4
import numpy as np
import xarray

with netCDF4.Dataset("t.nc", "w") as file:
    file.createDimension("x", 4)
    variable = file.createVariable("z", "f4", ("x",))
    variable.valid_range = np.float32([0, 100])
    variable.set_auto_mask(False)
    variable[:3] = [1.0, 2.0, -999.0]
with netCDF4.Dataset("t.nc") as file, xarray.open_dataset("t.nc") as data:
    masked, read = file["z"][:], data["z"].values
print(f"netCDF4 {netCDF4.__version__} reads", masked)
print(f"xarray {xarray.__version__} reads", read)
missing = np.ma.getmaskarray(masked).tolist(), np.isnan(read).tolist()
raise SystemExit(missing != ([False, False, True, True], [False, False, False, False]))
PYTHON
