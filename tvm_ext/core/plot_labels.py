"""Labels for the dots of a picture: one for dots that lie on each other, each where it covers nothing. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

#: Size of a letter and of a line of labels, and how near dots are that share one, in pixels.
LETTER, LINE, NEAR = 7, 14, 7


def clusters(places: Sequence[tuple[float, float]], near: float = NEAR) -> list[list[int]]:
    """Dots so near to each other that they get one label: equal layers, mostly."""
    found: list[list[int]] = []
    for at, place in enumerate(places):
        close = (c for c in found if any(math.dist(place, places[other]) < near for other in c))
        cluster = next(close, None)
        if cluster is None:
            found.append([at])
        else:
            cluster.append(at)
    return found


def ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 -> "1-3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def free_place(x: float, y: float, half: float, taken: Sequence[Box], within: Box) -> tuple[float, float]:
    """The middle of a label near a dot that covers nothing yet; right below the dot if there is none.

    Args:
        x, y: the dot.
        half: half the label's width.
        taken: what is drawn already.
        within: the picture.
    """
    for distance in range(13, 120, 7):
        for turn in range(16):
            angle = math.pi * (turn / 8 + 0.5)  # below first: the roof is above
            at_x, at_y = x + (half + distance) * math.cos(angle), y + distance * math.sin(angle)
            box = label_box(at_x, at_y, half)
            inside = box[0] > within[0] and box[2] < within[2] and box[1] > within[1] and box[3] < within[3]
            if inside and not any(_overlap(box, other) for other in taken):
                return at_x, at_y
    return x, y + 13


def label_box(x: float, y: float, half: float) -> Box:
    """The box of a label around its middle."""
    return x - half, y - LINE / 2, x + half, y + LINE / 2


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def numbered(
    places: Sequence[tuple[float, float]], numbers: Sequence[int], taken: list[Box], within: Box
) -> Iterator[str]:
    """SVG text: numbers of points, one where several lie together, and a line to a point that it is not beside.

    Args:
        places: of the points.
        numbers: one a point.
        taken: boxes that labels avoid; those of the labels are added.
        within: where labels may stand.
    """
    for members in clusters(places):
        text = ranges([numbers[at] for at in members])
        x, y = (sum(places[at][axis] for at in members) / len(members) for axis in (0, 1))
        half = LETTER * len(text) / 2
        at_x, at_y = free_place(x, y, half, taken, within)
        taken.append(label_box(at_x, at_y, half))
        if math.hypot(at_x - x, at_y - y) > half + 20:
            yield f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{at_x:.1f}" y2="{at_y:.1f}"/>'
        yield f'<text class="number" x="{at_x:.1f}" y="{at_y + 4.5:.1f}" text-anchor="middle">{text}</text>'
