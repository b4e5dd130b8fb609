#!/usr/bin/env bash
# GDAL 3.12.4 (pyogrio 0.13.0, geopandas 1.2.0), writing FlatGeobuf
#
# Expected: a frame that is written and read again has its rows in the same order, as with
# GeoPackage, GeoJSON or a shapefile, so that results can be joined by position.
# What happens: by default the driver sorts features along a Hilbert curve for its spatial index.
# SPATIAL_INDEX=NO keeps the order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet geopandas==1.2.0 pyogrio==0.13.0 numpy==2.2.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys

import geopandas
import numpy as np
import pyogrio

x, y = np.random.default_rng(0).uniform(0, 1, (2, 50))
points = geopandas.GeoDataFrame(
    {"row": np.arange(50)}, geometry=geopandas.points_from_xy(x, y), crs="EPSG:4326"
)
print("pyogrio", pyogrio.__version__, "GDAL", pyogrio.__gdal_version_string__)
kept = {}
for name, options in (("a.gpkg", {}), ("a.fgb", {}), ("b.fgb", {"SPATIAL_INDEX": "NO"})):
    points.to_file(name, **options)
    rows = geopandas.read_file(name)["row"].to_numpy()
    kept[name] = bool((rows == np.arange(50)).all())
    print(name, options, "order kept" if kept[name] else f"first rows {rows[:5]}")
as_seen = kept == {"a.gpkg": True, "a.fgb": False, "b.fgb": True}
print("as described" if as_seen else "CHANGED")
sys.exit(not as_seen)
PYTHON
