"""Logins that are guessed, changed on their way, cut, forged and repeated: a table of its own."""

from __future__ import annotations

from attack.logins import ATTACKS as LOGIN_ATTACKS
from attack.logins import PASSWORD, USER, Door, Seen, audit_lines, carry_out, is_as_expected
from attack.target import Target
from lockdown.operator import Operator

_LISTENER = "any"


def prepare(target: Target) -> None:
    """A login is required on the listener that allows TLS."""
    password = target.cluster.root / "password.txt"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    operator = Operator(target.cluster.data(1))
    operator.types("user", "create", USER, "--new-password", f"file:{password}")
    # Refusals are logged at their end: without the pause, before the next attack.
    operator.sets(
        f"listener.{_LISTENER}.authentication=required",
        "connection.failed.authentication.delay.ms=0",
    )


def strike(target: Target) -> str:
    root = target.cluster.root
    audit = target.cluster.data(1) / "audit.log"
    node = target.cluster.nodes[1]
    door = Door(
        target.cluster.address(1, _LISTENER),
        str(root / "ca.pem"),
        (lambda: [_without_time(each) for each in node.log], lambda: audit_lines(audit)),
        root,
    )
    target.notes += ["", "| attack | the client sees | the node logs |", "|---|---|---|"]
    expected = 0
    for attack in LOGIN_ATTACKS:
        seen = carry_out(attack, door)
        expected += is_as_expected(attack, seen)
        target.notes.append(_row(attack.name, seen))
    target.notes.append("")
    return f"{expected} of {len(LOGIN_ATTACKS)} end as expected"


def _without_time(line: str) -> str:
    return line.partition(" ")[2]


def _row(name: str, seen: Seen) -> str:
    lines = "; ".join(seen.node) or "nothing"
    return "| " + " | ".join(each.replace("|", "/") for each in (name, seen.client, lines)) + " |"


ATTACKS = (("logins: changed, cut, forged, repeated", strike, (), (1,), True, prepare),)
