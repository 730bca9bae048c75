"""Panels as inline SVG: matplotlib without pyplot, text as text, and the page's own ink in light and in dark."""

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK = "#010203"
"""Drawn with this, turned into `currentColor`: axes and text follow the page's color scheme."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's palette: told apart also by color-blind readers, on white and on dark gray."""
RIGHT, WRONG = COLORS[0], COLORS[4]

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#8c8c8c",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


class Panel:
    """One pair of axes that becomes an SVG when the block ends.

    Example:
        >>> with panel("a line") as drawn:
        ...     _ = drawn.axes.plot([0, 1], [0, 1])
        >>> drawn.svg[:4], "http" in drawn.svg
        ('<svg', False)
    """

    def __init__(self, axes: Any) -> None:
        self.axes, self.svg = axes, ""


@contextmanager
def panel(label: str, width: float = 4.6, height: float = 3.2) -> Iterator[Panel]:
    """Open a panel to draw on; `label` names it for those who cannot see it, and its ids on the page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # The style holds for this block only, whatever the user's own settings are.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": label})
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        drawn = Panel(figure.add_subplot())
        yield drawn
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawn.svg = _inline(stream.getvalue(), label)


def _inline(svg: str, label: str) -> str:
    """Leave out what an SVG inside HTML does not need: prolog, metadata, namespaces, size; make its ids unique."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower())
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{prefix}-', svg)
    svg = svg.replace(INK, "currentColor")
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    opening = f'<svg role="img" aria-label="{html.escape(label)}" {box[0]}>'
    return re.sub(r"<svg[^>]*>", lambda _: opening, svg, count=1)
