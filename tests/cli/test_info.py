"""`geomxp info`: what can be used here, what is missing, and how to add it."""

import json
import re

import geomxp as gx


def test_info_says_what_there_is(run):
    status, out, _ = run("info", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["geomxp"] == gx.__version__
    assert document["libraries"]["nlopt"] != "missing"
    assert set(document["threads"]) == {"usable cores", "OMP_NUM_THREADS", "BLAS"}
    assert "usable cores" in document["devices"]["cpu"]
    assert "cpu" in document["matrix units"]
    assert "meuse" in document["data sets"]
    text = run("info")[1]
    for group, entries in document.items():
        assert group in text
        for name in entries if isinstance(entries, dict) else ():
            assert f"  {name} " in text


def test_info_says_what_chooses_the_kernels_of_openblas(run, monkeypatch):
    chosen = "kernels chosen by OPENBLAS_CORETYPE=Haswell"
    for name, said in (("", False), ("Haswell", True)):
        monkeypatch.setenv("OPENBLAS_CORETYPE", name)
        assert (chosen in json.loads(run("info", "--json")[1])["threads"]["BLAS"]) is said


def test_info_knows_the_extras_of_the_package_and_how_to_add_them(run):
    import tomllib
    from pathlib import Path

    from geomxp.benchmarks import inventory

    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    known = json.loads(run("info", "--json")[1])["extras"]
    assert set(known) == set(extras) - {"test", "dev", "docs"}
    for name, packages in inventory.EXTRAS.items():
        for requirement in extras[name]:
            # a package's own extras apart: cupy-cuda13x[ctk]
            assert re.match(r"[\w.-]+", requirement)[0] in packages, requirement
        if "missing" in known[name]:
            assert f'pip install "geomxp[{name}]"' in known[name]
    core = {re.split("[>=]", text)[0] for text in project["project"]["dependencies"]}
    assert set(inventory.REQUIRED_LIBRARIES) == core


def test_info_counts_what_is_compiled_and_tuned(run, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("GEOMXP_CACHE_DIR", str(tmp_path / "geomxp"))
    found = json.loads(run("info", "--json")[1])["caches"]
    assert found["compiled kernels"].startswith("none yet; the first run compiles")
    assert found["tuned variants"].endswith("geomxp bench batched --tune")
    (tmp_path / "numba" / "covariance").mkdir(parents=True)
    (tmp_path / "numba" / "covariance" / "kernel.fill.nbi").write_bytes(bytes(2000))
    from geomxp.linalg import batched

    batched.remember(8, float, batched.UNTUNED)
    found = json.loads(run("info", "--json")[1])["caches"]
    assert found["compiled kernels"] == f"1, 2.0 kB, in {tmp_path / 'numba'}"
    assert found["tuned variants"] == f"1 in {tmp_path / 'geomxp' / 'batched.json'}"
