#!/usr/bin/env bash
# PROJ 9.5.1 (pyproj 3.7.2), polar stereographic at the South Pole with a positive latitude of true scale.
#
# Expected: `+lat_0=-90` says which pole, and a string means the same as a step of a pipeline and as a system.
# What happens: as a step of a pipeline `+proj=stere +lat_0=-90 +lat_ts=71` is at the South Pole. As a coordinate
# reference system the same string is at the North Pole: it is turned into EPSG's variant B, whose only latitude is that
# of the standard parallel, and `+lat_0` is lost without a warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check pyproj==3.7.2
env/bin/python - <<'PYTHON'
import pyproj

text = "+proj=stere +lat_0=-90 +lat_ts=71 +ellps=WGS84"
step = pyproj.Transformer.from_pipeline(
    f"+proj=pipeline +step +inv {text} +step +proj=unitconvert +xy_in=rad +xy_out=deg"
)
system = pyproj.CRS(f"{text} +type=crs")
way = pyproj.Transformer.from_crs(system, system.geodetic_crs, always_xy=True)
latitudes = [round(one.transform(1e5, 2e5)[1], 4) for one in (step, way)]
print(f"pyproj {pyproj.__version__}, PROJ {pyproj.proj_version_str}: {text}")
print("latitude of (100000, 200000) as a step of a pipeline:", latitudes[0])
print("                             as a reference system:  ", latitudes[1])
raise SystemExit(latitudes != [-87.9422, 87.9422])
PYTHON
