"""Panels as vector graphics, and pictures: matplotlib without pyplot, text as text.

Names of classes, runs and data may be any text: none is read as mathematics, and `literal` makes a name printable.

On a page a panel is an inline SVG in the page's own colors, light or dark; as a file it is an SVG or a PDF.
"""

import base64
import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.text import visible
from surelabel.core.calibration import calibration_error, reliability_bins
from surelabel.report.tables import Statistic
from surelabel.runs.files import write_file

INK = "#010203"
"""This color becomes `currentColor`, so that axes and text follow the page's color scheme."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's palette, which color-blind readers can distinguish, on white and on dark gray."""
RIGHT, WRONG = COLORS[0], COLORS[4]
FORMATS = ("svg", "pdf")
"""The kinds of files that a panel can be saved as."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # searchable and editable fonts, as journals require
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
    "image.composite_image": False,  # pictures side by side stay separate
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
_DATE = {"svg": "Date", "pdf": "CreationDate"}


def literal(name: str, length: int = 40) -> str:
    r"""Return a name for a panel: on one line, without invisible characters, shortened in the middle.

    Example:
        >>> literal("cost $5\nto $6"), literal("x" * 50, 7)
        ('cost $5\\nto $6', 'xxx…xxx')
    """
    rest = length // 2
    return visible(name if len(name) <= length else f"{name[: length - 1 - rest]}…{name[-rest:]}")


class Panel:
    """One pair of axes, to be drawn on inside the block; afterwards a vector graphic.

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
        """Write the panel as a separate file, `.svg` or `.pdf`; an existing one is replaced."""
        write_file(path, self.file(path.suffix[1:]))

    def file(self, form: str) -> bytes:
        """Return the panel as a separate file with a white background, "svg" or "pdf"."""
        return self._rendered(form)

    def _rendered(self, form: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        with _style(self.label):
            self.axes.figure.savefig(stream, format=form, metadata={_DATE[form]: None}, **options)
        return stream.getvalue()


@contextmanager
def panel(label: str, width: float = 4.6, height: float = 3.2) -> Iterator[Panel]:
    """Open a panel to draw on; `label` is its name for screen readers, and for its ids on the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with _style(label):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield Panel(label, figure.add_subplot())


@dataclass(frozen=True, eq=False)
class Picture:
    """A sample as a small picture with a caption.

    Attributes:
        pixels: uint8, (H, W) or (H, W, 3).
        caption: one sentence.
    """

    pixels: npt.NDArray[np.uint8]
    caption: str

    @property
    def source(self) -> str:
        """The picture as a PNG in a data address (data:image/png)."""
        from PIL import Image

        stream = io.BytesIO()
        Image.fromarray(self.pixels).save(stream, format="PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


@contextmanager
def _style(label: str) -> Iterator[None]:
    """Use our style within a block, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # Text stays text: the reader's browser has the letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", r"(?s)Glyph \d+ .*missing from|Matplotlib currently does not support")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": label})
        yield


def _inline(svg: str, label: str) -> str:
    """Remove what an SVG inside HTML does not need (prolog, metadata, namespaces, size), and make its ids unique."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower())
    opening = f'<svg role="img" aria-label="{html.escape(label)}" '
    svg = re.sub(r'<svg[^>]*(viewBox="[^"]*")[^>]*>', lambda found: f"{opening}{found[1]}>", svg, count=1)

    def own(tag: re.Match[str]) -> str:
        renamed = re.sub(r'\bid="', f'id="{prefix}-', tag[0])
        renamed = renamed.replace("url(#", f"url(#{prefix}-").replace('xlink:href="#', f'href="#{prefix}-')
        return renamed.replace(INK, "currentColor")

    # Only in tags: a class may be called id="1".
    return re.sub(r"<[^>]*>", own, svg)


BINS = 25


def curves(lines: Mapping[str, tuple[Any, Any]], xlabel: str, ylabel: str, markers: str = "") -> Panel:
    """Draw a line through the points (x, y), shape (K,) each, for each name, over an axis that begins at 0.

    Args:
        lines: x and y of each name.
        xlabel: what x is.
        ylabel: what y is.
        markers: matplotlib's names of marks for the points, which change when the colors begin again; "": none.
    """
    height = 3.2 + 0.2 * max(0, len(lines) // 2 - 2)  # for many lines, two names per row
    with panel(f"{ylabel} over {xlabel}", height=height) as drawn:
        marks: list[Any] = []
        styles = [
            {"color": color, "linestyle": line, "marker": marker, "markersize": 4}
            for line, marker in zip(("-", "--", ":"), markers or ("",) * 3, strict=True)
            for color in COLORS
        ]
        for style, (name, line) in zip(cycle(styles), lines.items(), strict=False):
            marks += drawn.axes.plot(*line, **style, label=name)
        drawn.axes.set(xlabel=xlabel, ylabel=ylabel)
        drawn.axes.locator_params(axis="x", nbins=6)
        drawn.axes.set_ylim(bottom=0)
        _legend_above(drawn.axes, marks)
    return drawn


def lines_by_round(lines: Mapping[str, Sequence[Statistic | None]], label: str, first: int) -> Panel:
    """Draw a line for each name with a band of one std, from round `first` on; a single round is a dashed level."""
    with panel(f"{label} by round") as drawn:
        axes, marks = drawn.axes, []
        longest = max(len(line) for line in lines.values())
        for color, (name, line) in zip(cycle(COLORS), lines.items(), strict=False):
            found = {first + i: value for i, value in enumerate(line) if value is not None}
            means = np.array([value.mean for value in found.values()])
            if len(found) == 1 and longest > 1:
                marks.append(axes.axhline(means[0], color=color, linestyle="--", label=name))
            elif found:
                std = np.array([value.std or 0.0 for value in found.values()])
                marks += axes.plot([*found], means, color=color, marker="o", markersize=4, label=name)
                axes.fill_between([*found], means - std, means + std, color=color, alpha=0.15, linewidth=0)
        whole = all(value is None or float(value.mean).is_integer() for line in lines.values() for value in line)
        for axis in (axes.xaxis, axes.yaxis) if whole else (axes.xaxis,):
            axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.set(xlabel="round", ylabel=label)
        _legend_above(axes, marks)
    return drawn


def points(x: Sequence[float], y: Sequence[Statistic], xlabel: str, ylabel: str, *, logarithmic: bool) -> Panel:
    """Draw means with bars of one std over the values x, which are written below the axis."""
    from matplotlib.ticker import NullLocator

    with panel(f"{ylabel} over {xlabel}") as drawn:
        axes = drawn.axes
        bars = [value.std or 0.0 for value in y]
        axes.errorbar(x, [value.mean for value in y], bars, color=COLORS[0], marker="o", markersize=4, capsize=3)
        if logarithmic:
            axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set(xlabel=xlabel, ylabel=ylabel)
    return drawn


def histogram(
    values: npt.NDArray[Any], right: npt.NDArray[np.bool_], label: str, marks: Mapping[str, float] | None = None
) -> Panel:
    """Draw the distributions of right and of wrong labels over `values`, on a logarithmic axis.

    Args:
        values: confidences or uncertainties, shape (N,); infinite ones are counted, but not drawn.
        right: the label is the true one, shape (N,).
        label: the name of the values.
        marks: thresholds to draw as lines, by their names; infinite ones are left out.
    """
    from matplotlib.ticker import LogFormatter

    drawable = np.isfinite(values)
    shown = values[drawable]
    edges = np.linspace(float(shown.min(initial=0)), float(shown.max(initial=1e-9)), BINS + 1)
    with panel(f"right and wrong labels over {label}") as drawn:
        axes = drawn.axes
        for name, chosen, color in (("right", right, RIGHT), ("wrong", ~right, WRONG)):
            beyond = int((chosen & ~drawable).sum())
            text = f"{name} ({chosen.sum()}{f', {beyond} infinite' if beyond else ''})"
            axes.hist(values[chosen & drawable], bins=edges, color=color, alpha=0.55, label=text)
        finite = {name: value for name, value in (marks or {}).items() if np.isfinite(value)}
        for style, (name, value) in zip(("--", ":"), finite.items(), strict=False):
            axes.axvline(value, color=INK, linestyle=style, linewidth=1.2, label=f"{name} ({value:.3g})")
        axes.locator_params(axis="x", nbins=6)
        axes.set_yscale("log")
        # matplotlib's own tick labels are mathematical text.
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        axes.set(xlabel=label, ylabel="labels")
        axes.set_ylim(bottom=0.5)
        _legend_above(axes, axes.get_legend_handles_labels()[0])
    return drawn


def reliability(confidence: npt.NDArray[Any], right: npt.NDArray[np.bool_], label: str) -> Panel:
    """Draw the share of right labels in ten bins of the confidence; a bar's shade shows how many labels it has."""
    bins = reliability_bins(confidence, right, bins=10)
    error = calibration_error(confidence, right)
    with panel(f"reliability of {label}") as drawn:
        axes = drawn.axes
        shade = 0.25 + 0.75 * np.sqrt(bins.count / max(1, bins.count.max()))
        for lower, upper, accuracy, alpha in zip(bins.lower, bins.upper, bins.accuracy, shade, strict=True):
            if np.isfinite(accuracy):
                axes.bar(lower, accuracy, upper - lower, align="edge", color=RIGHT, alpha=alpha, edgecolor=INK, lw=0.4)
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--")
        axes.set(xlabel=f"confidence ({label})", ylabel="share right", xlim=(0, 1), ylim=(0, 1.02))
        axes.set_title(f"ECE {error:.3f} over {len(right)} labels", fontsize=9)
    return drawn


def classes(names: Sequence[str], before: Sequence[float], after: Sequence[float], label: str) -> Panel:
    """Draw two bars for each class, before and after balancing."""
    with panel(label, width=6.5) as drawn:
        place = np.arange(len(before))
        drawn.axes.bar(place - 0.2, before, 0.4, color=COLORS[5], label="before balancing")
        drawn.axes.bar(place + 0.2, after, 0.4, color=COLORS[0], label="after")
        step = max(1, len(before) // 20)
        shown = [literal(name, 16) for name in names[::step]]
        crowded = max(map(len, shown)) * len(shown) > 70
        slanted = {"rotation": 30, "ha": "right"} if crowded else {}
        drawn.axes.set_xticks(place[::step], shown, **slanted)
        drawn.axes.set(xlabel="class", ylabel="positive labels")
        drawn.axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    return drawn


def gallery(pictures: Sequence[Picture], label: str, columns: int = 6) -> Panel:
    """Show pictures in rows, each above its caption."""
    rows = -(-len(pictures) // columns)
    with panel(label, width=1.55 * columns, height=2.3 * rows) as drawn:
        axes = drawn.axes
        for index, picture in enumerate(pictures):
            top, left = 1.5 * (index // columns), index % columns
            gray = {"cmap": "gray", "vmin": 0, "vmax": 255} if picture.pixels.ndim == 2 else {}
            extent = (left + 0.05, left + 0.95, top + 0.95, top + 0.05)
            axes.imshow(picture.pixels, extent=extent, interpolation="nearest", **gray)
            about, *numbers = picture.caption.rsplit(", ", 2)
            true, _, other = about.partition(" taken for ")
            lines = [literal(line, 24) for line in (true, f"taken for {other}", *numbers)]
            axes.text(left + 0.05, top + 1, "\n".join(lines), fontsize=7, va="top")
        axes.set(xlim=(0, min(columns, len(pictures))), ylim=(1.5 * rows, 0), aspect="equal")
        axes.axis("off")
    return drawn


def _legend_above(axes: Any, marks: Sequence[Any]) -> None:
    """Put the legend above the axes, including labels that begin with _, which matplotlib leaves out."""
    unnamed = ["-"] * len(marks)
    legend = axes.figure.legend(marks, unnamed, loc="outside upper center", ncols=max(1, min(2, len(marks))))
    for text, mark in zip(legend.get_texts(), marks, strict=True):
        text.set_text(literal(mark.get_label()))
