#!/usr/bin/env bash
# GDAL 3.10.3 (rasterio 1.4.4), ESRI ASCII grids without NODATA_value
#
# The line NODATA_value is optional, and ESRI's tools take -9999 for cells without data if it is
# left out (ArcGIS Pro, "Esri ASCII raster format").
# Expected: GDAL masks -9999 in such a file.
# What happens: the driver AAIGrid declares no nodata value; -9999 is a number like the others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rasterio==1.4.4 numpy==2.2.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys

import rasterio

head = "ncols 3\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 10\n"
with open("height.asc", "w") as file:
    file.write(head + "101.5 102.5 103.5\n104.5 -9999 106.5\n")
with rasterio.open("height.asc") as raster:
    cells = raster.read(1, masked=True)
    print("rasterio", rasterio.__version__, "GDAL", rasterio.__gdal_version__)
    print("driver", raster.driver, "nodata", raster.nodata)
    print(cells)
    as_seen = raster.driver == "AAIGrid" and raster.nodata is None and cells[1, 1] == -9999
print("as described" if as_seen else "CHANGED")
sys.exit(not as_seen)
PYTHON
