#!/usr/bin/env bash
# geopandas 1.2.0, pyogrio 0.13.0: dates with an offset from UTC in a GeoPackage
#
# Expected: a GeoPackage that geopandas writes from dates in a time zone is read without a warning. The
#   format stores dates in UTC, so either the dates are converted, or the writer warns.
# What happens: the offset is written as it is, without a warning, and reading the same file warns of
#   "Non-conformant content". The dates are right; the zone is a fixed offset, not a name.
#   Dates in UTC and dates without a zone come back without a warning.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet geopandas==1.2.0 pyogrio==0.13.0 pandas==3.1.1
cd "$place"
venv/bin/python - <<'PY'
import sys
import warnings

import geopandas
import pandas as pd
import pyogrio

print("geopandas", geopandas.__version__, "pyogrio", pyogrio.__version__, "GDAL", pyogrio.__gdal_version_string__)
points = geopandas.points_from_xy([77.2, 88.4], [28.6, 22.6], crs=4326)
seen = {}
for zone in (None, "UTC", "Asia/Kolkata"):
    when = pd.to_datetime(["2024-02-25 05:30", "2024-02-26 05:30"]).tz_localize(zone)
    with warnings.catch_warnings(record=True) as of_writing:
        warnings.simplefilter("always")
        geopandas.GeoDataFrame({"when": when}, geometry=points).to_file("stations.gpkg")
    with warnings.catch_warnings(record=True) as of_reading:
        warnings.simplefilter("always")
        read = geopandas.read_file("stations.gpkg")["when"]
    words = [str(one.message) for one in of_reading]
    print(f"{zone}: {read.dtype}, {read[0]}; writing: {len(of_writing)} warnings; reading: {words}")
    seen[zone] = len(of_writing), any("Non-conformant" in one for one in words), str(read.dt.tz)
expected = {None: (0, False, "None"), "UTC": (0, False, "UTC"), "Asia/Kolkata": (0, True, "UTC+05:30")}
sys.exit(seen != expected)
PY
echo "as described"
