"""Two plots as SVG: bars, and a map of shares. No library draws them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH = 800
_BAR, _BACK, _INK = "#3b6ea8", "#f4f4f4", "#444"
_LABELS_MAX = 6
#: Few bars are not drawn as walls.
_BAR_MAX = 60.0
_TEXT_MAX = 36


def bars(values: Sequence[tuple[str, int]], *, is_wide: bool = False) -> str:
    """Upright bars, or (`is_wide`) lying ones with room for long labels."""
    return _lying(values) if is_wide else _upright(values)


def _upright(values: Sequence[tuple[str, int]], height: int = 180) -> str:
    most = max((value for _, value in values), default=0) or 1
    step = (_WIDTH - 60) / max(len(values), 1)
    every = -(-len(values) // _LABELS_MAX) or 1
    parts = [_text(55, 14, f"{most:,}", anchor="end"), _text(55, height, "0", anchor="end")]
    parts.append(_box(60, 4, _WIDTH - 60, height - 4, _BACK))
    for index, (label, value) in enumerate(values):
        size = (height - 4) * value / most
        left = 60 + index * step
        width = min(max(step - 1, 0.5), _BAR_MAX)
        parts.append(_box(left, height - size, width, size, _BAR, f"{label}: {value:,}"))
        if index % every == 0:
            parts.append(_text(left, height + 14, _short(label, step * every)))
    return _svg(height + 22, parts)


def _lying(values: Sequence[tuple[str, int]], line: int = 18) -> str:
    most = max((value for _, value in values), default=0) or 1
    parts = []
    for index, (label, value) in enumerate(values):
        top = index * line
        size = (_WIDTH - 320) * value / most
        parts.append(_text(235, top + 13, _short(label), anchor="end"))
        parts.append(_box(240, top + 2, size, line - 4, _BAR, f"{label}: {value:,}"))
        parts.append(_text(244 + size, top + 13, f"{value:,}"))
    return _svg(max(len(values), 1) * line, parts)


def heat_map(rows: Sequence[tuple[str, Sequence[float], Sequence[bool]]], line: int = 18) -> str:
    """A row for each label: shares from 0 to 1 (less: not known) as shades, some framed."""
    count = max((len(shares) for _, shares, _ in rows), default=1)
    step = (_WIDTH - 240) / count
    parts = []
    for index, (label, shares, framed) in enumerate(rows):
        top = index * line
        parts.append(_text(235, top + 13, _short(label), anchor="end"))
        for place, (share, is_framed) in enumerate(zip(shares, framed, strict=True)):
            left = 240 + place * step
            title = f"{label}, slice {place + 1}: {share:.1%}" if share >= 0 else "nothing"
            parts.append(_box(left, top + 1, step - 1, line - 2, _BACK))
            parts.append(
                _box(left, top + 1, step - 1, line - 2, _BAR, title, opacity=max(share, 0))
            )
            if is_framed:
                parts.append(_frame(left + 1, top + 2, step - 3, line - 4))
    return _svg(max(len(rows), 1) * line, parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _box(
    left: float,
    top: float,
    width: float,
    height: float,
    color: str,
    title: str = "",
    opacity: float = 1,
) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{color}" fill-opacity="{opacity:.3f}"><title>{escape(title)}</title></rect>'
    )


def _frame(left: float, top: float, width: float, height: float) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        'fill="none" stroke="#c0392b" stroke-width="2"/>'
    )


def _text(left: float, top: float, content: str, anchor: str = "start") -> str:
    return (
        f'<text x="{left:.1f}" y="{top:.1f}" fill="{_INK}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _short(text: str, room: float = 6.0 * _TEXT_MAX) -> str:
    """Cut to what fits, at about six units a character."""
    most = max(int(room / 6), 3)
    return text if len(text) <= most else f"{text[: most - 1]}…"
