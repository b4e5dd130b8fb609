#!/usr/bin/env bash
# pyproj 3.7.2, `CRS.from_cf` with `semi_major_axis` beside `earth_radius`, or alone.
#
# Expected: a sphere of this radius, or an error.
# What happens: the error of the ellipsoid is caught, and the system is on WGS 84, without a warning. Latitudes of a
# mapping of a spherical Earth change by up to 0.19 degrees.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check pyproj==3.7.2
env/bin/python - <<'PYTHON'
import pyproj

mapping = {"grid_mapping_name": "latitude_longitude"}
radius, axis = {"earth_radius": 6371229.0}, {"semi_major_axis": 6371229.0}
found = []
print(f"pyproj {pyproj.__version__}, PROJ {pyproj.proj_version_str}")
for given in (radius, radius | axis, axis):
    ellipsoid = pyproj.CRS.from_cf(mapping | given).ellipsoid
    found.append((ellipsoid.semi_major_metre, round(ellipsoid.inverse_flattening, 3)))
    print(given, "gives the ellipsoid", *found[-1])
sphere, wgs84 = (6371229.0, 0.0), (6378137.0, 298.257)
raise SystemExit(found != [sphere, wgs84, wgs84])
PYTHON
