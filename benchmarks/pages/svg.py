"""Pictures as SVG, without a plotting library; for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

Styles = Mapping[str, tuple[str, str]]
"""Class -> its style on light pages, and on dark ones; "" for none."""
_TEXT: Styles = {
    "text": ("font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328;",
             "fill: #e6edf3;"),
    ".title": ("font-size: 15px; font-weight: 600;", ""),
    ".faint": ("fill: #59636e; font-size: 12px;", "fill: #9198a1;"),
}  # fmt: skip


def picture(
    title: str, about: str, size: tuple[int, int], styles: Styles, marks: Iterable[str]
) -> str:
    """The SVG text.

    Args:
        title: and its line below it.
        about: that line.
        size: width and height.
        styles: of the marks' classes.
        marks: elements.
    """
    width, height = size
    every = {**_TEXT, **styles}
    light = [f"  {name} {{ {style} }}" for name, (style, _) in every.items() if style]
    dark = [f"    {name} {{ {style} }}" for name, (_, style) in every.items() if style]
    style = "\n".join(["", *light, "  @media (prefers-color-scheme: dark) {", *dark, "  }", ""])
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>", f"<style>{style}</style>",
        text(12, 24, title, "title"), text(12, 44, about), *marks, "</svg>",
    ])  # fmt: skip


def text(x: float, y: float, words: str, kind: str = "faint", anchor: str = "") -> str:
    """A text.

    Args:
        x, y: where it begins, on its base line.
        words: of it; they are escaped.
        kind: of :func:`picture`'s classes, "" for a plain one.
        anchor: "middle" or "end" where x is that.
    """
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{kind} x="{x}" y="{y}"{anchor}>{escape(words)}</text>'


def bar(kind: str, x: float, y: float, width: float, height: float, radius: int = 0) -> str:
    """A bar of a class of :func:`picture`, with round corners where there is a radius."""
    corners = f' rx="{radius}"' if radius else ""
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect class="{kind}" {place}{corners}/>'


def line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    """A line of a class of :func:`picture`."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
