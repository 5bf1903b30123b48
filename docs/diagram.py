"""Draws the picture at the top of the README: clients → log → Spark.

    python docs/diagram.py           rewrite docs/overview.svg (`make docs`)

Ports are those of the listeners. `tests/unit/test_documents.py` compares the file with what is
drawn here.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from dragoman.config.listeners import LISTENER_NAMES

PICTURE = Path(__file__).parent / "overview.svg"
WIDTH, HEIGHT = 960, 382
TITLE = (
    "Kafka, RocketMQ, Cursus, minibroker and mlog clients and PostgreSQL write to one log, "
    "which Spark reads as tables"
)

_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_STYLE = f"""
  text {{ font-family: {_FONT}; fill: #1f2933; }}
  .head {{ font-size: 13px; fill: #61707d; }}
  .name {{ font-size: 15px; font-weight: 600; }}
  .note {{ font-size: 12px; fill: #61707d; }}
  .box {{ fill: #ffffff; stroke: #9fb0bd; }}
  .log {{ fill: #eef4fb; stroke: #3b78b5; stroke-width: 1.5; }}
  .cell {{ fill: #ffffff; stroke: #3b78b5; }}
  .last {{ fill: #cfe1f4; stroke: #3b78b5; }}
  .line {{ stroke: #61707d; stroke-width: 1.5; fill: none; }}
"""

#: Of a box on either side.
_BOX_WIDTH, _BOX_HEIGHT, _STEP = 236, 42, 52
_TOP = 54
_LEFT, _RIGHT = 24, WIDTH - 24 - _BOX_WIDTH
_LOG_X, _LOG_Y, _LOG_WIDTH, _LOG_HEIGHT = 352, _TOP, 256, 5 * _STEP + _BOX_HEIGHT
_CELL = 22


def picture() -> str:
    """The whole file."""
    port = {row.name: row.port for row in LISTENER_NAMES}
    clients = [
        (f"Kafka :{port['kafka']}", "Java, librdkafka, Connect, kcat"),
        (f"RocketMQ :{port['rocketmq']}", "Java, Go, C++, Node.js, mqadmin"),
        (f"Cursus :{port['cursus']}", "cursus-client"),
        (f"minibroker :{port['minibroker']}", "groups, pushed records"),
        (f"mlog :{port['mlog']}", "JSON and protobuf"),
    ]
    readers = [
        ("Spark tables", "batches and streams, both ways"),
        ("SQL", "dragoman sql, over any topic"),
        ("Delta tables", "current rows of the database"),
    ]
    parts = [
        _text(_LEFT, 34, "head", "unmodified clients"),
        _text(_LOG_X, 34, "head", "one process, or a cluster of them"),
        _text(_RIGHT, 34, "head", "every topic is a table"),
        _log(),
    ]
    for number, (name, note) in enumerate(clients):
        y = _TOP + number * _STEP
        parts += [_box(_LEFT, y, name, note), _arrow(_LEFT + _BOX_WIDTH, _LOG_X, y, both=True)]
    y = _TOP + len(clients) * _STEP
    parts += [
        _box(_LEFT, y, "PostgreSQL", "row changes, from the WAL"),
        _arrow(_LEFT + _BOX_WIDTH, _LOG_X, y, both=False),
    ]
    for number, (name, note) in enumerate(readers):
        y = _TOP + _STEP // 2 + number * 2 * _STEP
        parts += [
            _box(_RIGHT, y, name, note),
            _arrow(_LOG_X + _LOG_WIDTH, _RIGHT, y, both=number == 0),
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img">',
            f"<title>{escape(TITLE)}</title>",
            f"<style>{_STYLE}</style>",
            "<defs>",
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="#61707d"/></marker>',
            "</defs>",
            # A ground of its own: the page that shows it may be dark.
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fafbfc"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _log() -> str:
    """The node with a topic of three partitions, each a row of records that grows to the right."""
    parts = [
        f'<rect class="log" x="{_LOG_X}" y="{_LOG_Y}" width="{_LOG_WIDTH}" '
        f'height="{_LOG_HEIGHT}" rx="8"/>',
        _text(_LOG_X + 20, _LOG_Y + 32, "name", "Dragoman"),
        _text(_LOG_X + 20, _LOG_Y + 52, "note", "one durable, replicated log"),
        _text(_LOG_X + 20, _LOG_Y + 98, "name", "topic orders"),
    ]
    for row, count in enumerate((8, 6, 7)):
        y = _LOG_Y + 116 + row * 42
        parts.append(_text(_LOG_X + 20, y + 15, "note", str(row)))
        for column in range(count):
            kind = "last" if column == count - 1 else "cell"
            x = _LOG_X + 38 + column * (_CELL + 2)
            parts.append(
                f'<rect class="{kind}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="2"/>'
            )
    parts += [
        _text(_LOG_X + 20, _LOG_Y + 262, "note", "shared offsets, groups, transactions"),
        _text(_LOG_X + 20, _LOG_Y + 282, "note", "synced before acknowledged"),
    ]
    return "\n".join(parts)


def _box(x: int, y: int, name: str, note: str) -> str:
    return "\n".join(
        [
            f'<rect class="box" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" '
            'rx="6"/>',
            _text(x + 12, y + 18, "name", name),
            _text(x + 12, y + 34, "note", note),
        ]
    )


def _arrow(start: int, end: int, y: int, *, both: bool) -> str:
    """Level with the middle of a box whose upper edge is at `y`."""
    middle = y + _BOX_HEIGHT // 2
    first = ' marker-start="url(#tip)"' if both else ""
    return (
        f'<path class="line" d="M{start + 6} {middle} H{end - 6}"{first} marker-end="url(#tip)"/>'
    )


def _text(x: int, y: int, style: str, words: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture())
