"""Convert TeX to MathML when the site is built, so that pages need no script and no network."""

import html
import re

from latex2mathml.converter import convert

SPAN = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def with_mathml(page):
    r"""Return a page's HTML with \(…\) and \[…\] of pymdownx.arithmatex as MathML.

    Examples
    --------
    >>> "<mi>x</mi>" in with_mathml(r'<span class="arithmatex">\(x\)</span>')
    True
    """
    return SPAN.sub(_formula, page)


def _formula(match):
    tex = html.unescape(match.group(2)).strip()
    display = "block" if tex.startswith("\\[") else "inline"
    return convert(tex[2:-2].strip(), display=display)
