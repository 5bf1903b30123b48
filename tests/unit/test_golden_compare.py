"""Goal: the comparison of two versions asks what it says and finds what differs.

Method: one answer of each kind is changed in a recording; the requests are made again and compared
with those that are kept.
"""

from __future__ import annotations

import json

import pytest

from golden import compare, requests
from golden.conversations import conversations

RECORDING = {
    "kafka vector 0": {"reply": "0001"},
    "kafka vector 1": {"reply": "", "closed": True},
    "http GET /api/v1/cluster": '{"uptime_ms":12,"topics":2}',
    "command topic list": {"status": 0, "stdout": "orders\n", "stderr": ""},
}


def test_recording_does_not_differ_from_itself() -> None:
    assert compare.differences(RECORDING, json.loads(json.dumps(RECORDING))) == {}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("kafka vector 0", {"reply": "0002"}),
        ("kafka vector 0", {"reply": "0001", "closed": True}),
        ("kafka vector 1", {"reply": ""}),
        ("http GET /api/v1/cluster", '{"uptime_ms":12,"topics":3}'),
        ("command topic list", {"status": 1, "stdout": "orders\n", "stderr": ""}),
        ("new", {"reply": ""}),
    ],
)
def test_what_differs_is_found(name: str, answer: object) -> None:
    assert list(compare.differences(RECORDING, {**RECORDING, name: answer})) == [name]


def test_answer_that_is_gone_is_a_difference() -> None:
    after = dict(RECORDING)
    del after["kafka vector 1"]
    assert compare.differences(RECORDING, after) == {"kafka vector 1": "only before"}


def test_what_differs_from_run_to_run_does_not_count() -> None:
    after = {**RECORDING, "http GET /api/v1/cluster": '{"uptime_ms":345,"topics":2}'}
    assert compare.differences(RECORDING, after) == {}


def test_kept_requests_are_those_that_are_made() -> None:
    kept = json.loads(requests.PATH.read_text())
    spoken = dict(kept.pop("conversations"))
    made = requests.requests()
    assert kept.keys() == made.keys()
    for listener, frames in made.items():
        assert kept[listener] == [[name, data.hex()] for name, data in frames]
        # A name stands for one answer.
        assert len({name for name, _ in frames}) == len(frames)
    for name, conversation in conversations().items():
        assert spoken.pop(name) == {
            **conversation._asdict(),
            "frames": [[what, data.hex()] for what, data in conversation.frames],
        }
    assert spoken == {}
