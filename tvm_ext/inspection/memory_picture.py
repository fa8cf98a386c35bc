"""The picture of an arena: a rectangle a buffer, over the launches in which it lives and the addresses it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from .memory import Buffer

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 420, 70, 34, 10
_STYLE = """\
.arena text { font: 11px system-ui, sans-serif; fill: currentColor; }
.arena rect.activation { fill: var(--s1, #2f6fdb); } .arena rect.workspace { fill: var(--s2, #d9772b); }
.arena rect { fill-opacity: 0.7; stroke: currentColor; stroke-opacity: 0.5; stroke-width: 0.5; }
.arena line { stroke: var(--grid, #999); stroke-width: 0.5; }"""


def picture(buffers: Sequence[Buffer], launches: Sequence[str], nbytes: int) -> str:
    """The arena as SVG.

    Args:
        buffers: with offsets and launches.
        launches: kernels in the order they run.
        nbytes: size of the arena.
    """
    step = (_WIDTH - _LEFT) / max(len(launches), 1)
    scale = (_HEIGHT - _BOTTOM - _TOP) / max(nbytes, 1)
    floor = _HEIGHT - _BOTTOM
    parts = [*_grid(nbytes, scale, floor), *_ticks(len(launches), step, floor)]
    for one in sorted(buffers, key=lambda b: (b.workspace, b.first)):
        x, width = _LEFT + one.first * step, (one.last - one.first + 1) * step
        height = max(one.nbytes * scale, 0.5)
        y = floor - one.offset * scale - height
        kind = "workspace" if one.workspace else "activation"
        ran = ", ".join(dict.fromkeys((launches[one.first], launches[one.last])))
        span = f"launches {one.first} to {one.last} ({ran})"
        title = escape(f"{one.name}: {one.nbytes:,} bytes at {one.offset:,}, {span}")
        parts.append(
            f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}">'
            f"<title>{title}</title></rect>"
        )
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="arena" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="memory arena"><style>{_STYLE}</style>\n{inside}\n</svg>'
    )


def _grid(nbytes: int, scale: float, floor: float) -> list[str]:
    """Lines of address, a quarter of the arena apart."""
    parts = []
    unit, name = (1e6, "MB") if nbytes >= 1e5 else (1e3, "kB")
    for quarter in range(5):
        y = floor - nbytes * quarter / 4 * scale
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"/>')
        label = f"{nbytes * quarter / 4 / unit:.2f} {name}"
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return parts


def _ticks(count: int, step: float, floor: float) -> list[str]:
    """Numbers of launches, a dozen at most."""
    every = max(1, -(-count // 12))
    texts = [
        f'<text x="{_LEFT + (at + 0.5) * step:.1f}" y="{floor + 14}" text-anchor="middle">{at}</text>'
        for at in range(0, count, every)
    ]
    return [*texts, f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{floor + 30}" text-anchor="middle">launch</text>']
