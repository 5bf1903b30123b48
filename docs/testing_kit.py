"""Writes the classes of docs/reference/testing-kit.md from their signatures and docstrings.

    python docs/testing_kit.py            rewrite them (`make docs`)

They lie between `<!-- classes: … -->` and `<!-- end classes -->`; `tests/unit/test_documents.py`
compares, and `tests/integration/test_examples.py` runs the examples above them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from dragoman.testing.assertions import GroupUnderTest, TopicUnderTest
from dragoman.testing.ephemeral import EphemeralBroker, EphemeralCluster
from dragoman.testing.records import StoredRecord

PAGE = Path(__file__).parent / "reference" / "testing-kit.md"
_BEGIN = "<!-- classes: written by docs/testing_kit.py -->"
_END = "<!-- end classes -->"
_CLASSES = (EphemeralBroker, EphemeralCluster, TopicUnderTest, GroupUnderTest, StoredRecord)
#: Made by the two methods of a broker, not by tests.
_MADE = (TopicUnderTest, GroupUnderTest, StoredRecord)


def with_classes(page: str) -> str:
    """The page with the classes as they should be. Raises `ValueError` without a place for them."""
    before, found_begin, rest = page.partition(_BEGIN)
    _, found_end, after = rest.partition(_END)
    if not found_begin or not found_end:
        raise ValueError(f"no place for the classes: {_BEGIN} … {_END}")
    text = "\n".join(line for kind in _CLASSES for line in _class(kind))
    return f"{before}{_BEGIN}\n{text}{_END}{after}"


def _class(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    if kind not in _MADE:
        yield f"```python\n{_signature(kind.__name__, kind)}\n```\n"
    yield _text(kind)
    if kind is StoredRecord:
        fields = ", ".join(f"`{name}`" for name in StoredRecord.__struct_fields__)
        yield f"Fields: {fields}.\n"
        return
    if kind not in _MADE and (made := vars(kind)["__init__"].__doc__):
        yield " ".join(made.split()) + "\n"
    yield "| member | meaning |\n|---|---|"
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            assert member.fget is not None
            yield f"| `{name}` | {_line(member)} |"
        elif inspect.isfunction(member):
            yield f"| `{_signature(name, member)}` | {_line(member)} |"
    yield ""


def _signature(name: str, function: object) -> str:
    """A call with its defaults, without types."""
    assert callable(function)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]
    return f"{name}{inspect.Signature(parameters)}"


def _text(documented: object) -> str:
    """A docstring with a line for each paragraph."""
    text = inspect.getdoc(documented) or ""
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    return "\n\n".join(paragraphs) + "\n"


def _line(documented: object) -> str:
    text = inspect.getdoc(documented)
    return re.sub(r"\s+", " ", text or "")


if __name__ == "__main__":
    PAGE.write_text(with_classes(PAGE.read_text()))
