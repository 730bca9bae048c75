"""Panels as vector graphics, and pictures: matplotlib without pyplot, text as text.

Names of classes, runs and data may be anything: no text is read as mathematics, and `literal` makes a name fit to be
shown.

On a page a panel is an inline SVG with the page's own ink, in light and in dark; as a file it is an SVG or a PDF.
"""

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.text import visible
from surelabel.runs.files import write_file

INK = "#010203"
"""Drawn with this, turned into `currentColor`: axes and text follow the page's color scheme."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's palette: told apart also by color-blind readers, on white and on dark gray."""
RIGHT, WRONG = COLORS[0], COLORS[4]
FORMATS = ("svg", "pdf")
"""The kinds of files that a panel can be saved as."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # fonts that can be searched and edited, which journals ask for
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#8c8c8c",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "image.composite_image": False,  # pictures side by side stay pictures of their own
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
_DATE = {"svg": "Date", "pdf": "CreationDate"}


def literal(name: str, length: int = 40) -> str:
    r"""Return a name as a panel can show it: on one line, nothing invisible in it, the middle of a long one left out.

    Example:
        >>> literal("cost $5\nto $6"), literal("x" * 50, 7)
        ('cost $5\\nto $6', 'xxx…xxx')
    """
    if len(name) > length:
        rest = length // 2
        name = f"{name[: length - 1 - rest]}…{name[-rest:]}"
    return visible(name)


class Panel:
    """One pair of axes, to be drawn on inside the block, and a vector graphic after it.

    Example:
        >>> with panel("a line") as drawn:
        ...     _ = drawn.axes.plot([0, 1], [0, 1])
        >>> drawn.svg[:4], "http" in drawn.svg
        ('<svg', False)
    """

    def __init__(self, label: str, axes: Any) -> None:
        self.label, self.axes = label, axes

    @cached_property
    def svg(self) -> str:
        """The panel as an inline SVG."""
        return _inline(self._rendered("svg", transparent=True).decode(), self.label)

    def save(self, path: Path) -> None:
        """Write the panel as a file of its own on a white ground, `.svg` or `.pdf`; one that exists is replaced."""
        write_file(path, self._rendered(path.suffix[1:]))

    def _rendered(self, form: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        with _style(self.label):
            self.axes.figure.savefig(stream, format=form, metadata={_DATE[form]: None}, **options)
        return stream.getvalue()


@contextmanager
def panel(label: str, width: float = 4.6, height: float = 3.2) -> Iterator[Panel]:
    """Open a panel to draw on; `label` names it for those who cannot see it, and its ids on the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with _style(label):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield Panel(label, figure.add_subplot())


@dataclass(frozen=True, eq=False)
class Picture:
    """A sample as a small picture, and what is to be known of it.

    Attributes:
        pixels: uint8, (H, W) or (H, W, 3).
        caption: one sentence.
    """

    pixels: npt.NDArray[np.uint8]
    caption: str

    @property
    def source(self) -> str:
        """The picture as a PNG inside an address (data:image/png)."""
        from PIL import Image

        stream = io.BytesIO()
        Image.fromarray(self.pixels).save(stream, format="PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


@contextmanager
def _style(label: str) -> Iterator[None]:
    """Hold our style for a block only, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # The text stays text: a reader's browser has the letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", r"(?s)Glyph \d+ .*missing from|Matplotlib currently does not support")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": label})
        yield


def _inline(svg: str, label: str) -> str:
    """Leave out what an SVG inside HTML does not need: prolog, metadata, namespaces, size; make its ids unique."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower())
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    opening = f'<svg role="img" aria-label="{html.escape(label)}" {box[0]}>'
    svg = re.sub(r"<svg[^>]*>", lambda _: opening, svg, count=1)

    def own(tag: re.Match[str]) -> str:
        renamed = re.sub(r'\bid="', f'id="{prefix}-', tag[0])
        renamed = re.sub(r"url\(#", f"url(#{prefix}-", renamed)
        renamed = re.sub(r'xlink:href="#', f'href="#{prefix}-', renamed)
        return renamed.replace(INK, "currentColor")

    # Tags alone: a class may be called id="1".
    return re.sub(r"<[^>]*>", own, svg)
