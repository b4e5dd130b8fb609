"""Files of all kinds: they are read as the same table in memory, or refused with a command."""

import gzip
import http.server
import json
import shlex
import shutil
import sqlite3
import struct
import threading
import zipfile
from pathlib import Path

import geopandas
import numpy as np
import pandas as pd
import pyogrio
import pytest
import rasterio
import shapely
import xarray

import geomxp as gx
from geomxp.cli import options
from geomxp.cli.main import main
from geomxp.data import tables

UTM = "EPSG:32633"
HELD = {"smoothness": 0.5}


def table(n=12):
    random = np.random.default_rng(8)
    # few digits, which all formats keep
    places = np.round(random.uniform((14, 50), (16, 52), (n, 2)), 4)
    return pd.DataFrame(
        {"lon": places[:, 0], "lat": places[:, 1], "ph": np.round(random.normal(6, 1, n), 3)}
    )


def points(system="EPSG:4326"):
    data = table()
    shapes = geopandas.points_from_xy(data.lon, data.lat, crs="EPSG:4326")
    return geopandas.GeoDataFrame(data[["ph"]], geometry=shapes).to_crs(system)


def rows(seen):
    """Return locations and values in an order of their own."""
    every = np.column_stack((seen.locations, seen.values))
    return every[np.lexsort(every.T)]


def same(seen, other):
    assert (seen.metric, seen.crs, seen.unit) == (other.metric, other.crs, other.unit)
    np.testing.assert_allclose(rows(seen), rows(other), rtol=1e-12)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Points


def flat_geobuf(data, path):
    data.to_file(path)


def geojson_by_lines(data, path):
    data.to_file(path, driver="GeoJSONSeq")


def geojson_with_features_first(data, path):
    document = json.loads(data.to_json())
    path.write_text(json.dumps({"features": document["features"], "type": "FeatureCollection"}))


def geojson(data, path):
    data.to_file(path, driver="GeoJSON")


def zipped_shapefile(data, path):
    data.to_file(path.with_suffix(".shp"))
    with zipfile.ZipFile(path, "w") as archive:
        for ending in ("shp", "shx", "dbf", "prj"):
            part = path.with_suffix(f".{ending}")
            archive.write(part, f"folder of mine/wells.{ending}")
            part.unlink()


def geoparquet(data, path):
    data.to_parquet(path)


def geoarrow(data, path):
    data.to_parquet(path, geometry_encoding="geoarrow")


def geoparquet_of_several_geometries(data, path):
    other = data.geometry.to_crs(UTM).buffer(10).to_crs(data.crs)
    data.rename_geometry("wkb").assign(field=other.values).to_parquet(path)


def geopackage_of_qgis(data, path):
    data.to_file(path, layer="wells")
    pyogrio.write_dataframe(pd.DataFrame({"note": ["dry"]}), path, layer="notes")
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE layer_styles (id INTEGER PRIMARY KEY, styleQML TEXT)")
        base.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) "
            "VALUES ('layer_styles', 'attributes', 'layer_styles', 0)"
        )
    base.close()


VECTORS = [
    ("t.fgb", flat_geobuf),
    ("t.geojsonl", geojson_by_lines),
    ("t.geojsons", geojson_by_lines),
    ("lines.json", geojson_by_lines),
    ("t.json", geojson),
    ("export.txt", geojson),
    ("t.json", geojson_with_features_first),
    ("t.shp.zip", zipped_shapefile),
    ("t.zip", zipped_shapefile),
    ("t.parquet", geoparquet),
    ("t.pq", geoparquet),
    ("t.parquet", geoarrow),
    ("t.parquet", geoparquet_of_several_geometries),
    ("t.gpkg", geopackage_of_qgis),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write"), VECTORS)
def test_points_in_a_file_are_those_of_the_frame(here, name, write):
    write(points(), here / name)
    seen = gx.read_table(name, values="ph")
    same(seen, gx.Observations.from_frame(points(), values="ph"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write"), [VECTORS[k] for k in (0, 3, 4, 7, 9, 13)], ids=lambda one: str(one)[:20]
)
def test_a_fit_reads_the_points_of_any_file_again(here, name, write):
    write(points(), here / name)
    seen = gx.read_table(name, values="ph")
    gx.fit(seen, fixed=HELD, raise_on_failure=False).save("fit.json", embed=False)
    assert gx.Fit.load("fit.json").observations.digest() == seen.digest()


def test_a_projected_system_and_heights_are_kept_in_every_file(here):
    data = points(UTM)
    data = data.set_geometry(shapely.force_3d(data.geometry.values, 250.0))
    whole = gx.Observations.from_frame(data, values="ph", locations=("x", "y", "z"))
    data.to_parquet("t.parquet", geometry_encoding="geoarrow")
    data.to_file("t.fgb")
    for name in ("t.parquet", "t.fgb"):
        same(gx.read_table(name, values="ph", locations=("x", "y", "z")), whole)
    document = json.loads(points(UTM).to_json())
    document["crs"] = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
    Path("t.json").write_text(json.dumps(document))
    same(
        gx.read_table("t.json", values="ph"),
        gx.Observations.from_frame(points(UTM), values="ph"),
    )


def test_parquet_without_a_geometry_stays_a_table(here):
    table().to_parquet("t.parquet")
    assert type(tables.read_data("t.parquet")) is pd.DataFrame
    seen = gx.read_table("t.parquet", values="ph")
    np.testing.assert_array_equal(seen.locations, table()[["lon", "lat"]])


def test_the_only_layer_of_points_is_read_with_a_word_about_the_others(here):
    points(UTM).to_file("t.gpkg", layer="wells")
    fields = points(UTM).set_geometry(points(UTM).buffer(10))
    fields.to_file("t.gpkg", layer="fields")
    with pytest.warns(gx.GeomxpWarning, match="layer 'wells' is read, the only layer of points"):
        seen = gx.read_table("t.gpkg", values="ph")
    same(seen, gx.Observations.from_frame(points(UTM), values="ph"))
    fields.to_file("fields.gpkg", layer="fields")
    with pytest.raises(gx.InvalidInput, match="geometries must be points"):
        gx.read_table("fields.gpkg", values="ph")


def test_several_layers_of_points_are_refused_with_a_command(here):
    for layer in ("wells of 2020", "springs"):
        points().to_file("my survey.gpkg", layer=layer)
    with pytest.raises(gx.InvalidInput, match="must hold one layer of points") as caught:
        gx.read_table("my survey.gpkg", values="ph")
    words = shlex.split(str(caught.value).partition("its own: ")[2].removesuffix("."))
    new, old = (here / word for word in words[1:3])
    assert (new, old) == (here / "my survey_wells of 2020.gpkg", here / "my survey.gpkg")
    assert (words[0], words[3:]) == ("ogr2ogr", ["wells of 2020"])


def test_attributes_alone_are_a_table(here):
    pyogrio.write_dataframe(table(), "t.gpkg", layer="wells")
    seen = gx.read_table("t.gpkg", values="ph")
    np.testing.assert_array_equal(seen.locations, table()[["lon", "lat"]])


def test_flat_geobuf_keeps_the_order_of_predictions(here):
    points(UTM).to_file("t.gpkg")
    fit = gx.fit(gx.read_table("t.gpkg", values="ph"), fixed=HELD, raise_on_failure=False)
    fit.save("fit.json")
    assert main(["predict", "fit.json", "t.gpkg", "--output", "p.fgb", "--quiet"]) == 0
    written = tables.read_data("p.fgb")
    assert written.crs == UTM
    np.testing.assert_array_equal(written["mean"], gx.predict(fit, points(UTM)).mean)
    np.testing.assert_array_equal(written["ph"], table().ph)


# Files that are not read


def spreadsheet(path):
    pyogrio.write_dataframe(table(), "of office.xlsx", driver="XLSX")
    Path("of office.xlsx").rename(path)


def markup(path):
    points().to_file(path, driver="KML")


def lines_of_map_info(path):
    points().to_file(path, driver="MapInfo File")


def database(path):
    points().to_file(path, driver="SQLite")


def geodatabase(path):
    points().to_file(path, driver="OpenFileGDB")


def json_fg(path):
    points().to_file(path, driver="JSONFG")


def archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.geojson", "{}")
        file.writestr("b.geojson", "{}")


def shape_alone(path):
    points().to_file("whole.shp")
    shutil.copy("whole.shp", path)


def compressed(path):
    path.write_bytes(gzip.compress(b"x,y,z\n"))


def feather(path):
    table().to_feather(path)


def content(text):
    return lambda path: path.write_bytes(text)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("t.xlsx", spreadsheet, r"save the sheet as CSV .*ogr2ogr -f CSV t.csv t.xlsx"),
        ("my t.csv", spreadsheet, r"ogr2ogr -f CSV 'my t_new.csv' 'my t.csv'"),
        ("t.kml", markup, "ogr2ogr t.gpkg t.kml"),
        ("t.xml", markup, "ogr2ogr t.gpkg t.xml"),
        ("t.tab", lines_of_map_info, "ogr2ogr t.gpkg t.tab"),
        ("t.sqlite", database, "ogr2ogr t.gpkg t.sqlite"),
        ("t.gdb", geodatabase, "ogr2ogr t.gpkg t.gdb"),
        ("t.json", json_fg, "ogr2ogr t.gpkg t.json"),
        ("t.json", content(b'{"type": "Topology", "arcs": []}'), "ogr2ogr t.gpkg t.json"),
        ("t.json", content(b'{"geometryType": "esriGeometryPoint"}'), "ogr2ogr t.gpkg t.json"),
        ("t.json", content(b'[{"x": 1}]'), r"read_json\('t.json', lines=False\).to_csv\('t.csv'"),
        ("t.jsonl", content(b'{"x": 1}\n{"x": 2}'), r"read_json\('t.jsonl', lines=True\)"),
        ("t.feather", feather, r"read_feather\('t.feather'\).to_parquet\('t.parquet'\)"),
        ("t.zip", archive, "a ZIP archive of a.geojson, b.geojson: unzip t.zip"),
        ("t.csv", compressed, "is compressed: rename it to t.csv.gz"),
        ("t.gpkg.gz", compressed, "gunzip -k t.gpkg.gz"),
        ("t.shp", shape_alone, "a shapefile needs t.shx and t.dbf beside it"),
        ("t.bin", flat_geobuf, "is a FlatGeobuf file: rename it to t.fgb"),
        ("t.db", flat_geobuf, "is a FlatGeobuf file: rename it to t.fgb"),
        ("t.grib", content(b"GRIB\0\0"), "cdo -f nc copy t.grib t.nc"),
        ("t.img", content(b"EHFA_HEADER_TAG\0"), "gdal_translate t.img t.tif"),
        ("t.asc", content(b"north: 2\nsouth: 0\n* 1\n"), "r.out.gdal input=NAME output=t.tif"),
        ("t.rds", content(b"\0\1"), "write.csv"),
        ("t.csv", content(b"<!DOCTYPE html>\n<html>"), "save the table itself as CSV"),
        ("t.csv", content(b"*GLOBAL*,Conventions,COARDS\n"), "from ERDDAP as .csvp or .nc"),
        ("t.las", content(b"LASF\0\0"), "neither text nor another kind"),
    ],
)
def test_valid_files_of_other_kinds_are_refused_with_what_to_do(here, name, write, message):
    if write is flat_geobuf:
        points().to_file("t.fgb")
        shutil.copy("t.fgb", name)
    else:
        write(here / name)
    with pytest.raises(gx.InvalidInput, match=message) as caught:
        gx.read_table(name, values="ph")
    assert str(caught.value).startswith(f"{name}: ")
    assert "not a" not in str(caught.value)


def test_a_fit_is_not_a_table(here):
    gx.fit(gx.datasets.load("meuse"), fixed=HELD).save("fit.json")
    with pytest.raises(gx.InvalidInput, match=r"fit.json: is a fit, not a table"):
        gx.read_table("fit.json", values="z")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p.kml", "p.asc", "p.grd", "p.zip", "p.geoparquet", "p.rds"])
def test_kinds_that_are_not_written_are_refused_before_the_work(here, name, capsys):
    gx.fit(gx.datasets.load("meuse"), fixed=HELD).save("fit.json")
    assert main(["predict", "fit.json", "meuse", "--output", name]) == 2
    assert "cannot be written: write a .csv" in capsys.readouterr().err
    assert not Path(name).exists()


@pytest.mark.parametrize("ending", ["csv.gz", "tsv.gz", "csv.bz2", "csv.xz"])
def test_a_compressed_table_is_compressed_and_comes_back(here, ending):
    tables.write_frame(table(), f"t.{ending}")
    assert Path(f"t.{ending}").read_bytes()[:1] != b"l"
    found = tables.number_columns(tables.read_frame(f"t.{ending}"), table().columns)
    np.testing.assert_array_equal(found, table())


# What a file refers to is not opened


@pytest.fixture
def address():
    """Yield an address of this machine, and the list of the requests for it."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/crs", requests
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("place", ["collection", "geometry", "lines"])
@pytest.mark.parametrize(("kind", "member"), [("link", "href"), ("URL", "url")])
def test_a_reference_system_at_an_address_is_not_followed(here, address, place, kind, member):
    url, requests = address
    document = json.loads(points().to_json())
    link = {"type": kind, "properties": {member: url}}
    (document if place == "collection" else document["features"][3]["geometry"])["crs"] = link
    each = document["features"] if place == "lines" else [document]
    Path("t.json").write_text("\n".join(map(json.dumps, each)))
    with pytest.raises(gx.InvalidInput, match="is a link, which is not followed"):
        gx.read_table("t.json", values="ph")
    assert requests == []


def test_text_of_a_virtual_file_inside_another_opens_nothing(here):
    points().to_file("t.gpkg", layer="t")
    virtual = (
        '<OGRVRTDataSource><OGRVRTLayer name="t"><SrcDataSource>t.gpkg</SrcDataSource>'
        "</OGRVRTLayer></OGRVRTDataSource>"
    )
    document = json.loads(points().to_json())
    document["features"] = document["features"][:5]
    Path("t.json").write_text(json.dumps({"note": virtual} | document))
    assert len(gx.read_table("t.json", values="ph")) == 5
    for name in ("v.gpkg", "v.shp", "v.fgb", "v.csv"):
        for text in (virtual, f"x{virtual}"):
            Path(name).write_text(text)
            with pytest.raises(gx.InvalidInput):
                gx.read_table(name, values="ph")


# Tables of text


def cells(separator, columns=None):
    data = table() if columns is None else columns
    return [separator.join(map(repr, map(float, row))) for row in data.to_numpy()]


GEOEAS = ["Acidity of springs, 2019", "3", "lon", "lat", "ph"]
ERDDAP = pd.date_range("2021-03-01", periods=12, freq="D").strftime("%Y-%m-%dT%H:%M:%SZ")


def with_dates(separator):
    every = zip(ERDDAP, cells(separator), strict=True)
    return [f"{date}{separator}{row}{separator}spring" for date, row in every]


UNITS_BELOW = ["time,lon,lat,ph,kind", "UTC,degrees_east,degrees_north,1,"]
UNITS_BEHIND = "time (UTC),lon (degrees_east),lat (degrees_north),ph (mol m-3),kind"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("t.dat", [*GEOEAS, *cells("  ")]),
        ("t.out", ["", " 3 1 1", *GEOEAS[2:], *(f"   {row}" for row in cells("\t"))]),
        ("t.txt", ["# title", *GEOEAS[1:], *cells(",")]),
        ("t.dat", [*GEOEAS, *(row.replace("e-", "D-") for row in cells(" "))]),
        ("t.rdb", ["# U.S. Survey, 2019", "#", "lon\tlat\tph", "9n\t9n\t12n", *cells("\t")]),
        ("nwis.txt", ["#\tx", "lon\tlat\tph", "16N\t16n\t5s", *cells("\t")]),
        ("t.csv", [*UNITS_BELOW, *with_dates(",")]),
        ("t.tsv", [*(line.replace(",", "\t") for line in UNITS_BELOW), *with_dates("\t")]),
        ("t.csv", [UNITS_BEHIND, *with_dates(",")]),
        ("t.tsvp", [UNITS_BEHIND.replace(",", "\t"), *with_dates("\t")]),
        ("t.csv", ["# by hand, 2019", "", "# x, y", "lon,lat,ph", *cells(",")]),
        ("t.txt", ["lon   lat  ph", *cells("   ")]),
    ],
)
def test_tables_of_text_of_every_kind_are_those_of_the_frame(here, name, lines):
    Path(name).write_text("\n".join(lines) + "\n")
    seen = gx.read_table(name, values="ph")
    other = gx.Observations.from_frame(table(), values="ph")
    assert seen.digest() == other.digest()
    gx.fit(seen, fixed=HELD, raise_on_failure=False).save("fit.json", embed=False)
    assert gx.Fit.load("fit.json").observations.digest() == seen.digest()


def test_missing_numbers_of_geoeas_are_named_and_left_out(here):
    extra = ["14.5 50.5 -999", "14.6 50.6 1e31", "14.7 50.7 -999.0"]
    Path("t.dat").write_text("\n".join([*GEOEAS, *cells(" "), *extra]))
    with pytest.warns(gx.GeomxpWarning, match=r"--missing -999,1e\+31 --drop-missing"):
        gx.read_table("t.dat", values="ph")
    seen = gx.read_table("t.dat", values="ph", missing=(-999, 1e31), drop_missing=True)
    assert seen.digest() == gx.Observations.from_frame(table(), values="ph").digest()


def test_a_wrong_number_of_columns_in_geoeas_is_named(here):
    Path("t.dat").write_text("\n".join([*GEOEAS, *(f"{row} 5" for row in cells(" "))]))
    with pytest.raises(gx.InvalidInput, match=r"table says 3 columns.* first row has 4 cells"):
        gx.read_table("t.dat", values="ph")


def test_dates_of_the_surveys_format_are_times(here):
    lines = ["# x", "site\tlon\tlat\tph\tday", "15s\t9n\t9n\t9n\t10d"]
    lines += [f"0{k}\t{row}\t{ERDDAP[k][:10]}" for k, row in enumerate(cells("\t"))]
    Path("t.rdb").write_text("\n".join(lines))
    seen = gx.read_table("t.rdb", values="ph", time="day")
    assert (seen.time_unit, seen.time_origin) == ("day", "2021-03-01")
    np.testing.assert_array_equal(seen.time, np.arange(12))
    assert tables.read_frame("t.rdb")["site"].tolist()[:2] == ["00", "01"]


@pytest.mark.parametrize("lines", [[UNITS_BEHIND], UNITS_BELOW])
def test_a_column_is_named_with_or_without_its_unit(here, lines):
    lines = [line.replace(",1,", ",mol m-3,") for line in lines]
    Path("t.csv").write_text("\n".join([*lines, *with_dates(",")]))
    bare = gx.read_table("t.csv", values="ph", time="time")
    named = gx.read_table(
        "t.csv",
        values="ph (mol m-3)",
        time="time (UTC)",
        locations=("lon (degrees_east)", "lat (degrees_north)"),
    )
    assert named.digest() == bare.digest()
    assert (named.value_name, named.value_unit) == ("ph", "mol m-3")
    assert gx.read_table("t.csv", values="ph", value_unit="mM").value_unit == "mM"
    root = gx.read_table("t.csv", values="sqrt(ph (mol m-3))")
    assert (root.value_name, root.value_unit) == ("sqrt(ph)", "")
    np.testing.assert_array_equal(root.values, np.sqrt(bare.values))


def test_units_say_longitude_and_latitude_whatever_the_names(here):
    lines = ["a,b,ph", "degrees_north,degrees_east,1", *cells(",", table()[["lat", "lon", "ph"]])]
    Path("t.csv").write_text("\n".join(lines))
    seen = gx.read_table("t.csv", values="ph")
    assert (seen.metric, seen.location_names, seen.crs) == ("chordal", ("b", "a"), "EPSG:4326")
    np.testing.assert_array_equal(seen.locations, table()[["lon", "lat"]])


def test_new_locations_in_degrees_by_their_units_are_brought_to_the_plane(here):
    seen = gx.Observations.from_frame(points(UTM), values="ph")
    fit = gx.fit(seen, fixed=HELD, raise_on_failure=False)
    Path("t.csv").write_text("\n".join(["x,y,ph", "degrees_east,degrees_north,1", *cells(",")]))
    at = gx.predict(fit, tables.read_data("t.csv")).mean
    np.testing.assert_allclose(at, gx.predict(fit, points()).mean, rtol=1e-9)


def test_other_rows_of_units_are_taken_with_a_word(here):
    Path("t.csv").write_text("\n".join(["x,y,ph", "m,m,mol/m³", *cells(",", 1000 * table())]))
    with pytest.warns(gx.GeomxpWarning, match="m, m, mol/m³, is read as the units"):
        seen = gx.read_table("t.csv", values="ph")
    assert (len(seen), seen.value_unit) == (12, "mol/m³")


@pytest.mark.parametrize(
    "lines",
    [
        # a row of words, where other rows have words too
        ["x,y,ph,soil", "1,2,3,clay", "4,5,6,sand", "7,9,8,m"],
        ["x,y,ph", "n/a,NA,", "1,2,3", "4,5,6", "7,9,8"],
        ["x,y,ph", "1,2,lost", "4,5,6", "7,9,8"],
    ],
)
def test_the_first_row_of_a_table_stays_where_it_is_data(here, lines):
    Path("t.csv").write_text("\n".join(lines))
    assert len(tables.read_frame("t.csv")) == len(lines) - 1


@pytest.mark.parametrize(
    "lines",
    [
        # line 2 begins with a whole number, and a later line has as many cells as it says
        ["site\tx\ty", "3\t1\t2", "A1\t2\t3", "A2\t3\t1", "A3\t5\t4", "A4\t6\t1"],
        ["site x y", "3 1 2", "A1 2 3", "A2 3 1", "A3 5 4", "A4 6 1"],
        ["site,x,y", "3 ,1,2", "A1,2,3", "A2,3,1", "A3,5,4", "A4,6,1"],
    ],
)
def test_a_table_that_looks_like_geoeas_for_two_lines_stays_a_table(here, lines):
    Path("t.txt").write_text("\n".join(lines))
    found = tables.read_frame("t.txt")
    assert list(found.columns) == ["site", "x", "y"]
    assert len(found) == 5


def test_names_behind_a_comment_sign_may_precede_decimal_commas(here):
    Path("t.csv").write_text("#x;y;z\n1,5;2,5;3,5\n2,5;4,5;1,5\n7,5;1,5;2,5\n")
    assert list(tables.read_frame("t.csv").columns) == ["#x", "y", "z"]


def test_the_decimal_sign_leaves_units_as_they_are(here):
    lines = ["lon;lat;ph", "degrees_east;degrees_north;mM", "14,5;50,1;6", "15,5;51,1;7"]
    Path("t.csv").write_text("\n".join([*lines, "14,1;50,4;5,5"]))
    for decimal in (None, ","):
        seen = gx.read_table("t.csv", values="ph", decimal=decimal)
        assert (seen.metric, seen.value_unit, seen.values.tolist()) == (
            "chordal",
            "mM",
            [6, 7, 5.5],
        )


def test_names_behind_a_comment_sign_stay_names(here):
    Path("t.csv").write_text("\n".join(["#x,y,ph", *cells(",", 1000 * table())]))
    assert gx.read_table("t.csv", values="ph", locations=("#x", "y")).values.shape == (12,)


def test_names_of_columns_are_proposed_for_every_kind_of_text(here):
    Path("t.dat").write_text("\n".join([*GEOEAS, *cells(" ")]))
    Path("t.rdb").write_text("\n".join(["# a", "lon\tlat\tph", "9n\t9n\t9n", *cells("\t")]))
    for name in ("t.dat", "t.rdb"):
        assert options.tables("t.")
        assert options._columns_of(name) == ["lon", "lat", "ph"]


# Rasters

X, Y = 500.0 + 20 * np.arange(6), 1200.0 - 20 * np.arange(5)


def surface():
    """Return numbers with more digits than FP32 has, and one cell without data."""
    cells = 1e6 + np.random.default_rng(2).normal(size=(5, 6)).cumsum(axis=1)
    cells[1, 4] = np.nan
    return cells


def lines_of(cells, blank):
    filled = np.where(np.isnan(cells), blank, cells)
    return [" ".join(map(repr, map(float, row))) for row in filled]


def esri(path, *header, blank=-9999.0):
    path.write_text("\n".join([*header, *lines_of(surface(), blank)]) + "\n")


def esri_corner(path):
    esri(
        path,
        *("ncols 6", "nrows 5", "xllcorner 490", "yllcorner 1110", "cellsize 20"),
        "NODATA_value -1",
        blank=-1.0,
    )


def esri_centre_without_nodata(path):
    esri(path, "NROWS 5", "NCOLS\t6", "XLLCENTER 500", "YLLCENTER 1120", "DX 20", "DY 20")


def surfer_text(path):
    head = ["DSAA", "6 5", "500 600", "1120 1200", "0 2000000"]
    path.write_text("\n".join([*head, *lines_of(surface()[::-1], 1.70141e38)]) + "\n")


def surfer_7(path):
    cells = np.where(np.isnan(surface()), 1.70141e38, surface())[::-1].astype("<f8").tobytes()
    grid = struct.pack("<ii8d", 5, 6, 500, 1120, 20, 20, 0, 2e6, 0, 1.70141e38)
    path.write_bytes(
        b"DSRB" + struct.pack("<ii", 4, 1) + b"GRID" + struct.pack("<i", len(grid)) + grid
        + b"DATA" + struct.pack("<i", len(cells)) + cells
    )  # fmt: skip


def geotiff(path, cells=None, **about):
    cells = [surface()] if cells is None else cells
    at = rasterio.Affine(20, 0, 490, 0, -20, 1210)
    form = {"driver": "GTiff", "width": 6, "height": 5, "transform": at, "nodata": np.nan}
    about = form | {"count": len(cells), "dtype": "float64"} | about
    with rasterio.open(path, "w", **about) as file:
        file.write(np.array(cells).astype(about["dtype"]))
    return path


RASTERS = [
    ("elevation.asc", esri_corner),
    ("elevation.txt", esri_centre_without_nodata),
    ("elevation.grd", surfer_text),
    ("elevation.grd", surfer_7),
    ("elevation.tif", geotiff),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write"), RASTERS)
def test_a_raster_is_the_grid_of_its_cells(here, name, write):
    write(here / name)
    grid = xarray.DataArray(surface(), {"y": Y, "x": X}, name="elevation")
    with pytest.warns(gx.GeomxpWarning, match="1 of 30 cells have no elevation"):
        seen = gx.read_table(name)
    with pytest.warns(gx.GeomxpWarning, match="1 of 30 cells have no elevation"):
        other = gx.Observations.from_xarray(grid)
    assert seen.digest() == other.digest()
    assert seen.value_name == "elevation"
    gx.fit(seen, fixed=HELD, raise_on_failure=False).save("fit.json", embed=False)
    with pytest.warns(gx.GeomxpWarning, match="1 of 30 cells"):
        assert gx.Fit.load("fit.json").observations.digest() == seen.digest()


def test_cells_without_data_are_outside_a_mask(here):
    esri_centre_without_nodata(here / "mask.asc")
    places = np.random.default_rng(1).uniform((490, 1110), (610, 1210), (20, 2))
    fit = gx.fit(gx.Observations(places, places[:, 0] % 7), fixed=HELD, raise_on_failure=False)
    raster = gx.predict_raster(fit, like="mask.asc", mask="mask.asc")
    # the first row of a raster is the southernmost one
    np.testing.assert_array_equal(np.isnan(raster.mean), np.isnan(surface())[::-1])


def test_binary_grids_of_surfer_6_have_single_precision(here):
    cells = np.where(np.isnan(surface()), 1.70141e38, surface())[::-1].astype("<f4").tobytes()
    head = b"DSBB" + struct.pack("<hh6d", 6, 5, 500, 600, 1120, 1200, 0, 2e6)
    Path("t.grd").write_bytes(head + cells)
    data = tables.read_data("t.grd")
    np.testing.assert_allclose(data["t"], surface(), rtol=1e-7)
    np.testing.assert_array_equal(data["y"], Y)


def test_the_system_beside_an_ascii_grid_is_read_and_counts_for_a_fit(here):
    esri_corner(here / "t.asc")
    Path("t.prj").write_text(rasterio.crs.CRS.from_string(UTM).to_wkt())
    with pytest.warns(gx.GeomxpWarning, match="cells have no"):
        seen = gx.read_table("t.asc")
    assert (seen.crs, seen.unit) == (UTM, "m")
    before = tables.sha256("t.asc")
    Path("t.prj").write_text(rasterio.crs.CRS.from_string("EPSG:32634").to_wkt())
    assert tables.sha256("t.asc") != before


def test_bands_have_the_names_units_and_scales_of_the_file(here):
    whole = np.arange(30).reshape(5, 6)
    geotiff("t.tif", [whole, whole, whole], dtype="int16", nodata=-1, crs="EPSG:4269")
    with rasterio.open("t.tif", "r+") as file:
        file.scales, file.offsets = (0.5, 1, 1), (100, 0, 0)
        file.set_band_description(1, "height")
        file.set_band_description(3, "lon")
        file.set_band_unit(1, "m")
    data = tables.read_data("t.tif")
    # a coordinate has the name of the third band
    assert [str(name) for name in data.data_vars] == ["height", "band_2", "band_3"]
    np.testing.assert_array_equal(data["height"], 100 + 0.5 * whole)
    assert data["height"].attrs["units"] == "m"
    assert {"lon", "lat"} <= {*data.coords}


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"transform": rasterio.Affine(20, 5, 490, 5, -20, 1210)}, "the raster is rotated"),
        ({"dtype": "complex64", "nodata": None}, "complex numbers"),
        ({"transform": rasterio.Affine.identity()}, "is not georeferenced: gdal_translate"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*geotransform", "ignore:.*complex")
def test_rasters_that_are_no_grids_are_named(here, about, message):
    geotiff("t.tif", [np.ones((5, 6))], **about)
    with pytest.raises(gx.InvalidInput, match=message):
        gx.read_table("t.tif")


def covered(folder, crs=UTM):
    """Write a table with the covariate `elevation`, and a raster of it."""
    random = np.random.default_rng(4)
    places = random.uniform((490, 1110), (610, 1210), (40, 2))
    height = np.sin(places[:, 0] / 30)
    data = pd.DataFrame(places, columns=["x", "y"])
    data["elevation"] = height
    data["ph"] = 6 + height + np.round(random.normal(0, 0.3, 40), 3)
    data.to_csv(folder / "wells.csv", index=False)
    cells = np.broadcast_to(np.sin(X / 30), (5, 6)).copy()
    cells[2, 3] = np.nan
    geotiff(folder / "elevation.tif", [cells], crs=crs)
    command = ["fit", "wells.csv", "--value", "ph", "--covariates", "elevation"]
    command += [] if crs is None else ["--crs", crs]
    assert (
        main([*command, "--fix", "range=50", "--fix", "smoothness=0.5", "--output", "fit.json"])
        == 0
    )
    return cells


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:1 of 30 cells")
def test_a_raster_of_a_covariate_is_a_map_of_predictions(here, capsys):
    cells = covered(here)
    fit = gx.Fit.load("fit.json")
    across, down = np.meshgrid(X, Y)
    frame = pd.DataFrame({"x": across.ravel(), "y": down.ravel(), "elevation": cells.ravel()})
    known = frame.elevation.notna()
    bare = gx.predict(fit, frame[known])
    for name in ("map.tif", "map.nc", "map.csv", "map.gpkg"):
        assert main(["predict", "fit.json", "elevation.tif", "--output", name]) == 0
    assert "1 of 30 cells have no elevation and are not predicted" in capsys.readouterr().err
    with rasterio.open("map.tif") as written, rasterio.open("elevation.tif") as given:
        assert (written.transform, written.crs, written.shape) == (
            given.transform,
            given.crs,
            given.shape,
        )
        band = written.read(1 + written.descriptions.index("mean")).ravel()
    np.testing.assert_array_equal(np.isnan(band), ~known)
    np.testing.assert_allclose(band[known], bare.mean, rtol=1e-12)
    grid = xarray.load_dataset("map.nc")
    np.testing.assert_array_equal(grid["mean"].transpose("y", "x").to_numpy().ravel(), band)
    assert len(tables.read_frame("map.csv")) == len(tables.read_frame("map.gpkg")) == 29


def test_a_geotiff_without_a_reference_system_is_written_with_a_word(here, capsys):
    covered(here, crs=None)
    assert main(["predict", "fit.json", "elevation.tif", "--output", "map.tif"]) == 0
    assert "map.tif: is written without a coordinate reference system" in capsys.readouterr().err
    with rasterio.open("map.tif") as written:
        assert written.crs is None
    # a grid without one is in the system of the observations
    covered(here)
    geotiff(here / "elevation.tif", [np.zeros((5, 6))])
    assert main(["predict", "fit.json", "elevation.tif", "--output", "map.tif"]) == 0
    assert "without a coordinate" not in capsys.readouterr().err
    with rasterio.open("map.tif") as written:
        assert written.crs == UTM


def test_a_geotiff_of_scattered_locations_is_refused_before_the_work(here, capsys):
    covered(here)
    assert main(["predict", "fit.json", "wells.csv", "--output", "map.tif"]) == 2
    assert "can hold only a map" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_line_takes_names_with_their_units(here, capsys):
    Path("t.csvp").write_text("\n".join([UNITS_BEHIND, *with_dates(",")]))
    locations = "lon (degrees_east),lat (degrees_north)"
    named = ["--value", "ph (mol m-3)", "--time", "time (UTC)", "--locations", locations]
    held = [*("--family", "separable", "--fix", "smoothness=0.5", "--fix", "time_smoothness=0.5")]
    held += ["--fix", "range=100", "--fix", "time_range=3", "--no-embed", "--output", "fit.json"]
    assert main(["fit", "t.csvp", *named, *held]) == 0
    assert "columns" not in capsys.readouterr().err
    for more in ([], ["--time", "time (UTC)"], ["--time", "time"]):
        assert main(["predict", "fit.json", "t.csvp", *more, "--output", "p.csv"]) == 0
        mean = tables.number_columns(tables.read_frame("p.csv"), ["mean"])
        fit = gx.Fit.load("fit.json")
        np.testing.assert_array_equal(mean[:, 0], gx.predict(fit, tables.read_data("t.csvp")).mean)
    model = ["--variance", "1", "--range", "100", "--smoothness", "0.5"]
    assert (
        main(["simulate", "--at", "t.csvp", "--locations", locations, *model, "--output", "s.csv"])
        == 0
    )
    assert list(tables.read_frame("s.csv").columns)[:2] == ["lon", "lat"]
