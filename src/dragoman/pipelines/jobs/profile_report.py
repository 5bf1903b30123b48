"""A profile as a value, as text for a terminal, and as a page with plots (SVG, drawn here)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

import msgspec

from dragoman.pipelines.jobs.profile_counts import Drift, Sizes, Slice, drifts, merged

if TYPE_CHECKING:
    from rich.table import Table


_KEYS_SHOWN = 20
_FIELDS_SHOWN = 200
_BARS_MAX = 120


class KeyCount(msgspec.Struct, frozen=True):
    #: The key as text, or in hexadecimal digits when it is not UTF-8.
    key: str
    records: int


class PartitionProfile(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    first_offset: int
    end_offset: int
    records: int
    bytes: int
    distinct_keys: int
    first_time: str
    last_time: str


class Span(msgspec.Struct, frozen=True):
    start: str
    records: int


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    records: int
    key_sizes: Sizes
    value_sizes: Sizes
    header_count: int
    distinct_keys: int
    #: Counts may be too low, never too high.
    top_keys: list[KeyCount]
    partitions: list[PartitionProfile]
    first_time: str
    last_time: str
    #: Records that are older than the one before them in their partition.
    steps_back: int
    span_minutes: int
    spans: list[Span]
    #: The number of parsed values, and of those that are not JSON.
    looked_at: int
    not_json: int
    #: Slice → partition → (first offset, end).
    slices: list[dict[int, tuple[int, int]]]
    fields: list[Drift]


def profile_of(topic: str, slices: Sequence[Slice]) -> Profile:
    whole = merged(slices)
    numbers = sorted({each.number for each in slices})
    partitions = sorted({each.partition for each in slices})
    minutes = whole.times.minutes
    return Profile(
        topic=topic,
        records=whole.records,
        key_sizes=whole.key_sizes,
        value_sizes=whole.value_sizes,
        header_count=whole.header_count,
        distinct_keys=whole.keys.distinct,
        top_keys=[
            KeyCount(_key_text(key), count)
            for key, count in sorted(whole.keys.frequent.items(), key=lambda each: -each[1])
        ][:_KEYS_SHOWN],
        partitions=[
            _partition(merged([each for each in slices if each.partition == partition]))
            for partition in partitions
        ],
        first_time=_time(whole.times.first_us),
        last_time=_time(whole.times.last_us),
        steps_back=whole.times.steps_back,
        span_minutes=minutes,
        spans=[
            Span(_time(bucket * minutes * 60_000_000), count)
            for bucket, count in sorted(whole.times.counts.items())
        ],
        looked_at=whole.fields.looked_at,
        not_json=whole.fields.not_json,
        slices=[
            {each.partition: (each.start, each.end) for each in slices if each.number == number}
            for number in numbers
        ],
        fields=drifts(slices),
    )


def _partition(counted: Slice) -> PartitionProfile:
    return PartitionProfile(
        partition=counted.partition,
        first_offset=counted.start,
        end_offset=counted.end,
        records=counted.records,
        bytes=counted.key_sizes.total + counted.value_sizes.total,
        distinct_keys=counted.keys.distinct,
        first_time=_time(counted.times.first_us),
        last_time=_time(counted.times.last_us),
    )


def _time(micros: int) -> str:
    if micros < 0:
        return ""
    return datetime.fromtimestamp(micros / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _overview(found: Profile) -> list[tuple[str, str]]:
    keyed = found.records - found.key_sizes.nulls
    valued = found.records - found.value_sizes.nulls
    top = found.top_keys[0] if found.top_keys else None
    return [
        ("records", f"{found.records:,}"),
        ("time", f"{found.first_time} to {found.last_time} UTC"),
        ("older than their predecessor", f"{found.steps_back:,}"),
        ("keys", f"about {found.distinct_keys:,}"),
        ("null keys", _share(found.key_sizes.nulls, found.records)),
        (
            "most frequent key",
            f"{top.key}: {_share(top.records, found.records)}" if top else "-",
        ),
        ("key bytes", _sizes(found.key_sizes, keyed)),
        ("value bytes", _sizes(found.value_sizes, valued)),
        ("null values", _share(found.value_sizes.nulls, found.records)),
        ("headers", f"{found.header_count / max(found.records, 1):.1f} a record"),
        (
            "values parsed",
            f"{found.looked_at:,}; {_share(found.not_json, found.looked_at)} are not JSON",
        ),
    ]  # fmt: skip


def _sizes(sizes: Sizes, count: int) -> str:
    if not count:
        return "-"
    mean = sizes.total / count
    return f"{sizes.total:,}; {sizes.smallest:,} to {sizes.largest:,}, {mean:,.1f} on average"


# ---- for a terminal


def text(found: Profile, width: int = 120) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, record=False)
    console.print(_table(f"topic {found.topic}", ("", ""), _overview(found)))
    console.print(
        _table(
            "partitions",
            ("partition", "offsets", "records", "bytes", "keys, about", "time"),
            [
                (
                    str(each.partition),
                    f"{each.first_offset} to {each.end_offset - 1}",
                    f"{each.records:,}",
                    f"{each.bytes:,}",
                    f"{each.distinct_keys:,}",
                    f"{each.first_time} to {each.last_time}",
                )
                for each in found.partitions
            ],
        )
    )
    keys = [
        (each.key, f"{each.records:,}", _share(each.records, found.records))
        for each in found.top_keys
    ]
    console.print(_table("most frequent keys", ("key", "records", "share"), keys))
    fields = [
        (each.path, _kinds(each), "; ".join(each.changes)) for each in found.fields[:_FIELDS_SHOWN]
    ]
    console.print(_table("fields", ("field", "types", "changes"), fields))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def _kinds(drift: Drift) -> str:
    total = sum(drift.types.values())
    return ", ".join(
        f"{kind} {_share(count, total)}"
        for kind, count in sorted(drift.types.items(), key=lambda each: -each[1])
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=any(heads))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        # Text from records must not be parsed as markup.
        table.add_row(*map(Text, row))
    return table


# ---- as a page


def html(found: Profile) -> str:
    title = escape(f"Profile of topic {found.topic}")
    overview = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in _overview(found)
    )
    spans = _fewer(found.spans)
    changed = [each for each in found.fields if each.changes]
    shown = (changed + [each for each in found.fields if not each.changes])[:_FIELDS_SHOWN]
    notes = "".join(
        f"<li><b>{escape(each.path)}</b> {escape('; '.join(each.changes))}</li>" for each in changed
    )
    plots = [
        (
            f"Records by time, {found.span_minutes} min or more a bar (UTC)",
            bars([(each.start[:16], each.records) for each in spans]),
        ),
        (
            "Most frequent keys",
            bars([(each.key, each.records) for each in found.top_keys], is_wide=True),
        ),
        (
            "Records by partition",
            bars([(str(each.partition), each.records) for each in found.partitions]),
        ),
        (
            "Values by size in bytes",
            bars(
                [
                    (f"< {1 << power}", count)
                    for power, count in sorted(found.value_sizes.powers.items())
                ]
            ),
        ),
        (
            f"Fields in {len(found.slices)} slices of the offsets: share of values that have each; "
            "a frame marks a change of type",
            heat_map([(each.path, each.shares, _is_changed(each)) for each in shown]),
        ),
    ]
    body = "".join(f"<h2>{escape(head)}</h2>{plot}" for head, plot in plots)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        f"<style>{_STYLE}</style><h1>{title}</h1><table>{overview}</table>{body}"
        f"<ul>{notes}</ul></html>"
    )


_STYLE = (
    "body{font:14px sans-serif;margin:2em;max-width:60em;color:#222}"
    "th{text-align:left;padding-right:2em;font-weight:normal;color:#666}"
    "h2{font-size:15px;margin:2em 0 .5em}svg{width:100%;height:auto}"
)


def _fewer(spans: Sequence[Span]) -> list[Span]:
    """Adjacent spans merged, so that bars stay visible."""
    size = -(-len(spans) // _BARS_MAX) or 1
    return [
        Span(spans[first].start, sum(each.records for each in spans[first : first + size]))
        for first in range(0, len(spans), size)
    ]


def _is_changed(drift: Drift) -> list[bool]:
    """For each slice, whether the types differ from those of the slice before."""
    found, before = [], None
    for kinds in drift.kinds:
        found.append(bool(kinds and before and kinds != before))
        before = kinds or before
    return found


_WIDTH = 800
_BAR, _BACK, _INK = "#3b6ea8", "#f4f4f4", "#444"
_LABELS_MAX = 6
#: Maximum width of a bar.
_BAR_MAX = 60.0
_TEXT_MAX = 36


def bars(values: Sequence[tuple[str, int]], *, is_wide: bool = False) -> str:
    """A chart of vertical bars, or (`is_wide`) of horizontal ones with room for long labels."""
    return _horizontal(values) if is_wide else _vertical(values)


def _vertical(values: Sequence[tuple[str, int]], height: int = 180) -> str:
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


def _horizontal(values: Sequence[tuple[str, int]], line: int = 18) -> str:
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
    """A chart with a row for each label: shares from 0 to 1 (negative: unknown) as shades, some
    framed.
    """
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
    """The text cut to fit, at about six units per character."""
    most = max(int(room / 6), 3)
    return text if len(text) <= most else f"{text[: most - 1]}…"
