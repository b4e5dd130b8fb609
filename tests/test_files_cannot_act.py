"""A file that geomxp reads cannot act: open connections, import, start processes or write files."""

import ast
import json
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import geomxp as gx

PACKAGE = Path(gx.__file__).parent

# The calls of geomxp's own that could act, by the module that has them. A new one needs a reason.

ACTS = {
    "asyncio.",
    "builtins.__import__",
    "builtins.breakpoint.",
    "builtins.compile.",
    "builtins.eval.",
    "builtins.exec.",
    "cloudpickle.",
    "code.",
    "concurrent.futures.ProcessPoolExecutor.",
    "ctypes.CDLL.",
    "ctypes.CFUNCTYPE.",
    "ctypes.PyDLL.",
    "ctypes.cdll.",
    "ctypes.pythonapi.",
    "ctypes.util.",
    "dask.distributed.",
    "dill.",
    "distributed.Client.",
    "distributed.LocalCluster.",
    "distributed.comm.",
    "fsspec.",
    "ftplib.",
    "http.",
    "imaplib.",
    "importlib.import_module.",
    "importlib.machinery.",
    "importlib.reload.",
    "importlib.util.",
    "joblib.load.",
    "marshal.",
    "multiprocessing.",
    "numpy.fromfile.",
    "numpy.load.",
    "numpy.memmap.",
    "os.exec",
    "os.fork",
    "os.popen",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile.",
    "os.system.",
    "pandas.eval.",
    "pandas.read_",
    "pickle.",
    "pty.",
    "requests.",
    "rpc.",
    "runpy.",
    "shelve.",
    "shutil.unpack_archive.",
    "smtplib.",
    "socket.",
    "socketserver.",
    "ssl.",
    "subprocess.",
    "telnetlib.",
    "urllib.",
    "webbrowser.",
    "xmlrpc.",
    "yaml.",
    # libraries that also read addresses and files which a file names
    "geopandas.read_",
    "netCDF4.Dataset.",
    "pyogrio.list_layers.",
    "pyogrio.read_",
    "rasterio.open.",
    "xarray.load_",
    "xarray.open_",
}
"""Starts of the names of functions that open connections, load code or start processes."""

FIXED = "the names are written in the module"
PATH = "the path is that of a regular file of this machine: tables.check_exists"
OWN = "the library is one of this machine, found by a name written in the module"
KNOWN = {
    ("__init__", "importlib.import_module"): FIXED,
    ("linalg.__init__", "importlib.import_module"): FIXED,
    ("data.spatial", "importlib.import_module"): "callers write the name of the library",
    ("runtime.devices", "importlib.import_module"): FIXED,
    ("runtime.devices", "ctypes.CDLL"): "the C library of this process",
    ("runtime.devices", "ctypes.PyDLL"): "the C library of this process",
    ("linalg.blas", "ctypes.CDLL"): OWN,
    ("linalg.blas", "ctypes.CFUNCTYPE"): "a function of SciPy's BLAS",
    ("linalg.blas", "ctypes.pythonapi"): "reads capsules of SciPy's BLAS",
    ("linalg.blas", "ctypes.util.find_library"): "of a name written in the module",
    ("linalg.products_gpu", "ctypes.CDLL"): OWN,
    ("linalg.batched_programs", "builtins.compile"): "of text that the module generates",
    ("linalg.batched_programs", "builtins.exec"): "of text that the module generates",
    ("linalg.batched_programs", "importlib.util.module_from_spec"): "of a module's own text",
    ("linalg.batched_programs", "importlib.util.spec_from_file_location"): "of the same module",
    ("benchmarks.bench", "importlib.util.find_spec"): "whether mpmath is installed",
    ("runtime.dask", "distributed.Client"): "the address is the option `on` of the caller; "
    "Fit.load does not follow the one in a file",
    ("runtime.dask", "distributed.comm.resolve_address"): "of the same address",
    ("runtime.dask", "importlib.import_module"): "of the modules in WORKER_PROBES, on a worker",
    ("runtime.dask", "asyncio.run_coroutine_threadsafe"): "in the loop of the caller's client",
    ("runtime.tasks", "asyncio.run_coroutine_threadsafe"): "in the loop of the caller's client",
    ("runtime.tasks", "cloudpickle.dumps"): "writes",
    ("runtime.tasks", "pickle.loads"): "what this client sends to the workers of its cluster",
    ("cli.main", "socket.socketpair"): "inside the process, for Ctrl-C",
    ("data.tables", "numpy.load"): "with allow_pickle=False; " + PATH,
    ("data.tables", "pandas.read_csv"): PATH,
    ("data.tables", "pandas.read_parquet"): PATH,
    ("data.readers", "pandas.read_csv"): PATH,
    ("data.readers", "pyogrio.list_layers"): PATH + "; the content is of the ending, or "
    "the driver is named: FILE_SIGNATURES, GEOJSON_PREFIX, GEOJSONSEQ_PREFIX",
    ("data.readers", "pyogrio.read_dataframe"): "as list_layers",
    ("data.readers", "geopandas.read_parquet"): PATH,
    ("data.readers", "rasterio.open"): PATH + "; by the driver of its content",
    ("data.tables", "xarray.load_dataset"): PATH,
    ("data.rasters", "rasterio.open"): PATH + "; by the driver of its content",
}
"""Reasons why what a file says does not reach a call, by module and name."""


def names_in(nodes):
    """Qualified names by the names of a module: of imports, and of `x = library("x")`."""
    names = {name: f"builtins.{name}" for name in vars(__import__("builtins"))}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("library"):
            for argument in node.args:
                if isinstance(argument, ast.Constant):
                    names[argument.value] = argument.value
    return names


def acting(source):
    """Qualified names in a source, used in any way, of functions that could act."""
    nodes = list(ast.walk(ast.parse(source)))
    names, found = names_in(nodes), set()
    inner = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and node not in inner:
            first, *rest = ast.unparse(node).split(".")
            found.add(".".join([names.get(first, "a variable"), *rest]))
    return {name for name in found if f"{name}.".startswith(tuple(ACTS))}


@pytest.mark.slow
def test_each_call_of_geomxp_that_could_act_is_known_with_its_reason():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found |= {(module, name) for name in acting(path.read_text())}
    assert found == set(KNOWN)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.load(file)",
        "from pickle import loads as read\nread(text)",
        "import os\nos.system('ls')",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "def f(x):\n    import urllib.request as r\n    return map(r.urlopen, x)",
        "from distributed import Client\nClient(address)",
        "exec(text)",
        "__import__(name)",
        "rasterio = library('rasterio')\nrasterio.open(path)",
    ],
)
def test_such_a_call_is_found_in_any_spelling(source):
    assert acting(source)


# While files are read Python reports what it does.

READER = """
import sys
import warnings
from pathlib import Path

import geomxp as gx
from geomxp.data import rasters, tables

folder = Path(sys.argv[1])
warnings.simplefilter("ignore")
new = [[0.4, 0.6]]


def attempt(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except gx.GeomxpError:
        return None


def read(folder):
    for path in sorted(folder.glob("*.fit.json")):
        fit = attempt(gx.Fit.load, path)
        if fit is not None:
            str(fit)
            attempt(gx.predict, fit, new, progress=False)
    for path in sorted(folder.glob("table.*")):
        attempt(tables.read_frame, path)
        attempt(gx.read_table, path, values="z")
    for path in sorted(folder.glob("raster.*")):
        attempt(rasters.read_cells, path)


def resume(folder):
    seen, model = gx.datasets.load("meuse"), gx.Matern(0.6, 200.0, 0.5, 0.1)
    held = {"fixed": ("range", "smoothness", "nugget"), "progress": False}
    attempt(gx.fit, seen, model, checkpoint=folder / "state.json", **held)


ACTS = ("socket", "subprocess", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn")
ACTS += ("pickle", "ctypes.dlopen", "import", "urllib", "ftplib", "smtplib", "webbrowser", "shutil")
ACTS += ("os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
noted = None


def note(event, arguments):
    if noted is None:
        return
    # Python opens files for writing with these flags
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
    if writes or event.startswith(ACTS):
        noted.append((event, *map(str, arguments[:2])))


sys.addaudithook(note)
# imports, and code that is compiled, are of the first time
read(folder / "sound")
resume(folder / "sound")
for kind in sys.argv[2:]:
    noted = []
    read(folder / kind)
    events, noted = noted, []
    resume(folder / kind)
    # a fit that resumes writes the caller's own checkpoint again
    others, noted = [one for one in noted if one[0] not in ("open", "os.link", "os.rename")], None
    print(kind, events + others)
noted = []
open(folder / "written", "w").close()
print("control", len(noted))
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A folder of files of each kind that geomxp reads, and one with files that say too much."""
    geopandas, rasterio = pytest.importorskip("geopandas"), pytest.importorskip("rasterio")
    folder = tmp_path_factory.mktemp("kinds")
    sound, wrong = folder / "sound", folder / "wrong"
    sound.mkdir()
    wrong.mkdir()
    x, y = np.random.default_rng(5).random((2, 25))
    frame = pd.DataFrame({"x": x, "y": y, "z": np.sin(3 * x) + y})
    frame.to_csv(sound / "table.csv", index=False)
    frame.to_csv(sound / "table.csv.gz", index=False)
    frame.to_parquet(sound / "table.parquet")
    np.savez(sound / "table.npz", **frame)
    points = geopandas.points_from_xy(x, y, crs="EPSG:28992")
    points = geopandas.GeoDataFrame(frame[["z"]], geometry=points)
    points.to_file(sound / "table.gpkg")
    points.to_file(sound / "table.shp")
    points.to_crs(4326).to_file(sound / "table.geojson")
    model, held = gx.Matern(1.0, 0.5, 0.5, 0.1), ("range", "smoothness", "nugget")
    seen = gx.read_table(sound / "table.csv", locations=("x", "y"), values="z")
    methods = {"exact": gx.Exact(gx.by_tile_norm(1e-8), tile=9), "vecchia": gx.Vecchia(5)}
    for name, method in methods.items():
        fit = gx.fit(seen, model, method, fixed=held, trend="x", progress=False)
        fit.save(sound / f"{name}.fit.json")
        fit.save(sound / f"{name}-of-table.fit.json", embed=False)
    gx.predict_raster(fit, cells=5, progress=False).save(sound / "raster.nc")
    with warnings.catch_warnings():
        # the observations have no coordinate reference system
        warnings.simplefilter("ignore", gx.GeomxpWarning)
        gx.predict_raster(fit, cells=5, progress=False).save(sound / "raster.tif")
    (sound / "table.nc").write_bytes((sound / "raster.nc").read_bytes())
    with rasterio.open(sound / "raster.tif") as grid:
        profile = grid.profile | {"driver": "AAIGrid", "count": 1, "nodata": -9999.0}
        for name in ("compress", "predictor", "interleave", "tiled", "blockxsize", "blockysize"):
            profile.pop(name, None)
        band = grid.read(1)
    with rasterio.open(sound / "raster.asc", "w", **profile) as grid:
        grid.write(band, 1)
    meuse = gx.datasets.load("meuse")
    about = {"checkpoint": sound / "state.json", "fixed": held, "progress": False}
    gx.fit(meuse, gx.Matern(0.6, 200.0, 0.5, 0.1), **about)
    return folder


def edits(address):
    """Changes of a saved fit that name an address, a device, a path or code."""
    return [
        lambda d: d["method"].update(on=address),
        lambda d: d["method"].update(on="gpu"),
        lambda d: d["method"].update(memory="30kB", device_memory="30kB", scratch="tiles"),
        lambda d: d["method"].update(precision={"rule": "os.system", "arguments": ["true"]}),
        lambda d: d["method"].update(name="geomxp.likelihood.exact.Exact"),
        lambda d: d.update(family="subprocess.Popen"),
        lambda d: d.update(transform={"name": "pickle.loads"}),
        lambda d: d["model"].update(metric=address),
        lambda d: d["trend"].update(text="__import__('socket').create_connection(('', 1))"),
        lambda d: d["table"].update(path=address),
        lambda d: d["table"].update(path="/dev/zero"),
        lambda d: d["table"].update(path=f"/vsicurl/{address}"),
        lambda d: d["table"].update(dataset="../../etc/passwd"),
        lambda d: d["table"].update(formula="exec('1')", crs=address),
        lambda d: d.get("observations", {}).update(crs=address),
    ]


@pytest.mark.slow
def test_reading_any_file_connects_to_nothing_and_starts_imports_and_writes_nothing(kinds):
    """Also where a saved fit or a checkpoint names an address, a device, a path or code."""
    for path in sorted((kinds / "sound").glob("*.json")):
        document = json.loads(path.read_text())
        for number, edit in enumerate(edits("tcp://127.0.0.1:9")):
            changed = json.loads(json.dumps(document))
            if path.name == "state.json":
                changed |= {"on": "tcp://127.0.0.1:9", "method": {"on": "gpu"}, "scratch": "/tmp"}
            else:
                edit(changed)
            name = path.name if path.name == "state.json" else f"{number}-{path.name}"
            (kinds / "wrong" / name).write_text(json.dumps(changed))
    command = [sys.executable, "-c", READER, str(kinds), "sound", "wrong"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=kinds)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["sound []", "wrong []", "control 1"]


@pytest.fixture(scope="module")
def fit():
    return gx.fit(gx.datasets.load("meuse"), fixed={"smoothness": 0.5}, progress=False)


# Libraries in C report nothing to Python: an address on this machine counts who connects.


@pytest.fixture
def address():
    """The address of a listener that only counts connections, as (URL, list of connections)."""
    connections = []
    listener = socket.create_server(("127.0.0.1", 0))

    def count():
        while True:
            try:
                other, _ = listener.accept()
            except OSError:
                return
            connections.append(1)
            other.close()

    threading.Thread(target=count, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/data", connections
    listener.close()


VECTOR = (
    '<OGRVRTDataSource><OGRVRTLayer name="x"><SrcDataSource>/vsicurl/{}.csv</SrcDataSource>'
    "</OGRVRTLayer></OGRVRTDataSource>"
)
RASTER = (
    '<VRTDataset rasterXSize="2" rasterYSize="2"><VRTRasterBand dataType="Float64" band="1">'
    "<SimpleSource><SourceFilename>/vsicurl/{}.tif</SourceFilename></SimpleSource>"
    "</VRTRasterBand></VRTDataset>"
)
"""Descriptions of data elsewhere, which GDAL follows whatever the name of the file."""


@pytest.mark.parametrize("ending", [".gpkg", ".shp", ".geojson"])
def test_a_description_of_data_elsewhere_is_no_vector_file(tmp_path, address, ending):
    pytest.importorskip("pyogrio")
    url, connections = address
    path = tmp_path / f"points{ending}"
    path.write_text(VECTOR.format(url))
    with pytest.raises(gx.InvalidInput, match="virtual files cannot be read"):
        gx.read_table(path, values="z")
    assert connections == []


@pytest.mark.parametrize("ending", [".tif", ".asc", ".vrt", ".img", ".xml"])
def test_a_description_of_data_elsewhere_is_no_raster(tmp_path, address, fit, ending):
    pytest.importorskip("rasterio")
    url, connections = address
    path = tmp_path / f"mask{ending}"
    path.write_text(RASTER.format(url))
    for about in ({"like": path}, {"mask": path, "cells": 4}):
        with pytest.raises(gx.InvalidInput, match="virtual files cannot be read"):
            gx.predict_raster(fit, progress=False, **about)
    assert connections == []


@pytest.mark.parametrize("link", ['"link"', '"LINK"', '"\\u006cink"'])
def test_a_link_to_a_reference_system_is_not_followed(tmp_path, address, link):
    pytest.importorskip("pyogrio")
    url, connections = address
    feature = '{"type": "Feature", "properties": {"z": 1}, "geometry": {"type": "Point", %s}}'
    system = f'"crs": {{"type": {link}, "properties": {{"href": "{url}", "type": "proj4"}}}}'
    features = ", ".join(feature % f'"coordinates": [{k}, {k * k}]' for k in range(4))
    path = tmp_path / "points.geojson"
    path.write_text(f'{{"type": "FeatureCollection", {system}, "features": [{features}]}}')
    with pytest.raises(gx.InvalidInput, match="reference system is a link"):
        gx.read_table(path, values="z")
    path.write_text(path.read_text().replace(system, '"name": "a \\u00e9 link"'))
    assert len(gx.read_table(path, values="z")) == 4
    assert connections == []


@pytest.mark.slow
def test_a_reference_system_in_a_saved_fit_is_not_downloaded(tmp_path, address):
    pytest.importorskip("rasterio")
    url, connections = address
    seen = gx.Observations([[0, 0], [1, 0], [0, 1], [1, 1]], [1.0, 2.0, 3.0, 2.5], crs=url)
    model = gx.Matern(1.0, 0.5, 0.5, 0.1)
    fit = gx.fit(seen, model, fixed=tuple(model.parameters()), progress=False)
    fit.save(tmp_path / "fit.json")
    raster = gx.predict_raster(gx.Fit.load(tmp_path / "fit.json"), cells=3, progress=False)
    for ending in (".tif", ".nc", ".gpkg"):
        with pytest.raises(gx.InvalidInput, match="`crs` must be a coordinate reference system"):
            raster.save(tmp_path / f"map{ending}")
    assert connections == []


@contextmanager
def refused(message):
    """Expect an `InvalidInput`."""
    with pytest.raises(gx.InvalidInput, match=message):
        yield


@pytest.mark.parametrize("start", ["", "/vsicurl/", "/vsicurl_streaming/", "/vsizip//vsicurl/"])
def test_addresses_are_no_files(tmp_path, address, fit, start):
    url, connections = address
    path = f"{start}{url}.csv"
    with refused("is an address, not a file: download it first"):
        gx.read_table(path, locations=("x", "y"), values="z")
    with refused("is an address, not a file"):
        gx.predict_raster(fit, like=path, progress=False)
    fit.save(tmp_path / "fit.json", embed=False)
    document = json.loads((tmp_path / "fit.json").read_text())
    document["table"] |= {"path": path, "dataset": None}
    (tmp_path / "fit.json").write_text(json.dumps(document))
    with refused("is an address, not a file"):
        gx.Fit.load(tmp_path / "fit.json")
    assert connections == []
