#!/usr/bin/env bash
# GDAL 3.10.3 (rasterio 1.4.4), ASCII rasters of GRASS
#
# r.out.ascii of GRASS GIS writes * into null cells by default, with no line `null:` in the header.
# Expected: these cells are masked.
# What happens: the driver GRASSASCIIGrid reads * as the number 0 and declares no nodata value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rasterio==1.4.4 numpy==2.2.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys

import rasterio

with open("height.asc", "w") as file:
    file.write("north: 4\nsouth: 0\neast: 6\nwest: 0\nrows: 2\ncols: 3\n101 102 103\n104 * 106\n")
with rasterio.open("height.asc") as raster:
    cells = raster.read(1, masked=True)
    print("rasterio", rasterio.__version__, "GDAL", rasterio.__gdal_version__)
    print("driver", raster.driver, "nodata", raster.nodata)
    print(cells)
    as_seen = raster.driver == "GRASSASCIIGrid" and raster.nodata is None
as_seen = as_seen and cells.count() == 6 and cells[1, 1] == 0
print("as described" if as_seen else "CHANGED")
sys.exit(not as_seen)
PYTHON
