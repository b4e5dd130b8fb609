#!/usr/bin/env bash
# xarray 2026.9.0: absolute times of CDO, units "day as %Y%m%d.%f"
#
# Expected: files of climate models whose times have the units "day as %Y%m%d.%f" (the absolute time
#   axis of CDO) are decoded to dates, as times in "days since" are, or reading them warns.
# What happens: the times stay the numbers 20240228.25, 20240229.25, 20240301.25, without a warning. Their
#   differences, 1 and 72, look like steps of a day and of ten weeks.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet xarray==2026.9.0 netCDF4==1.7.5.1.post1 cftime==1.6.6.1
cd "$place"
venv/bin/python - <<'PY'
import sys
import warnings

import netCDF4
import numpy as np
import xarray

print("xarray", xarray.__version__, "netCDF4", netCDF4.__version__)
with netCDF4.Dataset("model.nc", "w") as file:
    file.createDimension("time", 3)
    time = file.createVariable("time", "f8", ("time",))
    time.setncatts(
        {"standard_name": "time", "units": "day as %Y%m%d.%f", "calendar": "proleptic_gregorian"}
    )
    time[:] = [20240228.25, 20240229.25, 20240301.25]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with xarray.open_dataset("model.nc", decode_times=True) as data:
        values = data["time"].values
print(values.dtype, values, "differences", np.diff(values), f"{len(caught)} warnings")
sys.exit(not (values.dtype.kind == "f" and not caught and np.allclose(np.diff(values), [1, 72])))
PY
echo "as described"
