#!/bin/bash
# rasterio 1.4.4: rasterio.open(path, driver=["GTiff", "AAIGrid"]) raises TypeError.
#
# Expected, as its own docstring says ("or a list of such names ... tried sequentially"): a file is
# opened by the first driver of the list that recognizes it.
# What happens: rasterio.open takes one name only. The class that it calls, rasterio.io.DatasetReader, takes
# the list. To restrict the drivers by rasterio.open, call it once for each name.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rasterio==1.4.4 numpy==2.3.5
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys

import numpy as np
import rasterio
from rasterio.io import DatasetReader

print("rasterio", rasterio.__version__, "with GDAL", rasterio.__gdal_version__)
print("the docstring offers a list:", "or a list of" in rasterio.open.__doc__)
about = {"height": 2, "width": 2, "count": 1, "dtype": "float64", "crs": "EPSG:28992"}
about["transform"] = rasterio.Affine(10, 0, 1000, 0, -10, 2000)
with rasterio.open("map.tif", "w", driver="GTiff", **about) as file:
    file.write(np.ones((2, 2)), 1)
names = ["AAIGrid", "GTiff"]
try:
    rasterio.open("map.tif", driver=names)
    opened = "opened"
except TypeError as error:
    opened = f"TypeError: {error}"
print(f"rasterio.open(driver={names}):", opened)
with DatasetReader("map.tif", driver=names) as file:
    print(f"DatasetReader(driver={names}): opened by", file.driver)
    reader = file.driver
with rasterio.open("map.tif", driver="GTiff") as file:
    print("rasterio.open(driver='GTiff'): opened by", file.driver)
sys.exit(not (opened.startswith("TypeError: invalid driver") and reader == "GTiff"))
PYTHON
