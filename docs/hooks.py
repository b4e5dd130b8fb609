"""Hooks of mkdocs: pages and tables generated from results, docstrings, commands and sources."""

import math
import re
import statistics

import architecture
import combinations
import formulas
import reference
import results
from mkdocs.structure.files import File

from geomxp.covariance.base import FAMILIES
from geomxp.covariance.matern import PACKAGES, Matern, _root_of_2nu
from geomxp.data.datasets import DATASETS

VECCHIA_MODELS = {
    "rough": "ν = 0.5, a = 0.1, τ² = 0.01",
    "nu = 0.8": "ν = 0.8, a = 0.08, τ² = 0.01",
    "smooth": "ν = 1.5, a = 0.05, τ² = 0.01",
    "no nugget": "ν = 0.8, a = 0.08, no nugget",
}
"""The models of experiments/vecchia/results/accuracy.csv, whose variance is 1."""


def on_config(config):
    """Add the generated pages to the navigation."""
    made = reference.pages()
    sections = {
        "Reference": [
            *({heading: list(paths)} for heading, paths in made.items()),
            {"Command line": list(reference.command_pages())},
        ],
        "Results": [f"results/{folder.name}/index.md" for folder in results.experiments()],
    }
    for entry in config.nav:
        for name, extra in sections.items():
            if name in entry:
                entry[name] = [*entry[name], *extra]
    return config


def on_files(files, config):
    """Generate the pages, and add the figures and tables of the studies."""
    made = reference.command_pages()
    for paths in reference.pages().values():
        made |= paths
    studies = {folder.name: results.page(folder) for folder in results.experiments()}
    made |= {f"results/{name}/index.md": text for name, text in studies.items()}
    made["results/index.md"] = results.index(studies)
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    for folder in results.experiments():
        for kind in ("results/*.csv", "results/*.json", "figures/*.png"):
            for path in folder.glob(kind):
                inside = f"results/{folder.name}/{path.relative_to(folder).as_posix()}"
                files.append(File.generated(config, inside, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Replace {{ name }} in a page by a generated table."""
    return re.sub(
        r"^\{\{ (\w+) \}\}$", lambda m: TABLES[m.group(1)](), markdown, flags=re.MULTILINE
    )


def on_page_content(html, page, config, files):
    """Convert formulas to MathML."""
    return formulas.with_mathml(html)


SCALES = {_root_of_2nu: "a·√(2ν)", math.sqrt: "a·√ν", 1.0: "a"}
"""Ranges of other packages, by the scale of their convention."""


def conventions():
    """Return the table of other packages' names and scales of the Matérn family."""
    lines = [
        "| package | variance | range | smoothness | nugget | its range is | its nugget is | "
        "limits of the smoothness |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for package, convention in PACKAGES.items():
        names = " | ".join(f"`{name}`" for name in convention.names)
        scale = "1/a" if convention.inverse_range else SCALES[convention.scale]
        nugget = "τ²/σ²" if convention.relative_nugget else "τ²"
        limit = convention.limit
        limited = "" if limit is None else f"{limit.values}; else it {limit.elsewhere}"
        lines.append(f"| {package} | {names} | {scale} | {nugget} | {limited} |")
    return "\n".join(lines)


def families():
    """Return the table of the covariance families."""
    lines = ["| `family` | class | shape parameters | definition |", "|---|---|---|---|"]
    for name, family in FAMILIES.items():
        shapes = ", ".join(f"`{parameter.name}`" for parameter in family.shapes)
        about = family.__doc__.splitlines()[0].partition(": ")[2].partition(", and τ²")[0]
        link = f"[`{family.__name__}`](../reference/{family.__name__}.md)"
        lines.append(f"| `{name}` | {link} | {shapes} | {about.partition(';')[0]} |")
    return "\n".join(lines)


def family_conventions():
    """Return the table of other packages' names and scales of the families beside Matérn's."""
    lines = ["| family | package | names | its range |", "|---|---|---|---|"]
    for name, family in FAMILIES.items():
        for package, convention in family.conventions.items():
            if family is not Matern and package != "geomxp":
                names = ", ".join(f"`{each}`" for each in convention.names)
                scale = "a" if convention.scale == 1 else f"{convention.scale:.6g}·a"
                lines.append(f"| {name} | {package} | {names} | {scale} |")
    return "\n".join(lines)


def datasets():
    """Return the table of the data sets that come with geomxp."""
    lines = ["| name | what | value | metric | source | licence |", "|---|---|---|---|---|---|"]
    for name, data in DATASETS.items():
        cells = (f"`{name}`", data.about, f"`{data.value}`", data.metric, data.source, data.licence)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def divergences():
    """Return the largest measured divergence of each ε, by smoothness and nugget."""
    path = results.EXPERIMENTS / "static_schedule_mxp" / "results" / "kl.csv"
    _, header, rows = results.read(path)
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    n = max(int(row["n"]) for row in rows)
    largest = {}
    for row in rows:
        if int(row["n"]) == n:
            line = largest.setdefault((row["smoothness"], row["nugget"]), {})
            epsilon = float(row["accuracy"])
            line[epsilon] = max(line.get(epsilon, 0.0), float(row["kl"]))
    accuracies = sorted({epsilon for line in largest.values() for epsilon in line}, reverse=True)
    head = " | ".join(f"ε = {epsilon:.0e}" for epsilon in accuracies)
    lines = [f"| {n:,} places | {head} |", "|---" * (len(accuracies) + 1) + "|"]
    for (nu, nugget), line in largest.items():
        cells = " | ".join(f"{line[epsilon]:.1e}" for epsilon in accuracies)
        lines.append(f"| ν = {float(nu):g}, τ²/σ² = {float(nugget):g} | {cells} |")
    return "\n".join(lines)


def _vecchia(table):
    """Return the rows of a table of the study of Vecchia's approximation, as dicts."""
    _, header, rows = results.read(results.EXPERIMENTS / "vecchia" / "results" / table)
    return [dict(zip(header, row, strict=True)) for row in rows]


def vecchia_divergences():
    """Return the measured divergences of Vecchia's approximation in maximin order."""
    found = {}
    for row in _vecchia("accuracy.csv"):
        if row["ordering"] == "maximin":
            found.setdefault(row["model"], {})[int(row["neighbours"])] = float(row["kl"])
    counts = sorted({count for line in found.values() for count in line})
    head = " | ".join(f"m = {count}" for count in counts)
    lines = [f"| model | {head} |", "|---" * (len(counts) + 1) + "|"]
    for model, line in found.items():
        cells = " | ".join(f"{float(f'{line[count]:.2g}'):g}" for count in counts)
        lines.append(f"| {VECCHIA_MODELS[model]} | {cells} |")
    return "\n".join(lines)


def vecchia_seconds():
    """Return the measured seconds and memory of Vecchia's approximation with 30 neighbours."""
    lines = [
        "| places | order and neighbours, once | likelihood | derivatives besides | memory |",
        "|---|---|---|---|---|",
    ]
    for row in _vecchia("time.csv"):
        if row["neighbours"] == "30":
            names = "order_and_search", "evaluation", "gradient_and_information"
            seconds = " | ".join(f"{float(row[f'seconds_{name}']):.2g} s" for name in names)
            memory = f"{float(row['resident_gb']):.2g} GB"
            lines.append(f"| {int(row['n']):,} | {seconds} | {memory} |")
    return "\n".join(lines)


FIT_KINDS = {
    ("0.5", "True"): "ν = ½, held",
    ("0.5", "False"): "ν = ½, estimated",
    ("1.5", "True"): "ν = 1.5, held",
}
"""Kinds of fits in experiments/fit_time/results/times.csv, by smoothness and whether it is held."""


def fit_times():
    """Return how many times as fast whole fits are in mixed formats as in FP64, and their memory.

    Medians over the correlations and nuggets.
    """
    _, header, rows = results.read(results.EXPERIMENTS / "fit_time" / "results" / "times.csv")
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    methods = [name for name in dict.fromkeys(row["method"] for row in rows) if name != "fp64"]
    lines = [f"| fit | locations | {' | '.join(methods)} |", "|---" * (len(methods) + 2) + "|"]
    for (smoothness, held), name in FIT_KINDS.items():
        own = [row for row in rows if (row["smoothness"], row["held"]) == (smoothness, held)]
        for n in sorted({int(row["n"]) for row in own}):
            found = []
            for method in methods:
                mine = [row for row in own if int(row["n"]) == n and row["method"] == method]
                fast = statistics.median(float(row["times_as_fast"]) for row in mine)
                share = statistics.median(float(row["memory_share"]) for row in mine)
                found.append(f"{fast:.2f}, {share:.0%} of the memory")
            lines.append(f"| {name} | {n:,} | {' | '.join(found)} |")
    return "\n".join(lines)


TABLES = {
    "conventions": conventions,
    "datasets": datasets,
    "divergences": divergences,
    "combinations": combinations.table,
    "families": families,
    "family_conventions": family_conventions,
    "fit_times": fit_times,
    "layers": architecture.diagram,
    "rooms": architecture.table,
    "vecchia_divergences": vecchia_divergences,
    "vecchia_seconds": vecchia_seconds,
}
