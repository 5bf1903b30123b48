"""Goal: what nodes write to disk and send each other stays the same, whatever is renamed.

Method: values of every kind are compared with what they were encoded to when the vectors were made
(`tests/golden/vectors.json`), in both directions. The names of refusals and the tags are part of
these bytes; that none is made from the name of a class is looked for in the source.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import pytest

from dragoman import errors
from dragoman.broker import errors as refusals
from dragoman.broker.refusal_names import ERROR_BY_NAME, name_of
from dragoman.cluster.codec import MetadataEntries
from dragoman.cluster.events import VotersChanged
from dragoman.errors import ClusterError, DragomanError
from dragoman.log import producer
from dragoman.raft.membership import Membership
from dragoman.rpc import Refusals, Refused
from golden import vectors
from golden.forms import FORMS, same
from golden.values import VALUES

SOURCE = Path(__file__).parents[2] / "src"
GOLDEN = vectors.read()


@pytest.mark.parametrize("name", GOLDEN)
def test_value_is_encoded_as_ever(name: str) -> None:
    assert vectors.encode(name) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_read_as_ever(name: str) -> None:
    assert same(vectors.form_of(name).decode(GOLDEN[name]), VALUES[name])


def test_every_value_has_its_vector() -> None:
    assert GOLDEN.keys() == VALUES.keys()


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_a_form_has_a_vector(form: str) -> None:
    there = {type(value) for name, value in VALUES.items() if name.partition(" ")[0] == form}
    assert there == set(FORMS[form].kinds)


#: What can only be one thing: there is one format, and a replay reads a topic or a table.
_SINGLE = {("Manifest", "format"), ("NodeState", "format"), ("Options", "table")}


def test_every_field_has_a_value_other_than_its_default() -> None:
    seen: dict[type[msgspec.Struct], set[str]] = {}
    for struct in chain.from_iterable(map(_structs_in, VALUES.values())):
        fields = seen.setdefault(type(struct), set())
        fields.update(f.name for f in msgspec.structs.fields(struct) if _is_told(struct, f))
    for kind, fields in seen.items():
        missing = set(kind.__struct_fields__) - fields
        assert {name for name in missing if (kind.__name__, name) not in _SINGLE} == set(), kind


def _is_told(struct: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return bool(getattr(struct, field.name) != default)


def _structs_in(value: Any) -> list[msgspec.Struct]:
    found: list[msgspec.Struct] = []
    if isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
        found = [value, *chain.from_iterable(map(_structs_in, inner))]
    elif isinstance(value, tuple | list):
        found = list(chain.from_iterable(map(_structs_in, value)))
    return found


# ---- names


def test_no_tag_is_the_name_of_a_class() -> None:
    found = [
        str(path)
        for path in sorted(SOURCE.rglob("*.py"))
        if re.search(r"\btag=(True|str\.lower|lambda)", path.read_text())
    ]
    assert found == []


def test_every_tagged_kind_states_its_tag() -> None:
    for form in FORMS.values():
        for kind in form.kinds:
            tag = kind.__struct_config__.tag if issubclass(kind, msgspec.Struct) else None
            assert isinstance(tag, str | int | NoneType)
            assert len(form.kinds) == 1 or tag is not None or not issubclass(kind, msgspec.Struct)


def test_quorum_recognises_a_change_of_membership_by_its_tag() -> None:
    assert VotersChanged.__struct_config__.tag == "VotersChanged"
    assert MetadataEntries().membership_in(GOLDEN["raft-entry membership"]) == Membership(
        (1, 2), (3, 4)
    )
    assert MetadataEntries().membership_in(GOLDEN["raft-entry events"]) is None


# ---- refusals


@pytest.mark.parametrize("module", [errors, refusals, producer])
def test_every_error_that_nodes_tell_each_other_has_a_name(module: object) -> None:
    defined = {
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, DragomanError)
    }
    assert defined <= set(ERROR_BY_NAME.values())
    assert len(set(ERROR_BY_NAME.values())) == len(ERROR_BY_NAME)


def test_error_without_a_name_travels_as_its_base() -> None:
    class Renamed(refusals.NotLeader):
        pass

    # A name that another error has does not make it that error.
    class UnknownTopic(refusals.InvalidRecord):
        pass

    assert name_of(Renamed) == "NotLeader"
    assert name_of(UnknownTopic) == "InvalidRecord"
    travelling = Refusals(ERROR_BY_NAME)
    error = travelling.decode(travelling.encode(Renamed("why", 3)))
    assert same(error, refusals.NotLeader("why", 3))


def test_name_of_a_newer_release_is_an_error_of_the_cluster() -> None:
    refused = Refused(name="Unheard", text="why", fields={"number": 1})
    error = Refusals(ERROR_BY_NAME).decode(refused)
    assert same(error, ClusterError("Unheard: why"))
