# SPDX-License-Identifier: Apache-2.0
"""The style of all figures: colours that colour-blind readers can distinguish, and limits as dotted lines.

In SVG files, text stays text. Separate files have colours for white paper. In the report, colours are CSS
variables, which have one value for a light page and one for a dark page.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.experiments.measures import size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = (4.3, 3.1)
CHARACTERS_PER_INCH = 15  # in a note
INK, FAINT = "#1b1b1f", "#8a8a92"
# Okabe and Ito's palette, and two colours of Tol's. BLUE, ORANGE, GREEN and PURPLE belong to kinds of rails.
BLUE, ORANGE, GREEN, PURPLE, RED, SKY, GREY, WINE, OLIVE = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a7a7a", "#882255", "#8a8a1a",
)  # fmt: skip
DARK = {  # on a dark page
    INK: "#e8e8ea", FAINT: "#8d8d96", BLUE: "#4aa3df", ORANGE: "#f0b429", GREEN: "#2fc79a", PURPLE: "#e39ac4",
    RED: "#f2803a", SKY: "#8fd0f5", GREY: "#a9a9b0", WINE: "#c95a8e", OLIVE: "#c4c44f",
}  # fmt: skip
COLOURS = {
    "ina": BLUE, "tcp": ORANGE, "rdma": GREEN, "netreduce": PURPLE, "parallel NetReduce": PURPLE,
    "multicast": BLUE, "dedicated": BLUE,  # by the in-network rail
    "atp": RED, "switchml": WINE, "thc": OLIVE, "omnireduce": SKY,
    "tcp+tcp": WINE, "gloo": OLIVE, "mptcp": SKY, "openmpi": INK, "ring": GREY, "flat ring": GREY,
    "hierarchical": WINE, "hierarchical ring": WINE, "ps": OLIVE, "hosts": SKY, "switches": WINE,
    "2 hosts": SKY, "3 hosts": OLIVE, "4 hosts": WINE, "6 hosts": RED, "broadcast": SKY, "allgather": WINE,
    "measured": WINE, "simulated": SKY, "predicted": SKY,
}  # fmt: skip
RAILS = ("ina", "tcp", "rdma", "netreduce")
MARKERS = "osD^vP*X"
STYLE: Any = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: publishers reject type 3
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # every text of a SVG repeats the list
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def sheet(columns: int, rows: int = 1, height: float = PANEL_INCHES[1]) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row. matplotlib's settings are this module's from here on."""
    import matplotlib  # noqa: PLC0415 - a second to import
    from matplotlib.figure import Figure as Drawing  # noqa: PLC0415

    matplotlib.rcParams.update(STYLE)
    figure = Drawing((PANEL_INCHES[0] * columns, height * max(rows, 1)), layout="constrained")
    return figure, list(figure.subplots(max(rows, 1), columns, squeeze=False).flat)


def note(figure: Figure, text: str) -> None:
    """Write a text below the panels."""
    per_line = round(figure.get_figwidth() * CHARACTERS_PER_INCH)
    figure.supxlabel(textwrap.fill(text, per_line), fontsize=8, color=FAINT)


def save(figure: Figure, text: str, path: Path) -> None:
    """Write a figure with a text below: PNG, SVG or PDF, by the file's suffix."""
    note(figure, text)
    figure.savefig(path, dpi=150, facecolor="white")


def svg(figure: Figure, name: str) -> str:
    """Return the figure as SVG for paper; the same figure gives the same text."""
    import matplotlib  # noqa: PLC0415

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    found = text.getvalue()
    found = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", found[found.index("<svg") :], flags=re.DOTALL)
    found = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), found)  # 1/100 pt is enough
    return re.sub(r"\s*\n\s*", "\n", found)


def pdf(figure: Figure) -> bytes:
    """Return the figure as PDF for a paper; the same figure gives the same bytes."""
    data = io.BytesIO()
    figure.savefig(data, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return data.getvalue()


def standalone(drawn: str) -> str:
    """Return a smaller SVG on white, for an image on a web page.

    Styles become classes, identifiers become short, and groups without attributes go.
    """
    styles = list(dict.fromkeys(re.findall(r' style="([^"]*)"', drawn)))
    rules = "".join(f".s{number}{{{style}}}" for number, style in enumerate(styles))
    drawn = re.sub(r' style="([^"]*)"', lambda found: f' class="s{styles.index(found[1])}"', drawn)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]*)"', drawn))):
        drawn = re.sub(rf'(#| id="){name}\b', rf"\1i{number}", drawn)
    groups = 1
    while groups:
        drawn, groups = re.subn(r"<g>\n((?:(?!</?g\b).)*)</g>\n", r"\1", drawn, flags=re.DOTALL)
    drawn = drawn.replace("</style>", f"{rules}</style>", 1)
    return re.sub(r"(<svg[^>]*>)", r'\1\n<rect width="100%" height="100%" fill="#ffffff"/>', drawn, count=1)


def themed(drawn: str) -> str:
    """Return an SVG whose colours are the page's variables, in place of those for paper."""
    for colour in DARK:
        drawn = drawn.replace(colour, f"var({variable(colour)})")
    return drawn


def variable(colour: str) -> str:
    """Return the name of a colour's CSS variable."""
    return f"--c{colour[1:]}"


def colour(name: str) -> str:
    """Return the colour of a curve: that of its rail, which is darker for the second rail of a kind."""
    kind = name.rstrip("0123456789")
    found = COLOURS.get(name) or COLOURS.get(kind) or RED
    darker = 0.6 ** int(name[len(kind) :] or 0) if kind in RAILS else 1
    return f"#{''.join(f'{round(darker * int(found[at : at + 2], 16)):02x}' for at in (1, 3, 5))}"


# ------------------------------------------------------------ parts of panels


def ticks(panel: Axes, values: Sequence[float], label: str, scale: str = "log") -> None:
    """Show these values on the axis across, at most seven of them as text."""
    shown = values[:: -(-len(values) // 7) or 1]
    panel.set_xscale(scale)
    panel.set_xticks(shown, [f"{value:g}" for value in shown])
    panel.set_xticks([], minor=True)
    panel.set_xlabel(label)


def from_zero(panel: Axes) -> None:
    """Let the axis up begin at 0, and end above all values."""
    low, high = panel.dataLim.intervaly
    if low <= high:  # something is drawn
        panel.set_ylim(0 if low > 0 else -0.04 * high, 1.1 * high)


def size_axis(panel: Axes, sizes: Iterable[int]) -> None:
    """Show sizes on the axis across, at most six of them as text."""
    ticks = sorted(set(sizes))
    panel.set_xscale("log", base=2)
    panel.set_xticks(ticks[:: -(-len(ticks) // 6) or 1], minor=False)
    panel.set_xticks([], minor=True)
    panel.xaxis.set_major_formatter(lambda value, _: size_text(value))
    panel.set_xlabel("size of the allreduce")


def decades(panel: Axes) -> None:
    """Make the axis up a logarithmic one."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: PLC0415

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # gains seldom span a decade
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
