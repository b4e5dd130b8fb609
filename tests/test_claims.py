"""README, CONTRIBUTING and the studies do what they claim; README quotes the results."""

import csv
import os
import re
import statistics
import subprocess
import sys
from math import floor
from pathlib import Path
from statistics import median

import pytest
from studies import digits, power, results
from warm import python_with

from geomxp.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_python_of_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "CONVERGED" in shown
    assert "KL divergence" in shown


def test_no_text_has_an_open_placeholder():
    for path in (ROOT / "README.md", *ROOT.glob("experiments/*/README.md")):
        assert not re.search(r"@[A-Z]+@", path.read_text()), path


def test_readme_shows_two_commands_first():
    first, second = re.findall(r"```\n(.*?)\n```", README, re.S)[:2]
    assert "venv" in first
    assert "geomxp fit meuse" in first
    assert "\n" not in first
    assert "[test]" in second
    assert second.endswith("pytest -n 2 --dist loadfile")
    assert '"$bin/pytest" -n 2 --dist loadfile' in (ROOT / ".ci" / "run").read_text()
    assert "\n" not in second


def test_the_table_of_the_rebuild_is_that_of_its_results():
    text = (ROOT / "experiments" / "rebuild" / "README.md").read_text()
    for row in results("rebuild", "speed"):
        seconds, memory = (float(row[f"{what}_ratio"]) for what in ("seconds", "megabytes"))
        assert f"| {row['task']} | {seconds:.2f} | {memory:.2f} |" in text


def test_fits_in_a_bounded_memory_are_those_that_their_study_describes():
    text = (ROOT / "experiments" / "out_of_core" / "README.md").read_text()
    text = " ".join(re.search(r"- \*\*Fits\*\*.*?(?=\n- )", text, re.S)[0].split())
    ways = ("FP64", "FP64", "FP64", "by norm", "by norm")
    rows = results("out_of_core", "fit", n="8000")
    assert tuple(row["formats"] for row in rows) == ways
    inside, bounded, blind, norm, both = ({k: number(v) for k, v in row.items()} for row in rows)
    assert f"{bounded['memory_in_matrices']:.2g} of a matrix" in text
    assert f"{bounded['times_the_first']:.1f} times as long as in RAM" in text
    assert f"it uses {inside['resident'] / 1e9:.1f} GB" in text
    assert f"Without derivatives it takes {blind['times_the_first']:.1f} times" in text
    assert f"it takes {both['times_the_first']:.1f} times as long as FP64 in RAM" in text
    assert f"in RAM {norm['times_the_first']:.2f} times" in text
    columns = "largest_shift_in_standard_errors", "largest_change_of_errors"
    assert max(bounded[column] for column in columns) < 2e-10
    assert max(each[columns[0]] for each in (norm, both)) < 4e-4
    over = [row["resident"] / row["memory"] for row in (bounded, blind, both)]
    assert f"{min(over):.1f} to {max(over):.1f} times the limit" in text


def number(text):
    """Return the number that a text has, or the text itself if it has none."""
    try:
        return float(text)
    except ValueError:
        return text


def test_whole_fits_in_mixed_formats_are_as_fast_as_readme_says():
    def middle(n, method, held, column="times_as_fast"):
        about = {"n": n, "smoothness": "0.5", "held": held, "method": method}
        return median(float(row[column]) for row in results("fit_time", "times", **about))

    assert "fits are 1.3 times as fast as in FP64 there and 2.0 times at 8,000" in README
    for method in ("by norm", "divergence"):
        for held in ("True", "False"):
            assert 1.25 <= middle("2000", method, held) < 1.45
        assert 1.95 <= middle("8000", method, "True") < 2.05
        for n in ("2000", "4000", "8000"):
            assert middle(n, method, "True", "memory_share") < 0.5


def test_fits_on_matrix_units_are_as_fast_as_the_study_says():
    text = (ROOT / "experiments" / "fit_time" / "README.md").read_text()
    fast = {
        method: median(
            float(row["times_as_fast"]) for row in results("fit_time", "times_amx", method=method)
        )
        for method in ("by norm", "divergence")
    }
    said = f"{fast['by norm']:.2f} times as fast by norm and {fast['divergence']:.2f} times for"
    assert said in " ".join(text.split())


def test_fits_in_low_rank_tiles_take_what_the_study_says():
    rows = {row["n"]: row for row in results("fit_time", "low_rank", method="low rank")}
    fast = {n: float(row["times_as_fast"]) for n, row in rows.items()}
    assert (f"{fast['4000']:.1f}", f"{fast['8000']:.1f}") == ("1.2", "5.9")
    assert f"{1 / fast['2000']:.0f}" == "12"
    assert [f"{100 * float(rows[n]['memory_share']):.0f}" for n in ("4000", "8000")] == ["18", "10"]
    assert max(float(row["estimates_moved"]) for row in rows.values()) == 0.033


def by_blocks(name):
    """Return {(correlation, ε): {kind of blocks: row}} of a table of the study of trees."""
    found = {}
    for row in results("tree", name):
        found.setdefault((row["correlation"], row["accuracy"]), {})[row["blocks"]] = row
    return found


def test_the_tables_of_the_trees_are_those_of_its_results():
    text = (ROOT / "experiments" / "tree" / "README.md").read_text()
    for (correlation, accuracy), rows in by_blocks("cpu").items():
        kinds = [rows[f"tiles of {tile}"] for tile in (256, 512, 1024)]
        tree, small, middle, _ = kinds = [rows["tree"], *kinds]
        shown = (
            ", ".join(f"{float(row['bytes']):.3f}" for row in kinds),
            ", ".join(f"{int(row['products']):,}" for row in kinds),
            ", ".join(f"{float(row['cpu_seconds']):.2f}" for row in kinds),
        )
        assert f"| {correlation} | {float(accuracy):.0e} |".replace("e-0", "e-") in text
        assert f"| {' | '.join(shown)} |" in text
        seconds = [float(row["cpu_seconds"]) for row in kinds]
        assert 1.0 <= seconds[1] / seconds[0] <= 1.3
        assert 0.9 <= seconds[0] / seconds[2] <= 1.2
        assert float(middle["bytes"]) <= 1.31 * float(tree["bytes"])
        assert 0.04 <= int(tree["products"]) / int(small["products"]) <= 0.68
        errors = [float(row["error"]) for row in kinds]
        assert max(errors) <= 1.7 * min(errors)
    for (_, accuracy), rows in by_blocks("h200").items():
        before = rows["tiles of 4096, squares in FP64"]
        kinds = [rows["tree"], rows["tiles of 4096"], rows["tiles of 2048"], before]
        seconds = [float(row["predicted_seconds"]) for row in kinds]
        shown = ", ".join(f"{each:.3f}" for each in seconds)
        launches = ", ".join(f"{int(row['launches']):,}" for row in kinds[:3])
        waits = ", ".join(row["synchronizations"] for row in kinds[:3])
        assert f"| {shown} | {seconds[3] / seconds[0]:.2f} | {launches} | {waits} |" in text
        least = {"1e-05": 1.195, "1e-06": 1.145, "1e-08": 1.01}[accuracy]
        assert least <= seconds[3] / seconds[0] < 1.385


def test_two_threads_gain_what_the_changelog_says_of_low_rank_tiles():
    (row,) = (row for row in results("low_rank", "threads") if row["n"] == "65536")
    assert float(row["ratio"]) >= 1.8
    assert "two threads are 1.8 times as fast as one" in CHANGELOG


def test_the_tables_of_the_calibration_are_those_of_its_results():
    text = (ROOT / "experiments" / "calibration" / "README.md").read_text()
    rows = results("calibration", "summary")
    assert rows
    for row in rows:
        band = f"({float(row['lower']):.2f}-{float(row['upper']):.2f})"
        names = ("cell", "n", "field", *(("quantity",) if row["study"] != "sizes" else ()))
        head = f"| {' | '.join(row[name] for name in names)} |"
        [line] = [line for line in text.splitlines() if line.startswith(head)]
        assert f"{float(row['share']):.3f} {band}" in line


def test_divergences_without_a_nugget_are_those_of_the_results():
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()
    large = []
    for n, correlation in (("1024", "strong"), ("4096", "medium")):
        about = {"n": n, "smoothness": "1.5", "nugget": "0.0", "correlation": correlation}
        cells = [float(row["kl"]) for row in results("static_schedule_mxp", "kl", **about)]
        cells = " | ".join(f"{kl:.2g}" if kl < 0.1 else f"{kl:.2f}" for kl in cells)
        assert f"| {int(n):,} | {correlation} | {cells} |" in text
    for row in results("static_schedule_mxp", "kl"):
        if float(row["accuracy"]) > 1e-8 and float(row["kl"]) > 0.01:
            large.append(float(row["kl"]))
    assert (round(min(large), 2), round(max(large), 1)) == (0.1, 0.4)
    for text in (README, (ROOT / "docs" / "pages" / "how-to" / "accuracy.md").read_text()):
        assert "divergences of 0.1 to 0.4" in text


def test_largest_divergences_are_those_of_the_results():
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()
    rows = [
        row
        for table in ("kl", "kl_8192", "kl_16384", "kl_16384_more", "kl_32768")
        for row in results("static_schedule_mxp", table, smoothness="0.5", nugget="0.0")
    ]
    largest = {}
    for row in rows:
        key = row["n"], row["correlation"]
        largest[key] = max(largest.get(key, 0.0), float(row["kl"]))
    text = " ".join(text.split())
    four = max(largest["4096", name] for name in ("weak", "medium", "strong"))
    assert f"the divergence at n = 4,096 is at most {digits(four, 2)} nats" in text
    for n in ("8192", "16384", "32768"):
        three = (power(largest[n, name]) for name in ("weak", "medium", "strong"))
        assert f"| {int(n):,} | {' | '.join(three)} |" in text
    rows = results("static_schedule_mxp", "kl") + results("static_schedule_mxp", "kl_16384")
    most = max(float(row["backward_error"]) / float(row["accuracy"]) for row in rows)
    assert f"The measured backward error is at most {most:.2f} ε." in text
    ratio = {
        (row["n"], row["accuracy"]): float(row["backward_error_unscaled"])
        / float(row["backward_error"])
        for row in rows
        if row["backward_error_unscaled"] and row["smoothness"] == "0.5" and row["nugget"] == "0.0"
    }
    first = f"{ratio['4096', '1e-05']:.0f}"
    assert first == f"{ratio['16384', '1e-05']:.0f}"
    assert f"has a backward error {first} times as large" in text
    second, third = ratio["16384", "1e-06"], ratio["16384", "1e-07"]
    assert f"{second:.0f} times at ε = 1e-6 and {third:.1f} times at ε = 1e-7" in text


def test_bytes_and_errors_of_one_to_four_formats_are_those_of_the_results():
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()
    rows = results("static_schedule_mxp", "maps")
    assert [len(row["choice"].split()) for row in rows] == [1, 2, 3, 4]
    *some, last = (f"{100 * float(row['bytes_over_fp64']):.0f}" for row in rows)
    assert f"They take {', '.join(some)} and {last} % of FP64's" in text
    *some, last = (f"{float(row['backward_error']):.1e}".replace("e-0", "e-") for row in rows)
    assert f"backward errors of {', '.join(some)} and {last}." in text


def test_estimates_in_mixed_formats_are_those_of_the_results():
    text = " ".join((ROOT / "experiments/static_schedule_mxp/README.md").read_text().split())
    small, large = (differences_of_estimates(*case) for case in ((3600, 50), (6400, 10)))
    estimates, likelihoods = zip(small, large, strict=True)
    one, other = (f"{100 * each:.2f} %" for each in estimates)
    assert f"{one} (3,600 locations) and {other} (6,400) of the standard deviation" in text
    assert "log-likelihoods by at most {:.3f} and {:.3f}.".format(*likelihoods) in text


def differences_of_estimates(n, fields):
    """Return the largest differences from FP64 of estimates, in deviations, and likelihoods."""
    rows = results("static_schedule_mxp", f"estimates_{n}")
    assert len(rows) == 15 * fields
    assert {row["outcome"] for row in rows} == {"CONVERGED"}
    largest = {}
    for correlation in ("weak", "medium", "strong"):
        some = [row for row in rows if row["correlation"] == correlation]
        exact = {row["replicate"]: row for row in some if row["accuracy"] == "fp64"}
        assert len(exact) == fields
        for name in ("variance", "range", "smoothness", "log_likelihood"):
            values = {replicate: float(row[name]) for replicate, row in exact.items()}
            change = max(abs(float(r[name]) - values[r["replicate"]]) for r in some)
            unit = 1.0 if name == "log_likelihood" else statistics.stdev(values.values())
            largest[name] = max(largest.get(name, 0.0), change / unit)
    likelihoods = largest.pop("log_likelihood")
    return max(largest.values()), likelihoods


@pytest.mark.parametrize(
    ("name", "baseline"), [("plain", "OpenBLAS"), ("plain_two", "the recursive factorization")]
)
def test_speeds_without_units_are_those_of_the_results(name, baseline):
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()
    weak, medium = results("static_schedule_mxp", name, accuracy="1e-05")
    speeds = [f"{float(row['speedup']):.2f}" for row in (weak, medium)]
    of_fp32 = [
        f"{100 * float(row['seconds_fp32_tiles']) / float(row['seconds']):.0f}"
        for row in (weak, medium)
    ]
    text = " ".join(text.split())
    assert f"{speeds[0]} times (weak) and {speeds[1]} times (medium) that of {baseline}" in text
    assert f"{of_fp32[0]} and {of_fp32[1]} % of that of FP32 tiles" in text


def test_speeds_of_fp8_tiles_in_avx512_are_those_of_the_results():
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()
    rows = results("static_schedule_mxp", "avx512", n="16384", threads="2")
    for row in rows:
        names = "seconds", "seconds_fp32_tiles", "seconds_dpotrf_halves"
        cells = [digits(float(row[name]), 3) for name in names]
        of_fp32 = float(row["seconds_fp32_tiles"]) / float(row["seconds"])
        cells += [f"{float(row['speedup']):.2f}", f"{100 * of_fp32:.0f} %"]
        cells.append(f"{100 * float(row['bytes_over_fp64']):.0f} %")
        case = f"{row['correlation']}, {power(float(row['accuracy']), 1)}"
        assert f"| {case} | {' | '.join(cells)} |" in text
    assert len(rows) == 6


def test_rates_of_formats_by_norm_are_those_of_the_results():
    text = (ROOT / "experiments" / "static_schedule_mxp" / "README.md").read_text()

    def line(row, *names, speedup):
        seconds = (digits(float(row[name]), 3) for name in ("seconds", *names))
        size = f"{100 * float(row['bytes_over_fp64']):.0f} %"
        return f"| {row['correlation']} | {' | '.join(seconds)} | {speedup} | {size} |"

    rows = results("static_schedule_mxp", "rate", n="16384", accuracy="1e-05")
    for row in rows:
        speedup = f"{float(row['speedup']):.2f}"
        names = "seconds_fp32_tiles", "seconds_dpotrf_halves", "seconds_dpotrf_mkl"
        assert line(row, *names, speedup=speedup) in text
    over = [float(row["seconds"]) / float(row["seconds_fp32_tiles"]) for row in rows]
    said = f"takes {min(over):.2f} to {max(over):.2f} times as long as FP32 tiles at n = 16,384"
    assert said in " ".join(text.split())
    least = [
        min(results("static_schedule_mxp", "rate", n=n), key=lambda row: float(row["speedup"]))
        for n in ("4096", "8192", "16384")
    ]
    assert {(row["correlation"], row["accuracy"]) for row in least} == {("strong", "1e-08")}
    four, eight, sixteen = (f"{float(row['speedup']):.2f}" for row in least)
    sizes = [float(row["bytes_over_fp64"]) for row in least]
    text = " ".join(text.split())
    assert f"are {four} at n = 4,096, {eight} at n = 8,192 and {sixteen} at n = 16,384, all" in text
    assert f"where {100 * min(sizes):.0f} to {100 * max(sizes):.0f} % of the bytes remain" in text


def refined(row):
    """Return what the README of the study of refinement shows for a row."""
    words = {"STALLED": "stalls", "NOT_POSITIVE_DEFINITE": "no factor"}
    return words.get(row["outcome"], row["iterations"])


def test_speeds_of_refinement_with_bf16_units_are_those_of_the_results():
    text = (ROOT / "experiments" / "refinement" / "README.md").read_text()
    said = {"STALLED": "stalls", "NOT_POSITIVE_DEFINITE": "no factor"}
    text, slowest = text.partition("factor_amx.csv and speed_amx.csv are")[2], []
    for figure in ("4a", "4b", "5a", "5b", "6a", "6b", "7"):
        rows = results("refinement", "speed_amx", n="8192", figure=figure)
        cells = []
        for factor, method in (("bf16", "gmres"), ("bf16", "ir"), ("fp32", "ir")):
            row = next(r for r in rows if (r["factor"], r["method"]) == (factor, method))
            speed = row["over_baseline"] and f"{float(row['over_baseline']):.2f}"
            cells.append(said.get(row["outcome"]) or f"{speed} ({row['iterations']})")
        assert f"| {figure} | {rows[0]['spectrum']} | {' | '.join(cells)} |" in text
        slowest.append(min(float(r["seconds"]) for r in rows if r["factor"] == "fp64"))
    assert f"{min(slowest):.2f} to {max(slowest):.2f} s" in text
    rows = {(r["potrf"], r["factor"]): r for r in results("refinement", "factor_amx", n="8192")}
    coarse, single = rows["tiles", "bf16"], rows["tiles", "fp32"]
    assert f"factored {float(coarse['over_baseline']):.2f} times as fast as MKL's" in text
    share = 100 * float(coarse["share_of_ceiling"])
    assert f"({float(coarse['gflops']):.0f} GFLOP/s, {share:.0f} % of the rate" in text
    assert f"FP32 tiles {float(single['over_baseline']):.2f} times." in text


def test_the_tables_of_refinement_are_those_of_its_results():
    text = (ROOT / "experiments" / "refinement" / "README.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    checked = 0
    for spectrum, condition, infinity, setting, *shown in (
        line for line in lines if len(line) == 8
    ):
        if "c = " not in setting:
            continue
        about = {"spectrum": spectrum, "condition": str(float(condition))}
        about["scaling"] = str("not scaled" not in setting)
        about["shift"] = str(float(setting.split("c = ")[1]))
        rows = {(r["factor"], r["method"]): r for r in results("refinement", "iterations", **about)}
        ours = [("fp16", "gmres"), ("fp32-fp16", "gmres"), ("fp16", "ir")]
        assert [refined(rows[key]) for key in ours] == [shown[0], shown[1], shown[3]], about
        expected = float(rows["fp16", "ir"]["infinity_condition"])
        assert float(infinity) == pytest.approx(expected, rel=0.05)
        checked += 1
    assert checked == 15
    for n in ("2048", "4096"):
        for tile in ("128", "256", "512"):
            rows = results("refinement", "tiles", n=n, tile=tile, factor="fp16")
            cells = " | ".join(refined(row) for row in rows)
            assert f"| {int(n):,} | {tile} | {cells} |" in text
    for row in results("refinement", "definiteness", n="2048"):
        name = "H" if row["scaling"] == "True" else "A / ‖A‖₂"
        [line] = [line for line in lines if line[0] == row["spectrum"] and line[2] == name]
        columns = ("smallest_eigenvalue", "error_fp16", "column_error")
        for cell, column in zip(line[3:6], columns, strict=True):
            assert cell == (f"{float(row[column]):.2g}" if row[column] else "–")
        least = row["factors"].split()[:1]
        words = {(): "none up to 10", ("0",): "all"}
        assert line[6] == words.get(tuple(least), f"{''.join(least)} and more")


def test_speeds_of_refinement_are_those_of_the_results():
    text = (ROOT / "experiments" / "refinement" / "README.md").read_text()
    text = text.partition("factor_amx.csv and speed_amx.csv are")[0]
    ways = [("fp16", "gmres"), ("fp16", "ir"), ("fp32-fp16", "gmres")]
    ways += [("bf16", "gmres"), ("bf16", "ir"), ("fp32", "ir")]
    words, fast, bf16 = {"EVALUATION_LIMIT": "60 iterations"}, [], []
    words |= {"STALLED": "stalls", "NOT_POSITIVE_DEFINITE": "no factor"}
    for figure in ("4a", "4b", "5a", "5b", "6a", "6b", "7"):
        rows = results("refinement", "speed", n="8192", figure=figure)
        base = min(float(row["seconds"]) for row in rows if row["factor"] == "fp64")
        cells = []
        for factor, method in ways:
            row = next(r for r in rows if (r["factor"], r["method"]) == (factor, method))
            speed = row["seconds"] and f"{float(row['over_baseline']):.2f} ({row['iterations']})"
            cells.append(speed or words[row["outcome"]])
            if speed and (factor, method) == ("bf16", "gmres"):
                bf16.append(float(row["over_baseline"]))
                others = [float(r["over_baseline"] or 0) for r in rows if r["factor"] != "bf16"]
                assert bf16[-1] > max(others), "BF16 is the fastest"
        [line] = [line for line in text.splitlines() if line.startswith(f"| {figure} | ")]
        assert line.endswith(f"| {' | '.join(cells)} | {base:.2f} |")
        assert float(line.split(" | ")[2]) == float(rows[0]["condition"])
        # FP64 was slow in the run of 6a
        if int(row["iterations"]) <= 4 and figure != "6a":
            fast.append(float(row["over_baseline"]))
    whole = " ".join(text.split())
    assert f"have {min(fast):.2f} to {max(fast):.2f} times the speed of FP64" in whole
    assert f"GMRES has {min(bf16):.2f} to {max(bf16):.2f} times the speed of FP64" in whole
    rows = results("refinement", "speed", n="2048")
    assert max(float(r["over_baseline"] or 0) for r in rows if r["factor"] != "fp64") < 1
    (fine,) = results("refinement", "speed", n="8192", figure="5b", factor="fp32", method="ir")
    assert fine["formats"] == "fp64:135 fp32:1"
    assert "although 135 of its 136 tiles became FP64" in whole
    assert f"needs {fine['iterations']} iterations" in " ".join(text.split())
    for row in results("refinement", "factor", n="8192"):
        numbers = f"{float(row['seconds']):.2f} | {float(row['gflops']):.0f}"
        share = f"{100 * float(row['share_of_ceiling']):.0f} % | {float(row['over_baseline']):.2f}"
        assert f"| {row['potrf']}, {row['factor']} | {numbers} | {share} |" in text
    large = {(r["potrf"], r["factor"]): r for r in results("refinement", "factor", n="16384")}
    best = large["recursion", "fp64"]
    assert float(best["over_baseline"]) == 1
    share = f"{float(best['seconds']):.2f} s, {100 * float(best['share_of_ceiling']):.0f} %"
    assert f"is the recursion: {share} of the ceiling" in text
    coarse = [("tiles", "bf16"), ("tiles", "fp16"), ("tiles", "fp32"), ("recursion", "fp32")]
    found = [f"{float(large[way]['over_baseline']):.2f}" for way in coarse]
    assert (
        "BF16 tiles are {} times as fast, FP16 tiles {} times, FP32 tiles {} times, and the "
        "recursion in FP32 {} times".format(*found)
        in whole
    )


def test_iterations_with_bf16_are_those_of_the_results():
    text = " ".join((ROOT / "experiments" / "refinement" / "README.md").read_text().split())

    def gmres(spectrum, condition, shift, scaling="True"):
        about = {"spectrum": spectrum, "condition": condition, "shift": shift, "scaling": scaling}
        (row,) = results("refinement", "iterations", factor="bf16", method="gmres", **about)
        return refined(row)

    arithmetic = [gmres("arithmetic", each, "0.0") for each in ("100.0", "10000.0", "100000000.0")]
    assert "converges in {}, {} and {} iterations for the arithmetic".format(*arithmetic) in text
    easy, hard = (
        gmres("clustered", "100.0", "0.0"),
        gmres("clustered", "100000000.0", "0.4", "False"),
    )
    assert f"in {easy} for the clustered one with κ₂ = 100 (c = 0), in {hard} with 1e8" in text
    custom = gmres("custom-clustered", "10000.0", "10.0")
    assert f"and in {custom} for the custom-clustered one with κ₂ = 1e4" in text
    for spectrum in ("logarithmic", "geometric"):
        assert {gmres(spectrum, "170000.0", shift) for shift in ("0.0", "0.4")} == {"no factor"}
        unscaled = gmres(spectrum, "170000.0", "0.4", "False")
        assert f"GMRES takes {unscaled} iterations" in text


def test_digits_and_errors_of_layers_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    for layers in ("fp64", "fp32 fp32 fp32 fp64", "fp32", "fp16 " * 5 + "fp32", "pure fp16"):
        cells = []
        for n, stored in (
            ("1024", "dense"),
            ("4096", "dense"),
            ("16384", "dense"),
            ("16384", "tree"),
        ):
            rows = results("nested_cholesky", "digits", layers=layers, n=n, stored=stored)
            cells += [f"{float(r['digits']):.1f}".replace("inf", "equal") for r in rows] or [""]
        assert " ".join(f"| {layers} | {' | '.join(cells)} |".split()) in text
    errors = ("factor_error", "backward_error", "kl")
    for matrix in ("uniform + n I", "Matérn weak", "Matérn medium", "Matérn strong"):
        (layered,), (pure,) = (
            results("nested_cholesky", "accuracy", matrix=matrix, n="4096", layers=layers)
            for layers in ("fp16 " * 5 + "fp32", "pure fp16")
        )
        ratios = [float(pure[error]) / float(layered[error]) for error in errors]
        cells = [
            f"{ratio:.1e}".replace("e+0", "e")
            if ratio > 1e5
            else f"{ratio:,.0f}"
            if ratio > 9.95
            else f"{ratio:.1f}"
            for ratio in ratios
        ]
        name = matrix.replace(" I", "·I").replace("Matérn ", "Matérn, ")
        assert f"| {name} | {' | '.join(cells)} |" in text


def test_divergences_of_layers_and_trees_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    text, deepest = " ".join(text.split()), "fp16 " * 5 + "fp32"

    def errors(layers, *names, matrices=("weak", "medium", "strong")):
        for matrix in matrices:
            about = {"n": "4096", "layers": layers, "matrix": f"Matérn {matrix}"}
            (row,) = results("nested_cholesky", "accuracy", **about)
            yield from (float(row[name]) for name in names)

    def said(layers):
        shown = [power(kl) if kl < 0.01 else f"{kl:.2g}" for kl in errors(layers, "kl")]
        return f"{', '.join(shown[:2])} and {shown[2]}"

    assert f"it is {said(deepest)} with five FP16 layers" in text
    assert f"{said('bf16 ' * 5 + 'fp32')} with five BF16 layers" in text
    assert f"{said(f'tree: {deepest}')} in the tree with five FP16 layers" in text
    assert f"and {said('pure fp16')} in pure FP16" in text
    for matrix, claim in (("weak", "{} for weak"), ("strong", "pure FP16 ({})")):
        all_errors = ("factor_error", "backward_error", "kl")
        pure, tree = (
            list(errors(layers, *all_errors, matrices=[matrix]))
            for layers in ("pure fp16", f"tree: {deepest}")
        )
        ratios = [f"{a / b:.2g}" for a, b in zip(pure, tree, strict=True)]
        assert claim.format(f"{', '.join(ratios[:2])} and {ratios[2]}") in text


def test_speeds_of_layers_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    speed, orders = results("nested_cholesky", "speed", baseline=""), ("2048", "4096", "8192")
    found = {(r["what"], r["n"], r["cores"], r["layers"]): r for r in speed}
    cases = [(what, cores) for what in ("potrf", "syrk", "trsm") for cores in "12"]
    listed = dict.fromkeys(row["layers"] for row in speed)
    for layers in listed:
        cells = [
            f"{float(found[what, '8192', cores, layers]['speedup']):.2f}" for what, cores in cases
        ]
        share = 100 * float(found["potrf", "8192", "1", layers]["share_of_product"])
        assert f"| {layers} | {' | '.join(cells)} | {share:.0f} % |" in text

    def of_fp32(n, what, cores, layers):
        seconds = (float(found[what, n, cores, one]["seconds"]) for one in ("fp32", layers))
        return 100 * next(seconds) / next(seconds)

    above = [layers for layers in listed if layers.endswith(" fp32")]
    bands = []
    for some in (("8192",), ("2048", "4096")):
        ratios = [of_fp32(n, *case, layers) for n in some for case in cases for layers in above]
        bands.append(f"{min(ratios):.0f} to {max(ratios):.0f} %")
    assert f"have {bands[0]} of FP32's speed at n = 8,192, {bands[1]} for n = 2,048" in text
    shares = [
        f"{100 * float(found['potrf', n, '1', 'fp32']['share_of_product']):.0f} %"
        for n in ("8192", "1024")
    ]
    assert (
        f"reaches {shares[0]} of the rate of a large FP32 product at n = 8,192, {shares[1]}" in text
    )
    best = max(float(found[what, "8192", c, "fp32 " * 3 + "fp64"]["speedup"]) for what, c in cases)
    assert f"FP32 layers above FP64 are up to {best:.2f} times" in " ".join(text.split())
    least = [
        min(float(found[what, n, c, "fp64"]["speedup"]) for n in orders for c in "12")
        for what in ("potrf", "syrk", "trsm")
    ]
    least = [floor(100 * speed) / 100 for speed in least]
    assert f"at least {least[0]:.2f} of the library's speed in POTRF" in text
    assert f"{least[1]:.2f} in SYRK and {least[2]:.2f} in TRSM" in text
    one = float(found["potrf", "1024", "2", "fp64"]["speedup"])
    assert f"at n = 1,024 POTRF on two cores has {one:.2f}." in text
    depths = [f"{float(row['speedup']):.2f}" for row in results("nested_cholesky", "depth")]
    text = " ".join(text.split())
    assert f"{', '.join(depths)} times the library's speed" in text
    about = {"what": "potrf", "format": "fp64", "n": "8192", "cores": "1"}
    *reached, _ = (
        row["speed_over_one_leaf"] for row in results("nested_cholesky", "leaves", **about)
    )
    *first, last = (f"{float(speed):.2f}" for speed in reached)
    assert f"rows reach {', '.join(first)} and {last} of the speed of one call" in text


def test_speeds_of_layers_on_the_older_processor_are_those_of_the_results():
    path = ROOT / "experiments" / "nested_cholesky"
    text = (path / "README.md").read_text()
    listed = results("nested_cholesky", "speed_zen4", baseline="", what="potrf")
    found = {(row["n"], row["cores"], row["layers"]): row for row in listed}
    ratios = {
        (n, cores, layers): float(found[n, cores, "fp32"]["seconds"]) / float(row["seconds"])
        for (n, cores, layers), row in found.items()
    }
    for layers in dict.fromkeys(row["layers"] for row in listed if row["layers"] != "fp64"):
        rows = [found["8192", cores, layers] for cores in "12"]
        cells = [f"{float(row['speedup']):.2f}" for row in rows]
        if layers == "fp32":
            cells += ["1", "1"]
        else:
            cells += [f"{ratios['8192', cores, layers]:.2f}" for cores in "12"]
        assert f"| {layers} | {' | '.join(cells)} |" in text

    def band(cores, order):
        of_fp32 = [
            100 * ratio
            for (n, c, layers), ratio in ratios.items()
            if c == cores and n == order and layers[:4] == "fp16" and layers.endswith(" fp32")
        ]
        ends = dict.fromkeys(f"{share:.0f}" for share in (min(of_fp32), max(of_fp32)))
        return f"{' to '.join(ends)} %"

    text = " ".join(text.split())
    one, two = ([band(cores, n) for n in ("2048", "4096", "8192")] for cores in "12")
    assert f"and 8,192: {one[0]}, {one[1]} and {one[2]} on one core" in text
    assert f"{two[0]}, {two[1]} and {two[2]} on two." in text
    bf16, name = "bf16 bf16 bf16 fp32", "speed_zen4"
    for n in ("1024", "2048", "4096", "8192"):
        cells = []
        for what in ("potrf", "syrk", "trsm"):
            both = []
            for cores in "12":
                about = {"what": what, "n": n, "cores": cores, "baseline": ""}
                plain, layered = (
                    float(results("nested_cholesky", name, **about, layers=layers)[0]["seconds"])
                    for layers in ("fp32", bf16)
                )
                both.append(f"{plain / layered:.2f}")
            cells.append(" and ".join(both))
        assert f"| {int(n):,} | {' | '.join(cells)} |" in text
    took = 1000 * float(found["2048", "2", bf16]["seconds"])
    assert f"POTRF with three BF16 layers takes {took:.0f} ms on two cores" in text
    assert ratios["2048", "2", bf16] < 1
    took = 1000 * float(found["1024", "2", "fp32"]["seconds"])
    assert f"POTRF in FP32 takes {took:.1f} ms at n = 1,024" in text
    header = (path / "results" / "speed_zen4.csv").read_text().partition("\nwhat,")[0]
    bf16, fp32 = (
        re.findall(rf"{name} ([\d.]+) GFLOP/s on \d core", header)
        for name in ("bf16, AVX-512", "fp32, scipy")
    )
    assert f"reach {bf16[0]} GFLOP/s on one core and {bf16[1]} on two" in text
    assert f"in FP32 {fp32[0]} and {fp32[1]}." in text
    assert float(bf16[0]) > 1.8 * float(fp32[0])


def test_seconds_and_bytes_of_trees_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    rows = results("nested_cholesky", "tree", n="8192", stored="tree")
    for row in rows:
        [dense] = results("nested_cholesky", "tree", n="8192", stored="dense", layers=row["layers"])
        seconds = [float(cell) for cell in (dense["seconds"], row["seconds"], row["generated"])]
        cells = [f"{one:.2f}" for one in seconds]
        cells.append(f"{100 * float(row['bytes_over_fp64']):.0f} %")
        assert f"| {row['layers']} | {' | '.join(cells)} |" in text
    assert len(rows) == 6


@pytest.mark.slow
def test_the_smallest_ratios_of_recursions_are_those_of_the_results():
    folder = ROOT / "experiments" / "trsm_trmm"
    command = [sys.executable, folder / "plot.py", "--table"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = (folder / "README.md").read_text()
    assert table in text
    ratios = [float(row["ratio"]) for row in results("trsm_trmm", "ratios") if int(row["n"]) >= 512]
    least = floor(1000 * min(ratios)) / 1000
    assert f"The ratio is at least {least:.3f} for n = 512 to 4,096" in text

    def small(form, *cores):
        rows = results("trsm_trmm", "ratios", n="256", format=form)
        least = min(float(row["ratio"]) for row in rows if row["cores"] in cores)
        return f"{floor(1000 * least) / 1000:.3f}"

    text = " ".join(text.split())
    assert f"At n = 256 it is at least {small('fp64', '1', '2')} in FP64" in text
    assert f"in FP32 {small('fp32', '1')} on one core and {small('fp32', '2')} on two" in text


def test_speeds_with_bf16_in_avx512_are_those_of_the_results():
    path = ROOT / "experiments" / "nested_cholesky"
    text, rows = (path / "README.md").read_text(), results("nested_cholesky", "depth_avx512")
    assert {(row["n"], row["format"]) for row in rows} == {("8192", "bf16")}
    for title, suffix in (("from FP64", ""), ("from FP32", "_fp32_input")):
        gains = [f"{float(row['speedup' + suffix]):.2f}" for row in rows]
        assert f"| {title} | {' | '.join(gains)} |" in text
    header = (path / "results" / "depth_avx512.csv").read_text()
    unit = float(re.search(r"bf16, AVX-512 (\S+) GFLOP/s", header)[1])
    seconds, text = float(rows[3]["seconds"]), " ".join(text.split())
    rate = 8192**3 / 3e9 / seconds
    assert f"FP64 takes {seconds:.2f} s, or {rate:.0f} GFLOP/s: {100 * rate / unit:.0f} %" in text
    assert f"of BF16 products in that run ({unit:.0f} GFLOP/s)" in text


def test_speeds_with_bf16_units_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    text = text.partition("## Speed with AMX")[2].partition("## Accuracy")[0]
    cells = [(what, cores) for what in ("potrf", "syrk", "trsm") for cores in "12"]
    found = {
        (row["n"], row["layers"], row["what"], row["cores"]): row
        for row in results("nested_cholesky", "speed_amx")
    }
    for layers in dict.fromkeys(key[1] for key in found):
        if layers not in ("mkl", "scipy"):
            gains = [f"{float(found['8192', layers, *cell]['speedup']):.2f}" for cell in cells]
            share = 100 * float(found["8192", layers, "potrf", "1"]["share_of_product"])
            assert f"| {layers} | {' | '.join(gains)} | {share:.0f} % |" in text
    for n in ("1024", "2048", "4096", "8192"):
        single, coarse = (
            [float(found[n, layers, *cell]["seconds"]) for cell in cells]
            for layers in ("fp32", "bf16 bf16 bf16 fp32")
        )
        gains = [f"{a / b:.2f}" for a, b in zip(single, coarse, strict=True)]
        pairs = (f"{one} and {two}" for one, two in zip(gains[::2], gains[1::2], strict=True))
        assert f"| {int(n):,} | {' | '.join(pairs)} |" in text
    rows = results("nested_cholesky", "depth_amx")
    assert {(row["n"], row["format"]) for row in rows} == {("8192", "bf16")}
    for title, suffix in (("FP64 matrix", ""), ("FP32 matrix", "_fp32_input")):
        gains = [f"{float(row['speedup' + suffix]):.2f}" for row in rows]
        assert f"| {title} | {' | '.join(gains)} |" in text
    path = ROOT / "experiments" / "nested_cholesky" / "results" / "depth_amx.csv"
    ceilings = path.read_text()
    unit = float(re.search(r"bf16, matrix units (\S+) GFLOP/s", ceilings)[1])
    copy = float(re.search(r"copy (\S+) GB/s", ceilings)[1])
    seconds, operations = float(rows[3]["seconds"]), 8192**3 / 3e9
    # an entry of the triangle is converted from FP64 to FP32 and back, and from FP32 to BF16
    allowed = operations / unit + (2 * (8 + 4) + 4 + 2) * 8192**2 / 2e9 / copy
    assert f"takes {seconds:.3f} s, or {operations / seconds:.0f} GFLOP/s:" in text
    assert f"{100 * operations / seconds / unit:.0f} % of the rate of BF16 products" in text
    assert f"in the same run ({unit:.0f} GFLOP/s)" in text
    assert f"FP32 to BF16 at {copy} GB/s, it would" in text
    assert f"take {allowed:.2f} s, {100 * allowed / seconds:.0f} % of the measured time" in text


def test_divergences_of_layers_and_tiles_are_those_of_the_results():
    text = (ROOT / "experiments" / "nested_cholesky" / "README.md").read_text()
    rows, correlations = results("nested_cholesky", "divergence"), ("weak", "medium", "strong")
    large = [("16384", c, smoothness) for smoothness in ("0.5", "1.5") for c in correlations]
    found = {}
    for row in rows:
        model = row["n"], row["correlation"], row["smoothness"]
        found.setdefault(row["method"], {})[model] = row

    def between(numbers):
        low, high = (f"{end:.2f}" for end in (min(numbers), max(numbers)))
        return low if low == high else f"{low} to {high}"

    def shown(row):
        kl = float(row["kl"])
        if float(row["bytes_over_fp64"]) >= 1 and kl < 1e-10:
            return "FP64"
        number = f"{kl:.2f}" if kl < 1 else f"{kl:.1f}" if kl < 9.95 else f"{kl:.0f}"
        return (power(kl) if kl < 0.1 else number) + ("*" if int(row["promotions"]) else "")

    def over(row):
        return float(row["seconds"]) / float(row["seconds_fp64"])

    for method, some in found.items():
        those = [some[model] for model in large]
        sizes = between([float(row["bytes_over_fp64"]) for row in those])
        times = between([over(row) for row in those])
        assert f"| {method} | {sizes} | {times} | {' | '.join(map(shown, those))} |" in text
    dense = [float(row["seconds_fp64"]) for row in rows if row["n"] == "16384"]
    assert f"log-likelihood ({min(dense):.1f} to {max(dense):.1f} s)" in text
    kept = []
    for target in ("0.1", "0.001", "1e-05"):
        kept.append([float(row["kl"]) for row in found[f"tiles: for_divergence {target}"].values()])
        assert max(kept[-1]) <= float(target)
    assert f"in all {sum(map(len, kept))} cases of the file" in text
    assert f"a target of 0.1 the divergence is at most {power(max(kept[0]))}" in text
    coarse = [
        over(row)
        for row in rows
        if row["n"] == "16384" and float(row["bytes_over_fp64"]) < 0.56 and row["promotions"] == "0"
    ]
    assert f"bytes take {between(coarse)} of FP64's time" in text
    slow, slowest = (
        max(over(row) for model, row in found[f"tiles: {rule}"].items() if model in large)
        for rule in ("for_divergence 1e-05", "by_tile_norm 1e-08")
    )
    assert f"`for_divergence(1e-5)` takes up to {slow:.2f} and" in text
    assert f"`by_tile_norm(1e-8)` up to {slowest:.2f}." in text


VERDICTS = ("same", "better", "weaker", "missing", "not applicable", "needs a GPU's clock")


def test_files_that_the_audit_names_exist():
    text = (ROOT / "experiments" / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    studies = {cells[0]: cells[2] for cells in rows if len(cells) == 3 and cells[0] != "folder"}
    assert set(studies) == {f"`{path.parent.name}`" for path in ROOT.glob("experiments/*/run.py")}
    assert all((ROOT / command.strip("`").split()[1]).is_file() for command in studies.values())
    audit = [cells for cells in rows if len(cells) != 3 and cells[0] != "paper"]
    assert len(audit) > 100
    folders = (("geomxp", "experiments"), ("tests",), ("experiments",), ("experiments",))
    for what, *cells, verdict in audit:
        assert verdict.split(": ")[0] in VERDICTS, verdict
        assert "`" not in what + verdict
        for places, cell in zip(folders, cells, strict=True):
            spans = re.findall(r"`([^`]+)`", cell)
            assert spans or cell == "–", (what, cell)
            for span in spans:
                path, _, names = span.partition(": ")
                files = [ROOT / place / path for place in places if (ROOT / place / path).is_file()]
                assert files, f"{what}: {path} is not there"
                for name in filter(None, names.split(", ")):
                    assert re.search(rf"\b{name}\b", files[0].read_text()), f"{what}: {span}"


def test_simulated_rates_beside_those_of_paper_001_are_those_of_the_results():
    text = " ".join((ROOT / "experiments" / "out_of_core" / "README.md").read_text().split())
    cells = []
    for machine in ("A100-PCIe", "H100-PCIe", "GH200"):
        (row,) = results("out_of_core", "paper", machine=machine, n="160000", policy="v3")
        rate, published = float(row["teraflops"]), float(row["paper_teraflops"])
        cells.append(f"{machine.split('-')[0]} {rate:.1f} and {published:.1f}")
    assert ", ".join(cells) in text
    for policy in ("v1", "v3"):
        about = {"devices": "4", "policy": policy}
        spread, one = (
            float(results("out_of_core", "numa", placed=placed, **about)[0]["teraflops"])
            for placed in ("cyclic", "one")
        )
        assert f"{spread:.0f} TFLOP/s" in text
        assert policy == "v3" or f"and {one:.0f} with all of it beside the first GPU" in text


def test_volumes_and_seconds_of_policies_are_those_of_the_results():
    text = (ROOT / "experiments" / "out_of_core" / "README.md").read_text()
    for row in results("out_of_core", "volume", n="8192"):
        moved = " | ".join(f"{int(row[name]) / 1e9:.2f}" for name in ("bytes_in", "bytes_out"))
        times = f"{float(row['seconds']):.1f} | {100 * float(row['bound_over_seconds']):.0f} %"
        ratios = (float(row[name]) for name in ("seconds_over_v3", "simulated_over_measured"))
        ratios = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        assert f"| {row['policy']} | {moved} | {times} | {ratios} |" in text
    rows = results("out_of_core", "volume")
    assert all(row["bytes_in"] == row["simulated_in"] for row in rows)
    band = [f"{end([float(r['simulated_over_measured']) for r in rows]):.2f}" for end in (min, max)]
    assert f"simulated times are {band[0]} to {band[1]} of the measured ones" in text
    text, columns = " ".join(text.split()), ("v3_in", "async_in")
    about = {"n": "8192", "accuracy": "1e-05"}
    cells = {
        name: [
            f"{int(results('out_of_core', 'mixed', correlation=one, **about)[0][name]) / 1e9:.2f}"
            for one in ("weak", "medium", "strong")
        ]
        for name in columns
    }
    of_fp64 = results("out_of_core", "mixed", n="8192", accuracy="fp64")[0]
    whole = {name: f"{int(of_fp64[name]) / 1e9:.2f}" for name in columns}
    _, medium, strong = cells["v3_in"]
    assert cells["v3_in"][0] == "0.00"
    assert (
        f"{medium} GB with medium and {strong} GB with strong correlation, and {whole['v3_in']}"
        in text
    )
    some, last = ", ".join(cells["async_in"]), whole["async_in"]
    assert f"`async` reads {some} and {last} GB" in text
    mixed = results("out_of_core", "mixed")
    assert all(row["measured_v3_in"] in ("", row["v3_in"]) for row in mixed)


def test_simulated_scaling_is_that_of_the_results():
    text = (ROOT / "experiments" / "out_of_core" / "README.md").read_text()
    text = " ".join(text.split())

    def rates(n, links="own", devices="4", tile="4096"):
        about = {"n": n, "links": links, "devices": devices, "tile": tile}
        return [float(row["teraflops"]) for row in results("out_of_core", "scaling", **about)]

    own, one, single = rates("240000"), rates("240000", "one"), rates("240000", devices="1")
    a100, h100, gh200 = (digits(rate, 3) for rate in own)
    assert f"reach {a100} (A100), {h100} (H100) and {gh200} TFLOP/s (GH200)" in text
    assert {f"{four / alone:.1f}" for four, alone in zip(own, single, strict=True)} == {"3.8"}
    a100, h100, gh200 = (digits(rate, 3) for rate in one)
    assert f"With one link for all four they reach {a100}, {h100} and {gh200}." in text
    pairs = zip(rates("80000", "one"), rates("80000"), strict=True)
    _, h100, gh200 = (f"{100 - 100 * shared / alone:.0f} %" for shared, alone in pairs)
    assert f"four H100 are {h100} slower with one link, four GH200 {gh200}" in text
    pairs = zip(rates("160000", tile="2048"), rates("160000"), strict=True)
    gains = [100 * small / large - 100 for small, large in pairs]
    assert f"2,048 are {min(gains):.0f} to {max(gains):.0f} % faster" in text
    small, large = (rates("160000", devices="1", tile=tile) for tile in ("2048", "4096"))
    assert {f"{100 * large[k] / small[k] - 100:.0f}" for k in (1, 2)} == {"1"}


def test_rates_on_a_disk_are_those_of_the_results():
    text = (ROOT / "experiments" / "out_of_core" / "README.md").read_text()
    text = " ".join(text.split())
    on_disk, in_core = results("out_of_core", "rate", n="44900")
    rates = [float(row["gflops"]) for row in (on_disk, in_core)]
    assert (
        f"is factored at {rates[0]:.0f} GFLOP/s; with all in RAM the rate is {rates[1]:.0f}" in text
    )
    assert f"so the ratio is {100 * rates[0] / rates[1]:.0f} %" in text
    (share,) = {f"{100 * float(row['share_of_dgemm']):.0f}" for row in (on_disk, in_core)}
    assert f"Both are {share} % of the GEMM rate" in text
    assert f"from outside is {float(on_disk['resident_over_budget']):.2f} times the limit" in text
    assert f"{float(on_disk['bytes_in']) / 1e9:.0f} GB are read" in text
    whole, part = results("out_of_core", "rate", n="16384")
    took = [f"{float(row['seconds']):.1f} s" for row in (whole, part)]
    assert f"16,384 locations take {took[1]}, in RAM {took[0]}" in text
    assert f"then {float(part['resident_over_budget']):.2f} times the limit" in text
    rows = results("out_of_core", "simulator")
    for name, said in (
        ("simulated_over_measured", "simulated times are {:.2f} to {:.2f} of the measured times"),
        ("disk_read_gb", "in simulator.csv {:.2f} to {:.2f} GB/s in"),
        ("disk_write_gb", "and {:.2f} to {:.2f} GB/s out"),
    ):
        numbers = [float(row[name]) for row in rows]
        assert said.format(min(numbers), max(numbers)) in text


def test_simulated_volumes_and_seconds_of_mixed_formats_are_those_of_the_results():
    text = " ".join((ROOT / "experiments" / "out_of_core" / "README.md").read_text().split())

    def cell(policy, correlation, accuracy):
        about = {"n": "100000", "policy": policy, "correlation": correlation}
        (row,) = results("out_of_core", "paper_mixed", accuracy=accuracy, **about)
        return (int(row["bytes_in"]) + int(row["bytes_out"])) / 1e9, float(row["seconds"])

    cases = (("weak", "1e-05"), ("strong", "1e-08"), ("weak", "fp64"))
    low, high, fp64 = (cell("v3", *case)[0] for case in cases)
    assert f"`v3` moves {low:.1f} GB (weak correlation, ε = 1e-5) to {high:.1f} GB" in text
    low, high, fp64_async = (cell("async", *case)[0] for case in cases)
    assert f"`async` {low:,.0f} to {high:,.0f} GB" in text
    assert f"in FP64 they move {fp64:.1f} and {fp64_async:,.0f} GB" in text
    weak, medium, strong = (cell("v3", name, "1e-05")[1] for name in ("weak", "medium", "strong"))
    assert f"take {weak:.2f}, {medium:.2f} and {strong:.2f} s by `v3`" in text
    assert f"FP64 {cell('v3', 'weak', 'fp64')[1]:.2f} s" in text


def test_generation_of_each_family_takes_at_most_what_the_readme_states():
    largest = max(float(row["over_matern"]) for row in results("covariance", "families"))
    assert largest <= 1.2
    text = (ROOT / "experiments" / "covariance" / "README.md").read_text()
    assert f"at most {largest:.2f} times Matérn's time" in text


def seconds_of_fits(smoothness, method):
    """Return the median CPU seconds of whole fits of 2,000 locations."""
    rows = results("peers", "fits", method=method, n="2000")
    # a row has the smoothness that was fixed, or none if it was estimated
    return median(
        float(row["cpu_seconds"]) for row in rows if (row["smoothness"] == "0.5") == smoothness
    )


def measured():
    """Return what the table of measured numbers in README must contain, from the results."""
    (one,) = results("peers", "likelihood", method="geomxp", smoothness="0.5", n="4000")
    yield f"{float(one['over_dpotrf']):.2f} times LAPACK's"
    yield f"in {(float(one['peak_bytes'])) / (8 * 4000**2):.2f} matrices"
    yield f"| {seconds_of_fits(True, 'geomxp'):.2f} s (GPy {seconds_of_fits(True, 'gpy'):.2f} s"
    yield f"scikit-learn {seconds_of_fits(True, 'scikit-learn'):.2f} s"
    yield f"GPyTorch {seconds_of_fits(True, 'gpytorch'):.1f} s"
    yield f"| {seconds_of_fits(False, 'geomxp'):.2f} s"
    yield f"(GPBoost {seconds_of_fits(False, 'gpboost'):.1f} s)"
    about = {"n": "16384", "correlation": "weak", "accuracy": "1e-05"}
    plain, weak = (results("static_schedule_mxp", t, **about)[0] for t in ("rate", "avx512"))
    times = f"{float(plain['speedup']):.1f} times as fast as"
    yield f"{times} the fastest FP64 factorization on an EPYC"
    yield f"{float(weak['speedup']):.1f} times on one that multiplies BF16 in AVX-512"
    assert plain["bytes_over_fp64"] == weak["bytes_over_fp64"]
    yield f"{100 * float(weak['bytes_over_fp64']):.0f} % of the memory"
    on_disk, in_core = results("out_of_core", "rate", n="44900")
    yield f"matrix {on_disk['triangle_over_budget']} times the memory"
    yield f"{float(on_disk['gflops']) / float(in_core['gflops']):.0%}".replace(
        "%", " % of the rate"
    )
    (million,) = results("vecchia", "time", n="1000000", neighbours="30")
    yield f"{float(million['seconds_evaluation']):.2f} s a log-likelihood"
    yield f"{float(million['resident_gb']):.2f} GB"
    profile = [
        float(r["coverage"]) for r in results("intervals", "coverage_reml", method="profile")
    ]
    yield f"{100 * min(profile):.1f} % to {100 * max(profile):.1f} %"


@pytest.mark.parametrize("number", list(measured()))
def test_a_number_of_readme_is_that_of_the_results(number):
    assert number in README


def test_readme_fits_on_a_few_screens():
    assert len(README.splitlines()) <= 200


def test_contributing_places_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "geomxp").iterdir()}
    rooms -= {"__init__", "__main__", "__pycache__", "py.typed"}
    assert {room for room in rooms if f"`{room}`" not in text} == set()


@pytest.mark.slow
def test_options_that_readme_names_exist(capsys):
    assert main(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    for option in re.findall(r"`(--[a-z-]+)", README):
        assert option in text, option


@pytest.fixture(scope="module")
def python():
    """The words that run a script with libraries imported, and with warnings as errors."""
    libraries = "numpy", "pandas", "numba", "scipy.stats"
    with python_with(*libraries, PYTHONWARNINGS="error") as words:
        yield words


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "recovery",
        "covariance",
        "peers",
        "static_schedule_mxp",
        "nested_cholesky",
        "trsm_trmm",
        "out_of_core",
        "batched",
        "vecchia",
        "refinement",
        "kaust",
        "intervals",
        "calibration",
        "maxima",
        "kaust_likelihood",
        "cluster",
        "h200",
        "space_time",
        "multivariate",
        "tree",
    ],
)
def test_experiments_run_when_tiny(name, python, tmp_path):
    script = ROOT / "experiments" / name / "run.py"
    run = subprocess.run(
        [*python, script, "--tiny", "--output", tmp_path],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    files = list(tmp_path.glob("*.csv"))
    assert files
    for file in files:
        lines = file.read_text().splitlines()
        assert lines[0].startswith("# commit: ")
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        assert rows


@pytest.mark.slow
def test_whole_fits_of_peers_run_when_tiny(python, tmp_path):
    script = ROOT / "experiments" / "peers" / "fits.py"
    subprocess.run([*python, script, "--tiny", "--output", tmp_path], check=True)
    lines = (tmp_path / "fits.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert {row["method"] for row in rows} == {"geomxp", "scipy", "scipy-plain"}
    assert all(float(row["below_best"]) < 1e-5 for row in rows)


@pytest.mark.slow
def test_seconds_of_two_checkouts_are_compared_when_tiny(python, tmp_path):
    script = ROOT / "experiments" / "maxima" / "seconds.py"
    command = [*python, script, ROOT, ROOT, "--tiny", "--output", tmp_path]
    subprocess.run(command, check=True)
    lines = (tmp_path / "seconds.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    before, after = ([row for row in rows if row["version"] == v] for v in ("before", "after"))
    assert len(before) == 8
    for one, other in zip(before, after, strict=True):
        assert one["log_likelihood"] == other["log_likelihood"]
        assert one["evaluations"] == other["evaluations"]


@pytest.mark.slow
def test_recovery_is_drawn(python, tmp_path):
    script = ROOT / "experiments" / "recovery" / "plot.py"
    subprocess.run([*python, script, "--output", tmp_path], check=True)
    assert (tmp_path / "recovery.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
