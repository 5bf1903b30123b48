"""PROTOCOL_INFO, NEGOTIATE, AUTH, HELP, and what is asked about a cluster."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.constants import COMMANDS, FEATURES
from dragoman.protocols.cursus.errors import CLASSES, Refusal, error_text
from dragoman.protocols.cursus.handlers.service import authorize
from dragoman.protocols.cursus.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_VERSION: Final = 1
_FEATURES_MAX: Final = 64
_FEATURES_BYTES_MAX: Final = 4096
_FEATURE: Final = re.compile(r"[a-z0-9_]{1,64}")


def handle_help(call: Call) -> None:
    call.ok(f"commands={','.join(COMMANDS)}")


def handle_info(call: Call) -> None:
    call.ok(
        f"protocol=cursus min_version={_VERSION} max_version={_VERSION} "
        f"default_version={_VERSION} features={','.join(FEATURES)} "
        f"error_classes={','.join(CLASSES)}"
    )


class _StructuredRefusal(Refusal):
    """Errors of the negotiation itself always have the long form."""

    def __init__(self, text: str) -> None:
        super().__init__(error_text(text, is_structured=True).removeprefix("ERROR: "))


def handle_negotiate(call: Call) -> None:
    version = call.get("version")
    if not version:
        raise _StructuredRefusal("missing_protocol_version command=NEGOTIATE")
    if version != str(_VERSION):
        shown = version if version.isdecimal() else quoted(version)
        raise _StructuredRefusal(
            f"UNSUPPORTED_PROTOCOL_VERSION requested={shown} min={_VERSION} max={_VERSION}"
        )
    text = call.get("features")
    asked = [each for each in text.split(",") if each]
    if text == "*":
        asked = list(FEATURES)
    well_formed = all(_FEATURE.fullmatch(each) for each in asked)
    if len(text) > _FEATURES_BYTES_MAX or len(asked) > _FEATURES_MAX or not well_formed:
        raise _StructuredRefusal("invalid_features command=NEGOTIATE")
    enabled = [each for each in FEATURES if each in asked]
    unsupported = [each for each in asked if each not in FEATURES]
    if unsupported and call.get("require_features") == "true":
        raise _StructuredRefusal(f"UNSUPPORTED_FEATURE features={','.join(unsupported)}")
    call.session.features = frozenset(enabled)
    call.ok(
        f"protocol_version={_VERSION} enabled={','.join(enabled)} "
        f"unsupported={','.join(unsupported)}"
    )


def handle_auth(call: Call) -> None:
    """Nobody has to authenticate, so nobody can."""
    if not call.get("principal") or not call.get("token"):
        raise Refusal("invalid_auth command=AUTH")
    raise Refusal("authentication_failed mechanism=PLAIN")


def handle_cluster(call: Call) -> None:
    """LIST_CLUSTER and CLUSTER_STATUS; ELECT_LEADER has nobody to elect on a single node."""
    authorize(call, Operation.DESCRIBE, Resource.CLUSTER, "cursus-cluster")
    broker = call.service.broker
    if len(broker.image.nodes) == 1:
        raise Refusal("distribution_not_enabled")
    nodes = [
        {"id": str(node), "address": "{}:{}".format(*(_address(call, node) or ("", 0)))}
        for node in sorted(broker.image.nodes)
    ]
    match call.command.word:
        case "LIST_CLUSTER":
            call.ok(f"brokers={msgspec.json.encode(nodes).decode()}")
        case "CLUSTER_STATUS":
            status = {"cluster_id": broker.image.cluster_id, "brokers": nodes}
            call.ok(f"cluster={msgspec.json.encode(status).decode()}")
        case _:
            raise Refusal("leader_election_rejected")


def _address(call: Call, node: int) -> tuple[str, int] | None:
    own = node == call.service.broker.node_id
    return call.session.address() if own else call.service.address_of(node)
