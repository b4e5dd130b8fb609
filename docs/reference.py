"""Pages of the reference: one per public class, function and command."""

import inspect
import re

import geomxp

NOUNS = {
    "Observations": (),
    "TimeAxis": (),
    "Matern": ("Anisotropy", "Anisotropy3D", "AxisRatios", "AxisRatios3D"),
    "Gaussian": (),
    "PoweredExponential": (),
    "Cauchy": (),
    "RationalQuadratic": (),
    "Spherical": (),
    "Wendland": (),
    "MaternSpaceTime": (),
    "Separable": (),
    "Gneiting": (),
    "Independent": (),
    "Coregionalization": (),
    "ParsimoniousMatern": (),
    "FlexibleMatern": (),
    "Covariance": ("family_of", "Isotropic", "Parameter", "NoiseParameter", "Inputs"),
    "Metric": (),
    "Transformation": ("Log", "Sqrt", "BoxCox", "Logit", "TukeyGH"),
    "Exact": ("MemoryPlan",),
    "Vecchia": (),
    "Fit": ("HurdleFit", "Estimate", "TrendTest"),
    "Evaluation": (),
    "Outcome": ("Ending",),
    "Exploration": (),
    "Variogram": (),
    "Prediction": (),
    "Raster": ("RasterSeries",),
    "Validation": (),
    "Bootstrap": (),
    "ModelComparison": (),
    "LikelihoodRatio": (),
    "Misspecification": (),
    "Divergence": ("EstimatedDivergence", "FormatDivergence"),
}
"""Pages of classes, and other names on the same page."""

VERBS = {
    "read_table": (),
    "explore": (),
    "variogram": (),
    "fit": (),
    "log_likelihood": (),
    "information": (),
    "bootstrap": (),
    "likelihood_ratio_test": (),
    "compare_models": (),
    "predict": ("prediction_covariance",),
    "predict_raster": (),
    "simulate": (),
    "leave_one_out": ("cross_validate", "validate"),
    "kl_divergence": ("kl_between", "compare", "estimate_divergence"),
    "precision_influence": (),
    "mloe_mmom": (),
    "report": (),
}

RULES = ("by_tile_norm", "for_divergence", "uniform", "by_band", "layered")

HELPERS = {"LONGEST_NAME", "new_figure", "plain", "unit_of"}
"""Public names of `plots` that draw no figure."""

MODULES = {
    "plots": ("geomxp.plots", sorted(set(geomxp.plots.__all__) - HELPERS)),
    "responses": (
        "geomxp.covariance.responses",
        (
            *("Poisson", "NegativeBinomial", "ZeroInflatedPoisson", "TruncatedPoisson"),
            *("Bernoulli", "Binomial", "Gamma", "LogNormal", "Tweedie", "Beta", "StudentT"),
            *("Censored", "Hurdle", "Response", "Data", "Slopes"),
        ),
    ),
    "scores": ("geomxp.prediction.scores", ()),
    "datasets": ("geomxp.data.datasets", ("load", "path", "find", "Dataset")),
    "sklearn": ("geomxp.sklearn", ("GeoRegressor",)),
    "linalg": ("geomxp.linalg.nested", ("potrf", "trsm", "trmm", "syrk")),
    "linalg.batched": (
        "geomxp.linalg.batched",
        (
            *("potrf", "solve", "forward", "backward", "interleave", "separate"),
            *("interleave_vectors", "separate_vectors", "potrf_interleaved", "posv_interleaved"),
            *("solve_interleaved", "forward_interleaved", "backward_interleaved"),
        ),
    ),
    "tiles.refine": ("geomxp.tiles.refine", ("solve", "Refinement")),
    "tiles.simulate": ("geomxp.tiles.simulate", ()),
    "errors": (
        "geomxp.errors",
        tuple(
            name
            for name, kind in inspect.getmembers(geomxp.errors, inspect.isclass)
            if kind.__module__ == "geomxp.errors"
        ),
    ),
}
"""Pages of modules: import path and names; all public names if none are given."""


def _of(name, level):
    return f"::: geomxp.{name}\n    options:\n      heading_level: {level}\n"


def _page(names):
    """Return a page with the first name as heading and the others below."""
    others = [_of(name, 2) for name in names[1:]]
    return "\n".join((f"---\ntitle: {names[0]}\n---\n", _of(names[0], 1), *others))


def _module(path, names):
    """Return the directive of a module with the given names."""
    members = f"      members: [{', '.join(names)}]\n" if names else ""
    return (
        f"::: {path}\n    options:\n      heading_level: 2\n      show_root_heading: false\n"
        f"      show_root_toc_entry: false\n{members}"
    )


def pages():
    """Return the pages of the Python reference: heading of a group to {path: Markdown}."""
    groups = {}
    for heading, names in (("Nouns", NOUNS), ("Verbs", VERBS)):
        groups[heading] = {
            f"reference/{name}.md": _page((name, *others)) for name, others in names.items()
        }
    rules = "\n".join(_of(name, 2) for name in RULES)
    groups["Verbs"]["reference/rules.md"] = f"# Rules of precision\n\n{rules}"
    groups["Modules"] = {
        f"reference/{name}.md": f"# geomxp.{name}\n\n{_module(path, names)}"
        for name, (path, names) in MODULES.items()
    }
    return groups


def names_with_a_page():
    """Return the public names of geomxp that have a page."""
    found = {*vars(geomxp.errors), *RULES, "plots", "scores", "datasets", "responses"}
    for group in (NOUNS, VERBS):
        for name, others in group.items():
            found |= {name, *others}
    return found


def command_pages():
    """Return the pages of the command line, {path: Markdown}, generated from the commands."""
    import typer

    from geomxp.cli.main import app

    program = typer.main.get_command(app)
    return {
        f"reference/command-{name}.md": _command(name, command)
        for name, command in program.commands.items()
    }


def _command(name, command):
    """Return the page of one command: its help, arguments, and options by panel."""
    parts = [f"# geomxp {name}", _help(command.help or "")]
    panels = {}
    for parameter in command.params:
        panel = getattr(parameter, "rich_help_panel", None) or "Options"
        if parameter.param_type_name == "argument":
            panel = "Arguments"
        panels.setdefault(panel, []).append(parameter)
    for panel, parameters in panels.items():
        rows = [_option(parameter) for parameter in parameters if not parameter.hidden]
        if rows:
            parts.append(
                "\n".join((f"## {panel}", "", "| option | value | what |", "|---|---|---|", *rows))
            )
    return "\n\n".join(parts) + "\n"


def _help(text):
    """Return the help of a command as Markdown, with examples as code."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).replace("\b\n", "\n").split("\n\n"):
        lines = [line for line in paragraph.strip("\n").splitlines() if line.strip()]
        words = [line.strip() for line in lines]
        code = [k for k, word in enumerate(words) if word.startswith("geomxp ")]
        if not code:
            paragraphs.append(" ".join(words))
            continue
        if code[0]:
            paragraphs.append(" ".join(words[: code[0]]))
        paragraphs.append("```console\n" + "\n".join(_prompted(words[code[0] :])) + "\n```")
    return "\n\n".join(filter(None, paragraphs))


def _prompted(lines):
    """Return command lines with a prompt before each, and continuations below it."""
    result, continued = [], False
    for line in lines:
        result.append(("    " if continued else "$ ") + line)
        continued = line.endswith("\\")
    return result


def _option(parameter):
    """Return the row of an option or argument."""
    flag = getattr(parameter, "is_flag", False)
    names, kind = ", ".join(parameter.opts), "" if flag else parameter.metavar or "VALUE"
    if parameter.param_type_name == "argument":
        names, kind = parameter.metavar or parameter.name.upper(), ""
    about = re.sub(r"\s+", " ", getattr(parameter, "help", "") or "").replace("|", "\\|")
    default = parameter.default
    if default not in (None, False, True) and not callable(default) and default != ():
        about += f" Default: {default}."
    return f"| `{names}` | {kind} | {about} |".replace("<", "&lt;")
