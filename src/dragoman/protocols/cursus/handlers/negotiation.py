"""PROTOCOL_INFO, NEGOTIATE, AUTH and HELP."""

from __future__ import annotations

import re
from typing import Final

from dragoman.protocols.cursus.codec import quoted
from dragoman.protocols.cursus.constants import COMMANDS, FEATURES
from dragoman.protocols.cursus.errors import CLASSES, Refusal
from dragoman.protocols.cursus.handlers.logins import FAILED, log_in
from dragoman.protocols.cursus.handlers.session import Call

_FEATURES_MAX: Final = 64
_FEATURES_BYTES_MAX: Final = 4096
_FEATURE: Final = re.compile(r"[a-z0-9_]{1,64}")


def handle_help(call: Call) -> None:
    call.ok(f"commands={','.join(COMMANDS)}")


def handle_protocol_info(call: Call) -> None:
    call.ok(
        "protocol=cursus min_version=1 max_version=1 default_version=1 "
        f"features={','.join(FEATURES)} error_classes={','.join(CLASSES)}"
    )


def _refusal(text: str) -> Refusal:
    """Errors of the negotiation always have the structured form."""
    return Refusal(text, is_structured=True)


def handle_negotiate(call: Call) -> None:
    version, text = call.get("version"), call.get("features")
    if not version:
        raise _refusal("missing_protocol_version command=NEGOTIATE")
    if version != "1":
        shown = version if version.isdecimal() else quoted(version)
        raise _refusal(f"UNSUPPORTED_PROTOCOL_VERSION requested={shown} min=1 max=1")
    requested = [each for each in text.split(",") if each] if text != "*" else list(FEATURES)
    well_formed = all(_FEATURE.fullmatch(each) for each in requested)
    if len(text) > _FEATURES_BYTES_MAX or len(requested) > _FEATURES_MAX or not well_formed:
        raise _refusal("invalid_features command=NEGOTIATE")
    unsupported = ",".join(each for each in requested if each not in FEATURES)
    if unsupported and call.get("require_features").lower() == "true":
        raise _refusal(f"UNSUPPORTED_FEATURE features={unsupported}")
    enabled = [each for each in FEATURES if each in requested]
    call.session.features = frozenset(enabled)
    call.ok(f"protocol_version=1 enabled={','.join(enabled)} unsupported={unsupported}")


async def handle_auth(call: Call) -> None:
    name, password = call.get("principal"), call.get("token")
    if not name or not password:
        raise Refusal("invalid_auth command=AUTH")
    if call.session.channel.security.authentication == "off":
        # As in an original without `enable_sasl`.
        raise Refusal(FAILED)
    await log_in(call.session, name, password)
    call.ok(f"principal={name} authenticated=true")
