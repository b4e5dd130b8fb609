#!/usr/bin/env bash
# GDAL 3.10.3 (rasterio 1.4.4), numbers in ESRI ASCII grids
#
# Expected: decimal numbers in a text file are read as doubles.
# What happens: the driver AAIGrid reads a band with decimal points as Float32, whatever the number of
# digits: 5801234.567 becomes 5801234.5. Its open option DATATYPE=Float64 keeps the digits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rasterio==1.4.4 numpy==2.2.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys

import rasterio

head = "ncols 2\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 10\nNODATA_value -9999\n"
with open("northing.asc", "w") as file:
    file.write(head + "5801234.567 5801234.667\n")
print("rasterio", rasterio.__version__, "GDAL", rasterio.__gdal_version__)
seen = []
for options in ({}, {"DATATYPE": "Float64"}):
    with rasterio.open("northing.asc", **options) as raster:
        seen.append((raster.dtypes[0], raster.read(1)[0].tolist()))
        print(options, *seen[-1])
as_seen = seen == [
    ("float32", [5801234.5, 5801234.5]),
    ("float64", [5801234.567, 5801234.667]),
]
print("as described" if as_seen else "CHANGED")
sys.exit(not as_seen)
PYTHON
