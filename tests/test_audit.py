"""Measured numbers in the audit of the papers, experiments/README.md, are those of the results."""

import csv
import re
from collections import defaultdict
from math import floor

from studies import ROOT, column, digits, ends, power, results, times_of_fast_roots

FP16_3, FP16_5, BF16_3 = (
    " ".join((name,) * count + ("fp32",)) for name, count in (("fp16", 3), ("fp16", 5), ("bf16", 3))
)
SIZES = ("16384", "32768", "65536")
SMALL = ("8192", "16384", "32768")
"""Orders of stage e of the study h200 below the largest."""
GIVEN = re.compile(
    r"n = [\d,]*\d(?: to [\d,]*\d)?|(?:ε|c|κ₂) = [\d.e-]*\d|tile \d\b"
    r"|(?:FP|F|H|[Vv])\d+|\d+ (?:cores?|thread|columns)\b|1 and 2 cores"
)
"""What a row says of the case that was measured, not of the result."""
MACHINES = {"EPYC": "AMD EPYC", "Xeon": "Intel", "H200": "Intel"}
"""How results name the machines of the audit; the host of an H200 is one of Intel's."""
FORMATS = ("float64", "float32")
MEASURED, VERDICT = 3, 5
"""Columns of the audit."""


def value(study, table, name, /, **wanted):
    """Return the number in one column of the one row that has the wanted values."""
    (row,) = results(study, table, **wanted)
    return float(row[name])


def listed(numbers, form, last=", "):
    """Return numbers in one format, separated by commas."""
    *first, final = (format(number, form) for number in numbers)
    return ", ".join(first) + last + final


def nested():
    def faster(what, layers):
        about = {"what": what, "n": "8192", "layers": layers, "cores": "1"}
        return value("nested_cholesky", "speed", "speedup", **about)

    def amx(what, layers, name="speedup"):
        about = {"what": what, "n": "8192", "layers": layers, "cores": "1"}
        return value("nested_cholesky", "speed_amx", name, **about)

    def error(matrix, layers):
        name = {"random": "uniform + n I", "weak": "Matérn weak"}[matrix]
        about = {"n": "4096", "matrix": name, "layers": layers}
        return value("nested_cholesky", "accuracy", "backward_error", **about)

    def right(layers, stored="dense", n="4096"):
        about = {"n": n, "layers": layers, "stored": stored}
        return value("nested_cholesky", "digits", "digits", **about)

    def h200(table, what, layers, name="times_vendor", **about):
        about = {"matrix": "uniform + n I", "n": "65536", "layers": layers} | about
        return value("h200", table, name, what=what, **about)

    for number, what in enumerate(("potrf", "trsm", "syrk"), 1):
        name = f"Algorithm {number}, Tree-{what.upper()}"
        yield name, f"FP64 {faster(what, 'fp64'):.2f} times OpenBLAS"
    name = "Section III-B, recursive data structure"
    tree, dense = (power(error("weak", layers)) for layers in (f"tree: {FP16_5}", FP16_5))
    yield name, f"backward error {tree} in the tree, {dense} in a dense factor"
    matrix, stored = results("nested_cholesky", "tree", n="8192", layers=FP16_5)
    seconds = [float(row["seconds"]) for row in (stored, matrix)]
    size = 100 * float(stored["bytes_over_fp64"])
    yield name, f"{seconds[0]:.2f} s, dense {seconds[1]:.2f} s, {size:.0f} % of FP64's bytes"
    name = "Layers in a Gaussian likelihood (the paper has random matrices)"
    layers, norms = (
        results("nested_cholesky", "divergence", n="16384", smoothness="0.5", method=method)
        for method in (f"whole: {FP16_3}", "tiles: by_tile_norm 0.0001")
    )
    large = " and ".join(f"{float(row['kl']):.2g}" for row in layers[1:])
    size = f"{100 * float(layers[0]['bytes_over_fp64']):.0f} % of FP64's bytes"
    first = power(float(layers[0]["kl"]))
    yield name, f"{first}, {large} nats (weak, medium, strong) with three FP16 layers in {size}"
    weak, medium, strong = (power(float(row["kl"])) for row in norms)
    low, high = ends(100 * part for part in column(norms, "bytes_over_fp64"))
    yield name, f"of {weak}, {medium} and {strong} by norm"
    yield name, f"in {low:.0f} to {high:.0f} %"
    name = "Section III-C, Figure 2: formats by layer"
    yield name, f"backward error {dense} with five FP16 layers"
    name = "FP32 layers above FP64: [F32×3, F64], [FP32, FP64]"
    three = right("fp32 fp32 fp32 fp64")
    yield name, f"{three:.1f} digits with [F32×3, F64], {right('fp32'):.1f} with FP32"
    some = ("fp32 fp32 fp32 fp64", "fp32")
    times = [h200("e_recursions", "potrf", layers) for layers in some]
    many = [h200("e_recursions", "potrf", layers, "digits") for layers in some]
    first = f"{many[0]:.1f} digits and {times[0]:.2f} times cuSOLVER's speed with [F32×3, F64]"
    yield name, f"{first}, {many[1]:.1f} digits and {times[1]:.2f} times with FP32"
    yield name, f"{three:.1f} and {many[0]:.1f} digits", VERDICT
    name = "Recursion and formats by norm in one factorization (each paper has one of them)"
    about = {"n": "65536", "accuracy": "1e-05"}
    halved, tiled = (
        column(results("tree", "h200", blocks=blocks, **about), "predicted_seconds")
        for blocks in ("tree", "tiles of 4096")
    )
    yield name, f"one likelihood in {listed(halved, '.3f', ' and ')} s halved"
    yield name, f"in {listed(tiled, '.3f', ' and ')} s with tiles of 4,096"
    about = {"n": "4096", "correlation": "weak", "accuracy": "1e-05"}
    about |= {"smoothness": "0.5", "nugget": "0.0"}
    scaled, plain = (
        power(value("static_schedule_mxp", "kl", f"backward_error{end}", **about))
        for end in ("", "_unscaled")
    )
    name = "Section III-D, Figure 3: quantization of blocks"
    yield name, f"backward error {scaled} scaled, {plain} unscaled"
    yield "Section IV-A, benchmark matrix", f"FP64 backward error {power(error('random', 'fp64'))}"
    launches = [
        value("h200", "counts", "launches", what="nested potrf", case=f"random {layers}")
        for layers in ("fp64", "fp16 fp32")
    ]
    name = "Figure 1, decomposition tree"
    yield name, f"{launches[0]:.0f} launches in FP64, {launches[1]:,.0f} with one FP16 layer"
    name = "Figure 4, headline: SYRK 14 times cuBLAS (FP64), 19 to 27 (layers), 149 (FP16)"
    yield name, f"{amx('syrk', BF16_3):.2f} times MKL with three BF16 layers"
    yield name, f"{faster('syrk', 'fp32'):.2f} times OpenBLAS with FP32"
    times = [h200("e_recursions", "syrk", layers) for layers in ("fp64", FP16_3, FP16_5)]
    yield name, "FP64 {:.2f}, three FP16 layers {:.1f}, five {:.1f} times cuBLAS".format(*times)
    about = {"what": "C + AB'", "format": "fp64", "n": "16384"}
    product = value("h200", "a_ceilings", "tflops", **about)
    share = h200("e_recursions", "syrk", "fp64", "tflops") / product
    yield name, f"{100 * share:.0f} % of a product's rate", VERDICT
    half = [h200("e_recursions", "syrk", layers, n="32768") for layers in ("fp64", FP16_5)]
    yield name, f"FP64 {half[0]:.2f}, five FP16 layers {half[1]:.2f} times"
    yield name, f"With five FP16 layers {times[2]:.1f} times", VERDICT
    yield name, f"in FP64 {times[0]:.2f} instead of 14", VERDICT
    name = "Figure 5, headline: TRSM 5.3 times cuBLAS (layers), 6 (FP16)"
    yield name, f"{amx('trsm', BF16_3):.2f} times MKL with three BF16 layers"
    large = h200("e_recursions_large", "trsm", FP16_5)
    yield name, f"five FP16 layers {large:.2f} times cuBLAS"
    small = listed((h200("e_recursions", "trsm", FP16_5, n=n) for n in SMALL), ".2f", " and ")
    yield name, f"{small} times with n = 8,192, 16,384 and 32,768"
    name = "Figure 6: throughput, 65 % of the FP64 peak, 22 to 30 % of the FP16 peak"
    about = {"what": "potrf", "n": "8192", "layers": "fp32", "cores": "1"}
    rate = value("nested_cholesky", "speed", "gflops", **about)
    share = 100 * value("nested_cholesky", "speed", "share_of_product", **about)
    yield name, f"{rate:.0f} GFLOP/s in FP32, {share:.0f} % of a product's rate"
    rates = [amx("potrf", layers, "gflops") for layers in (BF16_3, "mkl", "fp32")]
    yield name, f"{rates[0]:.0f} GFLOP/s with three BF16 layers, MKL {rates[1]:.1f}"
    yield from throughput(name, h200)
    name = "Figure 7, headline: POTRF 5.32 times cuSOLVER (layers), 6 (FP16)"
    yield name, f"{amx('potrf', BF16_3):.2f} times MKL with three BF16 layers"
    yield name, f"{faster('potrf', 'fp32'):.2f} times OpenBLAS with FP32"
    third = h200("e_recursions_third", "potrf", FP16_5, array="")
    yield name, f"five FP16 layers {third:.2f} times cuSOLVER's FP64"
    large = h200("e_recursions_large", "potrf", FP16_5)
    yield name, f"{large:.2f} times in another session"
    deep = {n: h200("e_recursions", "potrf", FP16_5, n=n) for n in (*SMALL, "65536")}
    by_size = listed(deep.values(), ".2f", " and ")
    orders = "n = 8,192, 16,384, 32,768 and 65,536"
    yield name, f"{by_size} times with {orders}"
    yield name, f"{deep['65536']:.2f}, {large:.2f} and {third:.2f} times", VERDICT
    fastest = listed(
        (
            1e3 * min(column(results("h200", "leaves", n=n, layers=FP16_5), "seconds"))
            for n in SMALL
        ),
        ".3g",
        " and ",
    )
    vendor = listed(
        (1e3 * h200("e_recursions", "potrf", "vendor", "seconds", n=n) for n in SMALL),
        ".3g",
        " and ",
    )
    words = f"with the fastest leaves {fastest} ms, cuSOLVER {vendor} ms (e_recursions.csv)"
    yield name, f"{words}, n = 8,192, 16,384 and 32,768"
    name = "Figure 11: one implementation on H200 and MI300X"
    three = h200("e_recursions", "potrf", FP16_3, n="32768", leaf="2048")
    words = f"{deep['32768']:.2f} times cuSOLVER with five FP16 layers, {three:.2f} with three"
    yield name, f"{words} and leaves of 2,048"
    name = "Figure 10, Section IV-D: speed-up against n and depth"
    yield name, f"{by_size} times cuSOLVER with five FP16 layers and {orders}"
    depths = ("fp16 fp32", FP16_3, FP16_5)
    times = [h200("e_recursions", "potrf", layers, leaf="default") for layers in depths]
    yield name, f"{listed(times, '.2f', ' and ')} times with one, three and five"
    name = "The same, predicted for an H200"
    single, double = (
        value("h200", "model", "seconds", case=f"POTRF random 5 fp16 fp32, {array} array")
        for array in ("float32", "float64")
    )
    yield name, f"{single:.3f} s with five FP16 layers"
    took = h200("e_recursions_third", "potrf", FP16_5, "seconds", array="")
    yield name, f"{took:.3f} s with an FP64 array (predicted {double:.3f} s)"
    longer = f"{100 * (double / took - 1):.0f} % too long in one session"
    yield name, f"For an FP64 array the predicted time is {longer}", VERDICT
    assert h200("e_recursions_third", "potrf", FP16_5, "seconds", array="fp32") > single
    (runs,) = results("h200", "n_profiles", operation="potrf, fp16 x5 fp32", kind="whole")
    low, high = ends(map(float, runs["all_seconds"].split()))
    yield name, f"{low:.3f} to {high:.3f} s with an FP64 array in six runs"
    shorter = (f"{100 * (1 - double / seconds):.0f}" for seconds in (low, high))
    yield name, "{} to {} % too short in another".format(*shorter), VERDICT
    name = "Figure 8: digits of the factor against n"
    kinds = (("fp64", "dense"), ("fp32 fp32 fp32 fp64", "dense"), (FP16_5, "dense"))
    many = [right(*kind, "16384") for kind in (*kinds, ("pure fp16", "dense"))]
    names = "FP64, [F32×3, F64], with five FP16 layers and in pure FP16"
    yield name, f"{listed(many, '.1f', ' and ')} digits in {names}"
    yield name, f"{right(FP16_5, 'tree', '16384'):.1f} with five FP16 layers in the tree"
    some = ("fp64", "fp32 fp32 fp32 fp64", "fp32", "fp16 fp32", FP16_5)
    many = [h200("e_recursions", "potrf", layers, "digits") for layers in some]
    names = "FP64, [F32×3, F64], FP32, with one and with five FP16 layers"
    yield name, f"{listed(many, '.1f', ' and ')} digits in {names}"
    yield name, f"five FP16 layers have {many[4]:.1f} digits", VERDICT
    yield name, f"[F32×3, F64] has {many[1]:.1f} digits", VERDICT
    yield name, f"FP32 {many[2]:.1f} instead of", VERDICT
    layers, whole = (
        value("h200", "model_papers", "predicted", case=f"POTRF 65536 {kind}") / 1e12
        for kind in ("5 fp16 fp32", "fp16")
    )
    name = "Headline: 88 % of pure FP16's speed"
    yield name, f"{layers:.0f} and {whole:.0f} TFLOP/s"
    rate = h200("e_recursions_third", "potrf", FP16_5, "tflops", array="")
    yield name, f"{rate:.0f} TFLOP/s with five FP16 layers"
    pure = {matrix: power(error(matrix, "pure fp16")) for matrix in ("random", "weak")}
    name = "Pure FP16, reference of Figures 4 to 8"
    yield name, f"backward error {pure['random']}, random matrix"
    name = "Headline: 100 times as accurate as pure FP16"
    mine = {matrix: power(error(matrix, FP16_5)) for matrix in pure}
    yield name, f"backward errors {mine['random']} and {pure['random']}, random matrix"
    yield name, f"{mine['weak']} and {pure['weak']}, Matérn weak"
    ratios = [error(matrix, "pure fp16") / error(matrix, FP16_5) for matrix in pure]
    yield name, f"{ratios[0]:.0f} times on the paper's matrix", VERDICT
    yield name, f"{ratios[1]:.0f} times on a weak Matérn matrix", VERDICT
    name = "Figure 10, Section IV-D: speed-up against n and depth"
    for table, library in (("depth_amx", "the faster FP64 library"), ("depth_avx512", "OpenBLAS")):
        depths = results("nested_cholesky", table, n="8192", format="bf16")
        gains = [float(row["speedup"]) for row in depths if row["low_layers"] != "0"]
        yield name, f"{listed(gains, '.2f')} times {library} with 1 to {len(gains)} BF16 layers"
    name = "Headline: 20 % faster than cuSOLVER in FP64"
    yield name, f"{amx('potrf', 'fp64'):.2f} times MKL without tiles"
    tiles, vendor = {}, {}
    for n, table in zip(SIZES, ("f_by_norm", "f_by_norm", "f_by_norm_large"), strict=True):
        tiles[n] = min(column(results("h200", table, n=n, accuracy="fp64"), "seconds"))
        # of the same session
        same = table.replace("f_by_norm", "e_recursions")
        vendor[n] = h200(same, "potrf", "vendor", "seconds", n=n)
    name = "Headline: 20 % faster than cuSOLVER in FP64"
    yield name, f"FP64 tiles {tiles['32768']:.2f} s, cuSOLVER {vendor['32768']:.2f} s"
    ratios = listed((tiles[n] / vendor[n] for n in SIZES), ".2f", " and ")
    yield name, f"{tiles['65536'] / vendor['65536']:.2f} times cuSOLVER's time"
    yield name, f"{ratios} times as long as cuSOLVER", VERDICT
    layers, mkl, single = f"{rates[0]:.0f}", f"{rates[1]:.1f}", f"{rates[2]:.0f}"
    name = "Figure 2: factorization 3 times FP32, 6 times FP64"
    yield name, f"{layers} GFLOP/s with three BF16 layers, FP32 {single}, MKL FP64 {mkl}"
    for n, words in (
        ("65536", "{:.2f} times FP32 and {:.2f} times cuSOLVER's FP64 with five FP16 layers"),
        ("32768", "{:.2f} and {:.2f} times"),
    ):
        five, fp32, fp64 = (
            h200("e_recursions", "potrf", layers, "seconds", n=n)
            for layers in (FP16_5, "fp32", "vendor")
        )
        yield name, words.format(fp32 / five, fp64 / five)
    yield name, f"over FP64 is {fp64 / five:.2f} times", VERDICT


def throughput(name, h200):
    """Yield the claims of paper 000's Figure 6 on an H200."""
    deep, vendor, third = (
        h200("e_recursions", "potrf", FP16_5, "tflops"),
        h200("e_recursions", "potrf", "vendor", "tflops"),
        h200("e_recursions_third", "potrf", FP16_5, "tflops", array=""),
    )
    fp64, fp32 = (h200("e_recursions", "potrf", form, "tflops") for form in ("fp64", "fp32"))
    words = f"{fp64:.1f} TFLOP/s in FP64, {fp32:.1f} in FP32, {deep:.0f} with five FP16 layers"
    yield name, f"{words}, cuSOLVER's FP64 {vendor:.1f}"
    small = [
        listed(
            (h200("e_recursions", "potrf", layers, "tflops", n=n) for n in SMALL[:2]),
            ".1f",
            " and ",
        )
        for layers in ("fp64", FP16_5, "vendor")
    ]
    words = f"{small[0]} in FP64, {small[1]} with five FP16 layers, cuSOLVER {small[2]}"
    yield name, f"{words}, n = 8,192 and 16,384"
    yield name, f"{third:.0f} with five FP16 layers"
    lines = (ROOT / "experiments" / "h200" / "constants.csv").read_text().splitlines()
    peaks = {
        row["name"]: float(row["value"])
        for row in csv.DictReader(line for line in lines if line[0] != "#")
        if row["machine"] == "h200"
    }
    high, low = peaks["peak fp64"], peaks["peak fp16"]
    yield name, f"peaks of {high:.1f} TFLOP/s in FP64 and {low:.0f} in FP16"
    yield name, f"{100 * fp64 / high:.0f} % of the FP64 peak", VERDICT
    shares = f"{100 * deep / low:.0f} to {100 * third / low:.0f} % of the FP16 peak"
    yield name, f"{shares} with five FP16 layers", VERDICT


def norms():
    (row,) = results("peers", "likelihood", method="geomxp", smoothness="0.5", n="4000")
    name = "Equation 1, Gaussian log-likelihood"
    yield name, f"{float(row['over_dpotrf']):.2f} times dpotrf's time"
    most = max(column(results("covariance", "errors"), "relative"))
    name = "Equation 2, Matérn covariance, and the three models"
    yield name, f"relative error at most {power(most)}"
    about = {"correlation": "strong", "accuracy": "1e-05"}
    first, kl = (
        power(value("static_schedule_mxp", "kl_16384_more", name, **about))
        for name in ("kl_log_determinant", "kl")
    )
    name = "Equation 3, divergence by log-likelihoods"
    yield name, f"{first} by Equation 3, divergence {kl}, strong"
    name = "Figure 10(a-c): divergence against n"
    large = results("static_schedule_mxp", "kl_32768", accuracy="1e-05")
    weak, medium, strong = (power(each) for each in column(large, "kl"))
    yield name, f"{weak} (weak), {medium} (medium), {strong} (strong)"
    rows = results("static_schedule_mxp", "kl", n="4096", accuracy="1e-07")
    large = results("h200", "f_by_norm_fifth", accuracy="1e-05")
    weak, medium, strong = (power(each) for each in column(large, "kl"))
    yield name, f"{weak} (weak), {medium} (medium), {strong} (strong)"
    about = {"correlation": "medium", "accuracy": "1e-07"}
    yield name, f"{power(value('h200', 'f_by_norm_fifth', 'kl', **about))} (medium)"
    name = "Section IV-C: formats by norm, down to FP8"
    yield name, f"largest backward error {power(max(column(rows, 'backward_error')), 3)}"
    sizes = column(results("static_schedule_mxp", "maps"), "bytes_over_fp64")
    name = "Figure 4(a-d): one to four formats on 8 × 8 tiles"
    yield name, f"8 × 8 tiles in {listed((100 * size for size in sizes), '.0f')} %"
    rates = results("static_schedule_mxp", "rate", n="16384", accuracy="1e-05")
    name = "Figure 13(a-c): traces by correlation"
    yield name, f"{listed(column(rates, 'seconds'), '.2f')} s, weak, medium, strong"
    name = "Figure 11(a-c), headline: 136.1 TFLOP/s, 3 times FP64"
    yield name, f"{float(rates[0]['seconds']):.2f} s, {float(rates[0]['speedup']):.2f} times FP64"
    coarse = results("static_schedule_mxp", "avx512", n="16384", accuracy="1e-05")
    yield name, f"{float(coarse[0]['speedup']):.2f} times with BF16 in AVX-512, weak"
    rate = value("h200", "model_papers", "predicted", case="gh200 by norms weak 1e-5 100352")
    yield name, f"{rate / 1e12:.0f} TFLOP/s, model"
    rates = {row["process"]: [] for row in results("h200", "by_norm_runs")}
    for row in results("h200", "by_norm_runs"):
        rates[row["process"]].append(65536**3 / 3e12 / float(row["seconds"]))
    quiet, busy = (rates[process] for process in ("alone", "after the tests"))
    low, high = ends(quiet)
    yield name, f"{low:.0f} to {high:.0f} TFLOP/s with generation and nothing else running"
    low, high = ends(busy)
    yield name, f"{low:.0f} to {high:.0f} shortly after tests"
    fourth = {
        accuracy: results("h200", "f_by_norm_fourth", accuracy=accuracy)
        for accuracy in ("1e-05", "1e-08", "fp64")
    }
    coarsest, finest, fp64 = (column(rows, "tflops") for rows in fourth.values())
    words = "{} TFLOP/s with ε = 1e-5, {} with ε = 1e-8 (weak, medium, strong), FP64 tiles {:.0f}"
    both = [listed(rates, ".0f", " and ") for rates in (coarsest, finest)]
    yield name, words.format(*both, *fp64)
    gains = [[each / fp64[0] for each in rates] for rates in (coarsest, finest)]
    yield name, f"{gains[0][0]:.1f} times FP64 tiles", VERDICT
    yield name, f"have {gains[0][1]:.1f} and {gains[0][2]:.1f} times", VERDICT
    yield name, f"ε = 1e-8 {listed(gains[1], '.1f', ' and ')} times", VERDICT
    rows = results("h200", "f_by_norm", n="16384")
    least, tiles = (
        1e3 * min(column([row for row in rows if (row["accuracy"] == "fp64") == whole], "seconds"))
        for whole in (False, True)
    )
    assert least > tiles
    yield name, f"by norm at best {least:.0f} ms, FP64 tiles {tiles:.0f} ms"
    name = "Section V-C2: low formats save memory"
    yield name, f"{float(coarse[0]['bytes_over_fp64']):.3f} of FP64's triangle"
    sizes = listed(column(fourth["1e-05"], "bytes_over_fp64"), ".3f", " and ")
    most = float(fourth["1e-08"][2]["bytes_over_fp64"])
    yield name, f"{sizes} (weak, medium, strong) with ε = 1e-5, {most:.3f} (strong)"
    name = "Figure 13(a-c): traces by correlation"
    yield name, f"{listed(column(fourth['1e-05'], 'seconds'), '.3f')} s in core"
    seconds = listed(column(coarse, "seconds"), ".2f")
    yield name, f"{seconds} s with BF16 in AVX-512, weak, medium, strong"
    rows = results("out_of_core", "paper_mixed", n="100000", accuracy="1e-05", policy="v3")
    yield name, f"{listed(column(rows, 'seconds'), '.2f')} s by v3, weak, medium, strong"
    cases = results("static_schedule_mxp", "target")
    assert {row["target"] for row in cases} == {"0.001"}
    most = power(max(column(cases, "kl")))
    name = "Headline: accuracy that applications need"
    yield name, f"divergence at most {most} for a target of 1e-3"


def out_of_core():
    policies = {row["policy"]: row for row in results("out_of_core", "volume", n="8192")}

    def moved(policy, end="in"):
        return f"{float(policies[policy][f'bytes_{end}']) / 1e9:.2f}"

    def took(*names):
        return [f"{float(policies[name]['seconds']):.1f}" for name in names]

    def rate(**about):
        return value("out_of_core", "rate", "gflops", n="44900", **about)

    on_disk, in_core = (rate(budget=budget) for budget in ("2000000000", "in core"))
    yield "Figure 1(a), Algorithm 1: left-looking tiles", f"{in_core:.0f} GFLOP/s in core"
    assert all(
        (row["bytes_in"], row["bytes_out"]) == (row["simulated_in"], row["simulated_out"])
        for row in results("out_of_core", "volume")
    )
    name = "Section IV-A: sync and async"
    for end in ("in", "out"):
        assert moved("sync", end) == moved("async", end)
    seconds = took("sync", "async")
    yield name, f"{moved('sync')} GB in and {moved('sync', 'out')} GB out by each"
    yield name, f"{seconds[0]} and {seconds[1]} s"
    rows = results("h200", "g_out_of_core_fourth")
    gpu = {row["policy"]: {key: row[key] for key in row if key != "policy"} for row in rows}

    def on_gpu(policy, *ends):
        """Gigabytes that a policy moves on an H200, and its seconds."""
        volume = sum(float(gpu[policy][f"bytes_{end}"]) for end in ends) / 1e9
        return f"{volume:.1f}" if volume < 20 else f"{volume:.0f}"

    lasted = {policy: f"{float(row['seconds']):.2f}" for policy, row in gpu.items() if policy}
    assert on_gpu("sync", "in", "out") == on_gpu("async", "in", "out")
    words = f"{on_gpu('sync', 'in')} GB in and {on_gpu('sync', 'out')} GB out by each"
    yield name, f"{words}, {lasted['sync']} and {lasted['async']} s"
    segments = {row["segments"] for row in results("h200", "counts", what="by norms, out of core")}
    (segments,) = segments
    name = "Section V-A1: allocations make async slower than V1"
    yield name, f"{segments} segment out of core"
    moves = [
        f"{on_gpu(policy, 'in', 'out')} GB in {lasted[policy]} s" for policy in ("async", "v1")
    ]
    yield name, f"async moves {moves[0]}, V1 {moves[1]}"
    yield from pinned()
    seconds = took("v1", "v2", "v3", "v3-lru")
    name = "Figure 3(a, b): V1 and V2"
    yield name, f"V1 reads {moved('v1')} GB and takes {seconds[0]} s"
    yield name, f"V2 {moved('v2')} GB and {seconds[1]} s"
    second = f"V2 {on_gpu('v2', 'in')} GB and {lasted['v2']} s"
    yield name, f"V1 reads {on_gpu('v1', 'in')} GB and takes {lasted['v1']} s, {second}"
    name = "Figure 3(c): V3"
    yield name, f"v3 reads {on_gpu('v3', 'in')} GB and takes {lasted['v3']} s, {second}"
    yield name, f"v3 reads {moved('v3')} GB and takes {seconds[2]} s"
    yield name, f"v3-lru {moved('v3-lru')} GB and {seconds[3]} s"
    large = {
        row["policy"]: float(row["bytes_in"]) / 1e12
        for row in results("out_of_core", "paper", n="240000", machine="GH200")
    }
    assert large["v2"] == large["v3-lru"]
    yield name, f"{large['v3']:.2f} TB by v3, {large['v2']:.2f} TB by v3-lru and V2"
    name = "Figure 5(a): rows dealt to several GPUs"
    rows = results("out_of_core", "devices")
    assert {row["same_bits_as_in_core"] for row in rows} == {"True"}
    yield name, f"equal bits on 1 to {len(rows)} logical devices"
    name = "Figure 5(b), Section V-B: host memory on NUMA nodes, 900 and 100 GB/s"
    dealt, beside = column(results("out_of_core", "numa", devices="4", policy="v1"), "teraflops")
    yield name, f"{dealt:.0f} TFLOP/s by V1 with dealt memory, {beside:.0f} with all beside one GPU"
    about = {"machine": "H100-PCIe", "n": "160000", "devices": "4", "links": "own"}
    sizes = ("2048", "4096", "8192")
    rates = [value("out_of_core", "scaling", "teraflops", tile=tile, **about) for tile in sizes]
    name = "Section V: platforms, tile size by GPU"
    tiles = "tiles of 2,048, 4,096 and 8,192"
    yield name, f"{listed(rates, '.1f', ' and ')} TFLOP/s with {tiles}, four H100"
    rows = results("h200", "f_by_norm", n="32768", accuracy="fp64")
    tiles = "tiles of 1,024, 2,048 and 4,096"
    yield name, f"{listed(column(rows, 'seconds'), '.3f', ' and ')} s with {tiles}"
    name = "Figure 6(a-c), headline: out-of-core cost hidden; 16.1, 54.7, 58.9 TFLOP/s"
    yield name, f"{on_disk:.0f} GFLOP/s on a disk, {in_core:.0f} in core"
    simulated = {
        row["machine"]: row for row in results("out_of_core", "paper", n="160000", policy="v3")
    }
    papers = ("A100-PCIe", "H100-PCIe", "GH200")
    rates = [float(simulated[machine]["teraflops"]) for machine in papers]
    yield name, f"{listed(rates, '.1f')} TFLOP/s by v3"
    single, several = (
        [
            float(row["predicted"]) / 1e12
            for row in results("h200", "model_papers", paper="001")
            if re.fullmatch(f"{count}[a-z0-9]+ fp64 V3 (out of core )?160000", row["case"])
        ]
        for count in ("", "4 ")
    )
    yield name, f"{listed(single, '.1f')} TFLOP/s, model"
    about = {"n": "65536", "policy": "v3"}
    speed, share = (
        value("h200", "g_out_of_core_third", what, **about)
        for what in ("tflops", "of_in_core_rate")
    )
    yield name, f"{speed:.1f} TFLOP/s by v3 in 8 GB, {100 * share:.0f} % of the rate in core"
    again, part = (float(gpu["v3"][key]) for key in ("tflops", "of_in_core_rate"))
    yield name, f"{again:.1f} TFLOP/s, {100 * part:.0f} % of it"
    yield name, f"{again:.1f} and {speed:.1f} TFLOP/s", VERDICT
    yield name, f"{100 - 100 * share:.0f} to {100 - 100 * part:.0f} % of the rate", VERDICT
    name = "Figure 6, text: within 95 % of the GEMM rate"
    whole = value("h200", "g_out_of_core_third", "tflops", n="65536", policy="")
    yield name, f"{speed:.1f} TFLOP/s by v3, {whole:.1f} in core"
    about = {"what": "C + AB'", "format": "fp64", "n": "16384"}
    product = value("h200", "a_ceilings", "tflops", **about)
    assert whole < 0.95 * product
    yield name, f"products {product:.1f} TFLOP/s"
    rows = results("out_of_core", "rate", n="44900")
    shares = [100 * each for each in column(rows, "share_of_dgemm")]
    yield name, f"{shares[0]:.0f} % of the GEMM rate on a disk, {shares[1]:.0f} % in core"
    about = {"n": "8192", "factor": "fp64"}
    tiles, lapack = (
        100 * value("refinement", "factor", "share_of_ceiling", potrf=potrf, **about)
        for potrf in ("tiles", "SciPy")
    )
    yield name, f"FP64 tiles {tiles:.0f} %, LAPACK {lapack:.0f} % of it"
    name = "Figure 8(a-i): volumes; 935.7, 437.4, 480 GB"
    (row,) = {(r["bytes_in"], r["bytes_out"]) for r in simulated.values()}
    assert row[0] == "0"
    yield name, f"v3 writes {float(row[1]) / 1e9:.0f} GB and reads 0"
    v3, v2, v1, none = (on_gpu(policy, "in") for policy in ("v3", "v2", "v1", "async"))
    yield name, f"v3 reads {v3} GB, V2 {v2}, V1 {v1}, async {none}"
    name = "Figure 8: sync moves less than async by larger tiles"
    yield name, f"{moved('sync, larger tiles')} GB in by sync, {moved('async')} GB by async"
    name = "Figure 9(a-c), headline: scaling to four GPUs; 59.3, 176.3, 185.5 TFLOP/s"
    about = {"n": "240000", "devices": "4", "tile": "4096"}
    rows = results("out_of_core", "numa", policy="v3", placed="cyclic")
    some = listed(column(rows, "teraflops"), ".3g")
    yield name, f"{some} TFLOP/s on 1 to {len(rows)} GH200 by v3"
    yield name, f"{listed(several, '.3g')} TFLOP/s, model"
    four = {
        links: listed(
            column(results("out_of_core", "scaling", links=links, **about), "teraflops"), ".3g"
        )
        for links in ("own", "one")
    }
    yield name, f"{four['own']} TFLOP/s with four links, {four['one']} with one, four GPUs"
    name = "Figure 12(a-c): volumes in mixed formats"
    rows = results("out_of_core", "mixed", n="8192", accuracy="1e-05")
    volumes = [float(row["v3_in"]) / 1e9 for row in rows]
    rows = results("out_of_core", "mixed", n="8192", accuracy="fp64")
    (whole,) = {float(row["v3_in"]) / 1e9 for row in rows}
    assert volumes[0] == 0
    yield name, f"v3 reads 0, {volumes[1]:.2f} and {volumes[2]:.2f} GB, FP64 {whole:.2f} GB"
    spans = {
        policy: ends(
            (float(row["bytes_in"]) + float(row["bytes_out"])) / 1e9
            for row in results("out_of_core", "paper_mixed", n="100000", policy=policy)
            if row["accuracy"] != "fp64"
        )
        for policy in ("v3", "async")
    }
    low, high = spans["v3"]
    yield name, f"v3 moves {low:.1f} GB (weak, ε = 1e-5) to {high:.1f} GB (strong, ε = 1e-8)"
    yield name, "async {:,.0f} to {:,.0f} GB".format(*spans["async"])


def pinned():
    """Yield the claims of paper 001's Section IV-A on host memory."""
    name = "Section IV-A: pinned host memory"
    rates = [
        value("h200", "a_ceilings", "gb_per_s", what=f"{way}, {kind}", bytes="8589934592")
        for kind in ("pinned", "pageable")
        for way in ("host to device", "device to host")
    ]
    words = "{:.1f} and {:.1f} GB/s to and from pinned, {:.1f} and {:.1f} GB/s to and from pageable"
    yield name, words.format(*rates)
    (row,) = results("h200", "g_out_of_core_third", policy="v3")
    first, second = (float(row[key]) for key in ("seconds_first", "seconds"))
    yield name, f"the first run by v3, which pins, takes {first:.1f} s, the second {second:.1f} s"


def refined():
    def steps(spectrum, condition, method, factor="fp16", **about):
        about = {"spectrum": spectrum, "condition": condition} | about
        about = about | {"method": method.lower(), "factor": factor}
        return value("refinement", "iterations", "iterations", **about)

    scaled = {"scaling": "True"}
    plain, shifted = scaled | {"shift": "0.0"}, scaled | {"shift": "0.4"}
    unscaled = {"scaling": "False", "shift": "0.4"}
    easy = steps("arithmetic", "100.0", "GMRES", **plain)
    harder = steps("arithmetic", "10000.0", "GMRES", **plain)
    yield "Section 4, Figure 1: FP16 factorization", f"GMRES {easy:.0f}"
    both = {
        steps("logarithmic", "170000.0", "GMRES", factor, **shifted)
        for factor in ("fp16", "fp32-fp16")
    }
    assert len(both) == 1
    (logarithmic,) = both
    name = "Section 4: factor kept in FP32"
    yield name, f"GMRES {logarithmic:.0f} with either factor"
    rows = results("refinement", "factor", n="4096", potrf="tiles", factor="fp16")
    rates = listed(column(rows, "gflops"), ".0f", " and ")
    name = "Section 4: blocks of 512 by tuning"
    yield name, f"FP16 tiles of 256, 512 and 1,024 rows {rates} GFLOP/s"
    name = "Sections 2 and 5: classic refinement (IR) and GMRES"
    yield name, f"IR {steps('arithmetic', '10000.0', 'IR', **plain):.0f}, GMRES {harder:.0f}"
    geometric = {
        method: steps("geometric", "170000.0", method, **shifted) for method in ("CG", "GMRES")
    }
    yield "Section 5: CG", f"CG {geometric['CG']:.0f}, GMRES {geometric['GMRES']:.0f}"

    def definite(spectrum, condition, scaling, name):
        about = {"spectrum": spectrum, "condition": condition, "n": "2048"}
        return value("refinement", "definiteness", name, scaling=scaling, **about)

    error, least = (
        definite("logarithmic", "170000.0", "True", name)
        for name in ("error_fp16", "smallest_eigenvalue")
    )
    name = "Section 6: scaling, shift, range scaling"
    yield name, f"error {error:.1f} u, smallest eigenvalue {least:.2f} u"

    def fast(method, factor, figure="4a", name="seconds"):
        about = {"n": "8192", "figure": figure, "factor": factor, "method": method}
        # the custom-clustered matrix is solved with a shift, and without
        return float(results("refinement", "speed", **about)[0][name])

    name = "Section 6: preprocessing in one GPU kernel"
    gmres, scipy = fast("gmres", "fp16"), fast("SciPy", "fp64")
    yield name, f"{gmres:.2f} s with preprocessing, FP64 {scipy:.2f} s"
    name = "dposv, direct FP64 solver"
    yield name, f"{scipy:.2f} s by LAPACK, {fast('tiles', 'fp64'):.2f} s by FP64 tiles"
    name = "dsposv, headline: FP32 with IR 1.8 times dposv"
    gain = fast("ir", "fp32", name="over_baseline")
    bf16 = fast("ir", "bf16", name="over_baseline")
    yield name, f"{gain:.2f} times the fastest in FP64, {bf16:.2f} times with BF16"
    yield name, f"{gain:.1f} instead of 1.8", VERDICT
    name = "Figure 4(a, b), speed; headline 4.7 times dposv"
    gains = [fast("gmres", "fp16", figure, "over_baseline") for figure in ("4a", "4b")]
    two = f"GMRES {gains[0]:.2f} (κ₂ = 100) and {gains[1]:.2f} (1e4)"
    bf16 = [fast("gmres", "bf16", figure, "over_baseline") for figure in ("4a", "4b")]
    also = f"with BF16 tiles {bf16[0]:.2f} and {bf16[1]:.2f}"
    yield name, f"{two} times the fastest in FP64, {also}"
    figures = ("5a", "5b", "6a", "6b", "7")
    half = [fast("gmres", "fp16", figure, "over_baseline") for figure in figures]
    single = [fast("ir", "fp32", figure, "over_baseline") for figure in figures]
    name = "Figures 5 to 7, speed: 4.5, 4.4, 2.5, 2.3, 3.3 times dposv"
    yield name, f"GMRES with FP16 tiles {listed(half, '.2f', ' and ')} times the fastest in FP64"
    bf16 = [fast("gmres", "bf16", figure, "over_baseline") for figure in ("5a", "5b", "7")]
    also = f"GMRES with BF16 tiles {listed(bf16, '.2f', ' and ')} (5a, 5b, 7)"
    yield name, f"refinement with FP32 tiles {listed(single, '.2f', ' and ')}; {also}"
    gpu = {
        row["matrix"]: digits(float(row["times_fp64"]), 2)
        for row in results("h200", "h_refinement_third")
        if row["solver"] == f"{FP16_3}, ir"
    }
    yield "Solver on the GPU", f"{gpu['Matérn weak']} times FP64 by a script"
    about = {"matrix": "Matérn weak", "n": "65536", "solver": "refine.solve, fp16 tiles, gmres"}
    packaged = value("h200", "h_refinement_fourth", "times_fp64", **about)
    yield "Solver on the GPU", f"{packaged:.2f} times FP64 by refine.solve, FP16 tiles, GMRES"
    times = f"{gpu['Matérn weak']} and {gpu['Matérn medium']} times FP64"
    yield "Figure 4(a, b), speed; headline 4.7 times dposv", f"{times} by a script with IR"
    yield from refined_on_gpu(FP16_3)
    about = {"spectrum": "clustered", "condition": "100000000.0", "outcome": "CONVERGED"}
    residual = max(column(results("refinement", "iterations", **about), "residual"))
    yield "Section 7: convergence criterion", f"residuals of up to {power(residual)} accepted"
    single = [
        steps("arithmetic", "100000000.0", method, "fp32", **plain) for method in ("GMRES", "IR")
    ]
    name = "Future work: GMRES with an FP32 factor"
    yield name, f"GMRES {single[0]:.0f}, IR {single[1]:.0f}"
    yield "Figures 4 to 7: rates against N up to 42,000", spanned("refinement", "speed")
    spectra = {row["spectrum"] for row in results("refinement", "iterations")}
    assert len(spectra) == 5
    rows = {row["factor"]: row for row in results("refinement", "factor", n="8192", potrf="tiles")}
    gains = [float(rows[factor]["over_baseline"]) for factor in ("bf16", "fp16", "fp32")]
    name = "Figure 2: factorization 3 times FP32, 6 times FP64"
    words = "{:.2f} times FP64 with BF16 tiles, {:.2f} with FP16 tiles, {:.2f} with FP32 tiles"
    yield name, words.format(*gains)
    ended = defaultdict(list)
    for row in results("refinement", "histories", spectrum="clustered"):
        ended[row["condition"], row["method"]].append(row)
    name = "Figure 3: histories of IR and GMRES, clustered, n = 10,000"
    cases = (("100.0", "gmres"), ("100000000.0", "gmres"), ("100.0", "ir"))
    last = [max(column(ended[case], "iteration")) for case in cases]
    yield name, "GMRES {:.0f} (κ₂ = 100) and {:.0f} (1e8), IR {:.0f} and stalls".format(*last)
    name = "Figure 4(a, b), iterations: at most 3; 7 to 8"
    yield name, f"GMRES {easy:.0f} (κ₂ = 100), {harder:.0f} (1e4)"
    name = "Figure 5(a), iterations: clustered, 3 to 4"
    two = [steps("clustered", "100.0", method, **shifted) for method in ("GMRES", "IR")]
    yield name, f"GMRES {two[0]:.0f}, IR {two[1]:.0f}"
    name = "Figure 5(b), iterations: clustered, κ₂ = 1e8, 5"
    two = [
        steps("clustered", "100000000.0", "GMRES", factor, **unscaled)
        for factor in ("fp32-fp16", "fp16")
    ]
    yield name, f"GMRES {two[0]:.0f} with the paper's factor and {two[1]:.0f} with FP16 storage"
    two = [
        definite("clustered", "100000000.0", scaling, "column_error")
        for scaling in ("True", "False")
    ]
    yield name, f"error {two[0]:.0f} u with scaling, {two[1]:.2f} u without"
    name = "Figure 6(a, b), iterations: 27 and 32 with c = 0.4"
    yield name, f"GMRES {logarithmic:.0f} (logarithmic), {geometric['GMRES']:.0f} (geometric)"
    rows = results("refinement", "tiles", n="4096", shift="10.0")
    name = "Figure 7, iterations: custom-clustered, 15 to 16 with c = 10"
    yield name, "GMRES {:.0f} to {:.0f}".format(*ends(column(rows, "iterations")))
    rows = results("refinement", "tiles", n="4096", shift="0.0", factor="fp16")
    two = column(rows, "iterations")
    assert [row["tile"] for row in rows if row["iterations"]] == ["128", "256"]
    name = "Figure 7: at least 37 without preprocessing"
    shapes = "with scaling and c = 0, 128 and 256 rows in a tile"
    yield name, f"GMRES {two[0]:.0f} and {two[1]:.0f} {shapes}"
    conditions = ends(column(results("refinement", "iterations"), "infinity_condition"))
    name = "Figures 4 to 7, right axis: κ∞ against N"
    largest = power(conditions[1])
    first = power(value_of_condition("arithmetic", "100.0"))
    yield name, f"κ∞ = {first} (arithmetic, κ₂ = 100) to {largest} (arithmetic, 1e8)"
    name = "Headline: works for κ∞ up to 1e9"
    hardest = steps("arithmetic", "100000000.0", "GMRES", **shifted)
    yield name, f"GMRES {hardest:.0f}, arithmetic, κ∞ = {largest}"
    clustered = power(value_of_condition("clustered", "100000000.0"))
    six = steps("clustered", "100000000.0", "GMRES", **unscaled)
    yield name, f"{six:.0f}, clustered, {clustered}, not scaled"
    name = "Conclusion: preprocessing helps, but no setting suits all matrices"
    ten = scaled | {"shift": "10.0"}
    custom = [steps("custom-clustered", "10000.0", "GMRES", **each) for each in (shifted, ten)]
    yield name, f"GMRES {custom[0]:.0f} with c = 0.4, {custom[1]:.0f} with c = 10"
    name = "Figure 7, iterations: custom-clustered, 15 to 16 with c = 10"
    yield name, f"c = 0.4, which takes {custom[0]:.0f}", VERDICT
    name = "Conclusion: preprocessing helps, but no setting suits all matrices"
    far = steps("geometric", "170000.0", "GMRES", **ten)
    yield name, f"geometric {geometric['GMRES']:.0f} and {far:.0f}"


def refined_on_gpu(layers):
    """Yield the claims of paper 002's solvers on an H200."""

    def ends_of(table, n):
        """The slowest and the fastest of the package's solvers with FP16 tiles."""
        return ends(
            float(row["times_fp64"])
            for row in results("h200", table, n=n)
            if row["solver"].startswith(("refine.solve, fp16", "refine.solve, fp32-fp16"))
        )

    name = "Solver on the GPU"
    low, high = ends_of("h_refinement_fourth", "32768")
    yield name, f"{low:.2f} to {high:.2f} times with FP16 and FP32-FP16 tiles"
    low, high = ends_of("h_refinement_fifth", "16384")
    yield name, f"{low:.2f} to {high:.2f} times with the same"

    def fourth(solver):
        """Speeds relative to FP64 for weak and medium correlation."""
        rows = results("h200", "h_refinement_fourth", n="65536", solver=solver)
        return listed(column(rows, "times_fp64"), ".2f", " and ")

    name = "dsposv, headline: FP32 with IR 1.8 times dposv"
    yield name, f"{fourth('fp32, ir')} times FP64 by a script of the study"

    def first(matrix, solver, column):
        about = {"n": "8192", "matrix": matrix[0], "condition": matrix[1]}
        return value("h200", "h_refinement", column, solver=f"{layers}, {solver}", **about)

    name = "Figure 4(a, b), speed; headline 4.7 times dposv"
    packaged = fourth("refine.solve, fp16 tiles, gmres")
    yield name, f"{packaged} times by refine.solve with FP16 tiles and GMRES"
    yield name, f"The package has {packaged} times", VERDICT
    easy, hard = (
        first(("arithmetic", condition), "ir", "times_fp64") for condition in ("100.0", "10000.0")
    )
    words = f"{easy:.2f} (κ₂ = 100) and {hard:.2f} (1e4) times by a script with three FP16 layers"
    yield name, words
    geometric = ("geometric", "170000.0")
    name = "Figure 6(a, b), iterations: 27 and 32 with c = 0.4"
    yield name, f"GMRES {first(geometric, 'gmres', 'iterations'):.0f} by a script"
    name = "Figures 5 to 7, speed: 4.5, 4.4, 2.5, 2.3, 3.3 times dposv"
    slow = first(geometric, "gmres", "times_fp64")
    yield name, f"GMRES {slow:.2f} times FP64 by a script, three FP16 layers, geometric (6b)"


def value_of_condition(spectrum, condition):
    """Return κ∞ of a matrix of the study of refinement."""
    rows = results("refinement", "iterations", spectrum=spectrum, condition=condition)
    (only,) = set(column(rows, "infinity_condition"))
    return only


def triangular():
    rows = results("trsm_trmm", "ratios")

    def span(some):
        low, high = ends(column(some, "ratio"))
        return f"{low:.2f} to {high:.2f}"

    alone = [row for row in rows if (row["format"], row["cores"]) == ("fp64", "1")]
    for corner, what, shape in (
        ("top left: TRMM, rectangular, faster than both libraries", "trmm", "256"),
        ("top right: TRMM, square, 50 to 200 % of cuBLAS", "trmm", "n"),
        ("bottom left: TRSM, rectangular, at least 2/3 of rocBLAS", "trsm", "256"),
        ("bottom right: TRSM, square, at least 2/3 of cuBLAS", "trsm", "n"),
    ):
        some = [r for r in alone if r["what"] == what and r["columns"] == r.get(shape, shape)]
        yield f"Figure 3, {corner}", f"{span(some)} of OpenBLAS"
    large = [row for row in rows if int(row["n"]) >= 1024]
    fp64, fp32 = (span([r for r in large if r["format"] == form]) for form in ("fp64", "fp32"))
    name = "Headline: comparable to the vendor for larger sizes"
    yield name, f"{fp64} (FP64), {fp32} (FP32) of OpenBLAS"
    yield "Section 3.1, Figure 1: recursion around GEMM", spanned("trsm_trmm", "ratios")
    yield "Section 3.1: base kernels below a threshold", spanned("trsm_trmm", "leaves")
    least = min(column([row for row in rows if row["cores"] == "2"], "ratio"))
    name = "Section 1: parallel execution on CPUs"
    yield name, f"at least {floor(100 * least) / 100:.2f} of OpenBLAS on the same two cores"
    about = {"side": "L", "trans": "N", "format": "fp64", "cores": "1"}
    square = {
        what: results("trsm_trmm", "ratios", what=what, n="4096", columns="4096", **about)[0]
        for what in ("trsm", "trmm")
    }
    for name, what in (("Equations 1 and 2: TRMM", "trmm"), ("Equations 3 and 4: TRSM", "trsm")):
        yield name, f"{float(square[what]['ratio']):.2f} of OpenBLAS's speed"
    seconds = {what: float(row["seconds"]) for what, row in square.items()}
    name = "Figure 2 (NVIDIA): seconds against n"
    yield name, f"TRSM {seconds['trsm']:.2f} s, TRMM {seconds['trmm']:.2f} s"
    yield from triangular_on_gpu()


def triangular_on_gpu():
    """Yield the claims of paper 003's routines on an H200."""

    def gpu(what, column, table="e_recursions", **about):
        about = {"layers": "fp64", "leaf": "default"} | about
        return value("h200", table, column, what=what, **about)

    def against(column, form):
        return [
            listed((gpu(what, column, n=n) for n in SMALL), form, " and ")
            for what in ("trsm", "trmm")
        ]

    trsm, trmm = against("seconds", ".3f")
    large = gpu("trsm", "seconds", "e_recursions_large", n="65536")
    name = "Figure 2 (NVIDIA): seconds against n"
    yield name, f"TRSM {trsm} s, TRMM {trmm} s with n = 8,192, 16,384 and 32,768"
    yield name, f"TRSM {large:.2f} s"
    rates = [gpu(what, "tflops", n="32768") for what in ("trsm", "trmm")]
    yield "Section 4: NVIDIA A100", "TRSM {:.1f}, TRMM {:.1f} TFLOP/s".format(*rates)
    spans = {}
    for what in ("trsm", "trmm"):
        low, high = ends(gpu(what, "times_vendor", n=n) for n in SMALL)
        spans[what] = f"{low:.2f} to {high:.2f}"
    name = "Figure 3, top right: TRMM, square, 50 to 200 % of cuBLAS"
    yield name, f"{spans['trmm']} of cuBLAS"
    name = "Figure 3, bottom right: TRSM, square, at least 2/3 of cuBLAS"
    yield name, f"{spans['trsm']} of cuBLAS"
    large = gpu("trsm", "times_vendor", "e_recursions_large", n="65536")
    yield name, f"{large:.2f} of cuBLAS, FP64"
    name = "Headline: comparable to the vendor for larger sizes"
    yield name, f"TRSM {spans['trsm']}, TRMM {spans['trmm']} of cuBLAS"
    name = "Section 3.1: base kernels below a threshold"
    layers = {"layers": FP16_3, "n": "32768"}
    trsm, trmm = (
        listed(
            (gpu(what, "seconds", leaf=leaf, **layers) for leaf in ("512", "1024", "2048")),
            ".3f",
            " and ",
        )
        for what in ("trsm", "trmm")
    )
    yield name, f"TRSM {trsm} s, TRMM {trmm} s with leaves of 512, 1,024 and 2,048"


def batches():
    def rate(n="64", looking="left", tile="4", chunk="8", unroll="False"):
        about = {"n": n, "looking": looking, "tile": tile, "chunk": chunk, "unroll": unroll}
        return value("batched", "variants", "gflops", dtype="float64", **about)

    def solved(part, name="gflops", n="64", dtype="float64"):
        about = {"part": part, "n": n, "dtype": dtype}
        return value("batched", "solve", name, layout="interleaved", **about)

    def sized(what, n="64", dtype="float64", name="gflops"):
        rows = results("batched", "size", n=n, dtype=dtype)
        return max(column([row for row in rows if row["what"].startswith(what)], name))

    orders = {looking: rate(looking=looking) for looking in ("right", "left", "top")}
    name = "Algorithm 1, Figure 2: unblocked, right-looking"
    yield name, f"{rate(looking='right', tile='1'):.1f} GFLOP/s"
    name = "Algorithm 2, Figure 3: blocked, right-looking"
    yield name, f"{orders['right']:.1f} GFLOP/s"
    name = "Algorithms 3 and 4: forward and backward substitution"
    yield name, f"forward {solved('forward'):.1f}, backward {solved('backward'):.1f} GFLOP/s"
    name = "Figures 4, 5, 6: left-looking, top-looking, tiles"
    yield name, f"left {orders['left']:.1f}, top {orders['top']:.1f} GFLOP/s"
    name = "Figures 7 and 17: interleaved without chunks"
    chunks = [rate("32", chunk=chunk) for chunk in ("batch", "8")]
    yield name, f"without chunks {chunks[0]:.1f}, with chunks {chunks[1]:.1f} GFLOP/s"
    best = sized("interleaved")
    yield "Figure 8: interleaved in chunks", f"{best:.1f} GFLOP/s"
    yield "Figures 9 and 10: microkernels, loads and stores", f"{orders['left']:.1f} GFLOP/s"
    unrolled, plain = (rate("16", "top", chunk="16", unroll=unroll) for unroll in ("True", "False"))
    name = "Figures 11 and 12: top-looking with loops, unrolled"
    yield name, f"unrolled {unrolled:.1f} GFLOP/s"
    rows = results("batched", "search", layout="interleaved", winner="True")
    gains = ends(column([row for row in rows if int(row["n"]) <= 24], "speedup"))
    name = "Section VII: code generation and autotuning"
    yield name, "{:.2f} to {:.2f} times the untuned variant".format(*gains)
    rows = results("batched", "variants")
    most = max(int(row["n"]) for row in rows if row["unroll"] == "True")
    largest = max(int(row["chunk"]) for row in rows if row["chunk"] != "batch")
    tiles = ends(int(row["tile"]) for row in rows)
    name = "Section X: five tuning parameters"
    yield name, f"tiles {tiles[0]} to {tiles[1]}, chunks to {largest} and none, unrolled to {most}"
    about = {"n": "32", "dtype": "float64", "layout": "interleaved", "part": "factorization"}
    batches = [
        value("batched", "batch", "gflops", batch=batch, **about) for batch in ("10000", "16384")
    ]
    name = "Section XII: batches of 10,000 and 16,384"
    yield name, f"{batches[0]:.1f} and {batches[1]:.1f} GFLOP/s"
    numpy, mkl = sized("numpy"), sized("mkl compact")
    name = "Sections II and XII: references MKL, LAPACK, MAGMA"
    yield name, f"NumPy {numpy:.1f}, MKL compact {mkl:.1f} GFLOP/s"
    name = "Figure 13, headline: share of solves from 35 to 15 %"
    shares = [1 - solved("factorization", "share", n) for n in ("5", "100")]
    yield name, f"substitutions {shares[0]:.2f} of the time at n = 5, {shares[1]:.2f} at n = 100"
    name = "Figure 14, headlines: solves 30, complete 100 to 120 GFLOP/s"
    rates = [solved(part, n="100", dtype="float32") for part in ("solve", "complete")]
    yield name, f"substitutions {rates[0]:.1f}, complete {rates[1]:.1f} GFLOP/s"
    tiles = [rate(tile=tile) for tile in ("1", "2", "3", "4", "6", "8")]
    yield "Figure 15: tiling", f"{listed(tiles, '.1f')} GFLOP/s, tiles 1, 2, 3, 4, 6, 8"
    name = "Figure 16: order of evaluation"
    yield name, "right {right:.1f}, left {left:.1f}, top {top:.1f} GFLOP/s".format(**orders)
    sizes = ("8", "16", "32", "64", "128", "256", "512")
    rates = listed((rate(chunk=chunk) for chunk in sizes), ".1f")
    yield "Figure 18: chunk sizes 32 to 512", f"{rates} GFLOP/s, chunks of {', '.join(sizes)}"
    name = "Figure 19: unrolling pays up to about 20"
    yield name, f"unrolled {unrolled:.1f}, else {plain:.1f} GFLOP/s"
    name = "Figure 20, headline: 600 GFLOP/s (IEEE)"
    yield name, f"FP32 {sized('interleaved', dtype='float32'):.1f}, FP64 {best:.1f} GFLOP/s"
    name = "Figure 21, headlines: many times the speed of MAGMA and CPUs"
    yield name, f"{best / numpy:.1f} times NumPy, MKL compact {mkl / numpy:.1f} times"
    name = "Section XIII: interleaved levels off, MAGMA passes it"
    rates = [sized("interleaved", n) for n in ("48", "56", "64", "100")]
    yield name, f"{listed(rates, '.1f')} GFLOP/s, interleaved, FP64, n = 48, 56, 64, 100"
    yield "Headline: orders 5 to 100", spanned("batched", "size")
    yield from batches_on_gpu()


def batches_on_gpu():
    rows = results("h200", "i_batches_fourth")

    def best(layout, n, *words, form="float64"):
        """The best rate of the variants whose titles have all words, the title, milliseconds."""
        found = (
            (float(row["gflops"]), row["variant"], 1e3 * float(row["seconds"]))
            for row in results("h200", "i_batches_fourth", n=n, dtype=form)
            if row["what"] == f"search, {layout}" and "fast" not in row["variant"]
        )
        return max(each for each in found if set(words) <= set(each[1].split()))

    panel, triangle, in_rows = (
        max(best("canonical", "32", *words) for words in some)
        for some in ([("panel",)], [("shared",)], [("32x1x1",), ("32x1x16",), ("16x1x2",)])
    )
    name = "Algorithm 5: factorization by a block of threads"
    rates = f"panels {panel[0]:.0f}, whole triangle {triangle[0]:.0f}"
    yield name, f"{rates}, rows in registers {in_rows[0]:,.0f} GFLOP/s"
    orders = sorted({int(row["n"]) for row in rows if row["what"] == "search, canonical"})
    faster = {
        kind: [n for n in orders if all(beats(rows, str(n), form, kind) for form in FORMATS)]
        for kind in ("block", "shared")
    }
    span = "{} to {}".format(*ends(faster["block"]))
    yield name, f"registers are faster than the panel at n = {span}", VERDICT
    yield name, "shared memory at n = {} to {}".format(*ends(faster["shared"])), VERDICT
    for some in faster.values():
        assert some == [n for n in orders if some[0] <= n <= some[-1]]
    _, columns, _, block = panel[1].split()
    name = "Section VII: search space of the block kernel"
    yield name, f"the fastest panel has {columns} columns, block {block}"
    warps, block = (best("solve", "48", word)[2] for word in ("block", "shared"))
    name = "Section VI: solves by warps with shuffles"
    yield name, f"by warps {warps:.3f} ms, by a block {block:.3f} ms"
    warps, block = (best("solve", "64", word)[2] for word in ("block", "shared"))
    yield name, f"by warps {warps:.3f} ms, by a block {block:.3f} ms"
    whole, chunks = (best("interleaved", "64", *words)[0] for words in (("chunks",), ("x2",)))
    name = "Figures 7 and 17: interleaved without chunks"
    yield name, f"without chunks {whole:.0f}, with chunks {chunks:.0f} GFLOP/s"
    tiles = [best("interleaved", "64", tile)[0] for tile in "124"]
    yield "Figure 15: tiling", f"{listed(tiles, '.0f')} GFLOP/s, tiles 1, 2, 4"
    orders = [best("interleaved", "64", order)[0] for order in ("right", "left", "top")]
    yield "Figure 16: order of evaluation", "right {:.0f}, left {:.0f}, top {:.0f}".format(*orders)
    single = [
        best("interleaved", "64", order, form="float32")[0] for order in ("right", "left", "top")
    ]
    words = "right {:.0f}, left {:.0f}, top {:.0f} GFLOP/s in FP32".format(*single)
    yield "Figure 16: order of evaluation", words
    name = "Figure 18: chunk sizes 32 to 512"
    chunks = [best("interleaved", "64", "top", "4", f"x{warps}")[0] for warps in (1, 2, 4)]
    yield name, f"{listed(chunks, '.0f')} GFLOP/s, chunks of 32, 64, 128"
    name = "Figure 13, headline: share of solves from 35 to 15 %"
    shares = []
    for n in ("5", "64"):
        factor, solve = (best(kind, n)[2] for kind in ("canonical", "solve"))
        shares.append(solve / (factor + solve))
    yield name, f"{shares[0]:.2f} of the time at n = 5, {shares[1]:.2f} at n = 64"
    name = "Figure 14, headlines: solves 30, complete 100 to 120 GFLOP/s"
    yield name, f"substitutions {best('solve', '64', form='float32')[0]:.0f} GFLOP/s"
    measured = ends(orders_with_times(rows))
    yield "Headline: orders 5 to 100", "n = {} to {}".format(*measured)
    unrolled, any_way = (best("interleaved", "16", *words)[0] for words in (("unrolled",), ()))
    name = "Figure 19: unrolling pays up to about 20"
    yield name, f"unrolled {unrolled:.1f}, else {any_way:.1f} GFLOP/s, interleaved"
    tuned = {(row["n"], row["dtype"]): row for row in rows if row["what"] == "potrf, tuned"}
    rates = [float(tuned["64", dtype]["gflops"]) for dtype in ("float32", "float64")]
    name = "Figure 20, headline: 600 GFLOP/s (IEEE)"
    yield name, "FP32 {:,.0f}, FP64 {:,.0f} GFLOP/s with copies".format(*rates)
    rates = [float(tuned[n, "float32"]["gflops"]) for n in ("24", "32")]
    yield name, "FP32 {:.0f} and {:.0f} GFLOP/s with copies, n = 24 and 32".format(*rates)
    yield name, f"interleaved FP32 {max(single):.0f} GFLOP/s"
    low, high = ends(times_of_fast_roots(rows))
    name = "Figure 20, second curve: fast math, near 800 GFLOP/s"
    yield name, f"{low:.2f} to {high:.2f} times the time of IEEE arithmetic, n = 5 to 64"
    gains = ends(float(row["speedup"]) for row in tuned.values())
    name = "Figure 21, headlines: many times the speed of MAGMA and CPUs"
    yield name, "{:.1f} to {:.1f} times cuSOLVER, n = 5 to 64".format(*gains)
    triangle = best("canonical", "64", "shared")[0]
    name = "Section XIII: interleaved levels off, MAGMA passes it"
    yield name, f"interleaved {max(orders):.0f}, whole triangle {triangle:,.0f} GFLOP/s"
    (vendor,) = (
        float(row["gflops"])
        for row in rows
        if (row["what"], row["n"], row["dtype"]) == ("potrfBatched", "64", "float64")
    )
    yield "Sections II and XII: references MKL, LAPACK, MAGMA", f"cuSOLVER {vendor:.0f} GFLOP/s"


def beats(rows, n, form, kind):
    """Return whether the fastest variant of a kind is faster than all panels."""

    def fastest(first):
        return max(
            float(row["gflops"])
            for row in rows
            if (row["what"], row["n"], row["dtype"]) == ("search, canonical", n, form)
            and row["variant"].startswith(first)
            and "fast" not in row["variant"]
        )

    return fastest(kind) > fastest("panel")


def orders_with_times(rows):
    """Return the orders of matrices of the rows that have times."""
    return {int(row["n"]) for row in rows if row["seconds"]}


def spanned(study, table):
    """Return the sizes of a study in words."""
    low, high = ends(int(row["n"]) for row in results(study, table))
    return f"n = {low:,} to {high:,}"


def audited():
    """Yield rows of the audit, by their first cell, and what they must say."""
    for study in (nested, norms, out_of_core, refined, triangular, batches):
        yield from study()


def table():
    """Return the cells of the audit's rows by their first."""
    text = (ROOT / "experiments" / "README.md").read_text().split("## The five papers")[1]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rows = [row for row in split if row[0] != "paper"]
    # a row with a cell too many, or the name of another one, would not be checked
    assert {len(row) for row in rows} == {6}
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row for row in rows}


def test_numbers_of_the_audit_are_those_of_the_results():
    rows, claims = table(), defaultdict(list)
    for name, claim, *where in audited():
        claims[name].append((claim, *(where or (MEASURED,))))
    assert set(claims) <= set(rows)
    wrong = {}
    for name, row in rows.items():
        cells = list(row)
        for claim, place in claims[name]:
            says = re.compile(rf"(?<![\d.,]){re.escape(claim)}(?!\d|[.,]\d)")
            if not says.search(cells[place]):
                wrong.setdefault(name, []).append(claim)
            cells[place] = says.sub("", cells[place])
        # every number is claimed, or describes the case
        rest = GIVEN.sub("", re.sub(r"`[^`]*`", "", cells[MEASURED]))
        if re.search(r"\d", rest):
            wrong.setdefault(name, []).append(f"not checked: {rest}")
    assert wrong == {}


def test_cases_of_the_audit_are_in_the_results():
    wrong = []
    for name, row in table().items():
        for entry in re.split(r"; (?=`)", row[MEASURED]):
            file, _, said = entry.partition("`: ")
            path = ROOT / "experiments" / file.strip("`")
            if path.suffix != ".csv" or "constants" in path.name or " and " in file:
                continue
            lines = path.read_text().splitlines()
            measured = csv.DictReader(line for line in lines if line[0] != "#")
            sizes = {each.get("n", "") for each in measured}
            for n in re.findall(r"n = ([\d,]*\d)", said):
                if sizes != {""} and n.replace(",", "") not in sizes:
                    wrong.append(f"{name}: n = {n}")
            about = next(line for line in lines if line.startswith("# machine"))
            for short, machine in MACHINES.items():
                if re.search(rf"\b{short}\b", said) and machine not in about:
                    wrong.append(f"{name}: {short}")
    assert wrong == []


def test_rates_of_products_are_those_of_the_headers():
    every = [path.read_text() for path in ROOT.glob("experiments/*/results/*.csv")]
    heads = [text for text in every if "AMD EPYC" in text and "# openblas" not in text]
    found = (
        re.search(r"^# ceilings.*?fp64, scipy ([\d.]+) GFLOP/s on 1 ", text, re.M) for text in heads
    )
    (rate,) = {f"{float(each[1]):.0f}" for each in found if each}
    older = [t for t in every if "family 25" in t and "(SkylakeX)" in t and "# ceilings" in t]
    text = " ".join((ROOT / "experiments" / "README.md").read_text().split())
    assert f"show {rate} GFLOP/s for FP64 products of SciPy on one core" in text
    ranges = []
    for form in ("fp64", "fp32"):
        rates = [float(re.search(rf"{form}, scipy ([\d.]+)", each)[1]) for each in older]
        ranges.append(f"{min(rates):.0f} to {max(rates):.0f}")
    assert f"show {ranges[0]} and {ranges[1]} GFLOP/s with these kernels" in text
    head, other = (
        (ROOT / "experiments" / folder / "results" / f"{name}.csv")
        .read_text()
        .split("\n# ceilings: ")
        for folder, name in (("nested_cholesky", "speed"), ("static_schedule_mxp", "rate"))
    )
    assert "(SkylakeX)" in head[0]
    assert "(SkylakeX)" in other[0]
    fast = [re.search(rf"{form}, scipy ([\d.]+)", head[1])[1] for form in ("fp64", "fp32")]
    slow = [re.search(rf"{form}, MKL ([\d.]+)", other[1])[1] for form in ("fp64", "fp32")]
    assert f"reach {fast[0]} GFLOP/s in FP64 and {fast[1]} in FP32" in text
    assert (
        f"reaches {float(slow[0]):.0f} and {float(slow[1]):.0f} on one core of this processor"
        in text
    )
