#!/usr/bin/env bash
# pyproj 3.7.2, `CRS.from_cf` with a Lambert conformal conic mapping of one standard parallel.
#
# Expected: `latitude_of_projection_origin` is the latitude where y is 0, as `+lat_0` is for PROJ, whatever the
# standard parallel is. With two equal parallels it is.
# What happens: with one standard parallel the attribute is not used. The standard parallel is the latitude of the
# origin, and all places are shifted: here by 4 degrees, without a warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check pyproj==3.7.2
env/bin/python - <<'PYTHON'
import pyproj

mapping = {
    "grid_mapping_name": "lambert_conformal_conic",
    "standard_parallel": 50.0,
    "longitude_of_central_meridian": 10.0,
    "latitude_of_projection_origin": 46.0,
}


def origin(crs):
    way = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    return tuple(round(number, 6) for number in way.transform(0.0, 0.0))


one = origin(pyproj.CRS.from_cf(mapping))
two = origin(pyproj.CRS.from_cf(mapping | {"standard_parallel": [50.0, 50.0]}))
proj = origin("+proj=lcc +lat_1=50 +lon_0=10 +lat_0=46 +datum=WGS84")
print(f"pyproj {pyproj.__version__}, PROJ {pyproj.proj_version_str}")
print("x = y = 0 is at", one, "with standard_parallel = 50")
print("              at", two, "with standard_parallel = 50, 50")
print("              at", proj, "with +proj=lcc +lat_1=50 +lat_0=46")
raise SystemExit((one, two, proj) != ((10.0, 50.0), (10.0, 46.0), (10.0, 46.0)))
PYTHON
