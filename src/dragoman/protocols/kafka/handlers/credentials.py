"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), version 0.

A client computes a salted password, of which a verifier is stored. Kafka's clients see the users
that have a verifier. Each user of a request has one result: either all that is requested for it is
done, or nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple, TypeAlias

from dragoman.broker.errors import UnknownUser
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.access import Operation
from dragoman.security.passwords import Mechanism, verifier_of
from dragoman.security.users import ScramVerifier, User

_MECHANISMS: Final = {1: Mechanism.SHA_256, 2: Mechanism.SHA_512}
_Upsertion: TypeAlias = m.AlterUserScramCredentialsRequestUpsertion


# ---- description


@awaited
async def handle_describe(call: Call) -> m.DescribeUserScramCredentialsResponse:
    request = call.decode(m.DescribeUserScramCredentialsRequest)
    broker = call.service.broker
    try:
        call.authorize_cluster(Operation.DESCRIBE)
    except DragomanError as error:
        return m.DescribeUserScramCredentialsResponse(
            error_code=wire_code(error), error_message=str(error)
        )
    users = dict(broker.access.users.known)
    asked = Counter(each.name for each in request.users or ())
    names = asked or Counter(name for name, user in users.items() if user.scram)
    return await broker.work.run(_described(names, users))


def _described(
    names: Counter[str], users: dict[str, User]
) -> Steps[m.DescribeUserScramCredentialsResponse]:
    results: list[m.DescribeUserScramCredentialsResponseUser] = []
    for name, count in names.items():
        user = users.get(name)
        if count > 1:
            results.append(_undescribed(name, _TWICE))
        elif user is None or not user.scram:
            results.append(_undescribed(name, _Refusal(ErrorCode.RESOURCE_NOT_FOUND, _NO_USER)))
        else:
            results.append(
                m.DescribeUserScramCredentialsResponseUser(
                    user=name, error_message=None, credential_infos=_credentials(user)
                )
            )
        yield 1
    return m.DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _undescribed(name: str, refusal: _Refusal) -> m.DescribeUserScramCredentialsResponseUser:
    return m.DescribeUserScramCredentialsResponseUser(
        user=name, error_code=refusal.code, error_message=refusal.text
    )


def _credentials(user: User) -> list[m.DescribeUserScramCredentialsResponseCredentialInfo]:
    return [
        m.DescribeUserScramCredentialsResponseCredentialInfo(
            mechanism=number, iterations=user.scram[mechanism.value].iterations
        )
        for number, mechanism in _MECHANISMS.items()
        if mechanism.value in user.scram
    ]


# ---- changes


class _Refusal(NamedTuple):
    code: ErrorCode
    text: str | None


_DONE: Final = _Refusal(ErrorCode.NONE, None)
_NO_USER: Final = "there is no such user, or it has no SCRAM credential"
_TWICE: Final = _Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "a credential is in the request more than once"
)
_NO_NAME: Final = _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of a user is empty")
_NO_MECHANISM: Final = _Refusal(
    ErrorCode.UNSUPPORTED_SASL_MECHANISM, "there is no such SCRAM mechanism"
)
_ITERATIONS: Final = _Refusal(
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    f"a credential has {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX} iterations",
)


class _Changes:
    """What a request wants of one user: by mechanism a verifier, or None to remove it."""

    __slots__ = ("altered", "refusal")

    def __init__(self) -> None:
        self.altered: dict[str, ScramVerifier | None] = {}
        #: The first reason not to do it.
        self.refusal: _Refusal | None = None

    def add(self, name: str, number: int, upsertion: _Upsertion | None) -> None:
        self.refusal = self.refusal or self._added(name, number, upsertion)

    def _added(self, name: str, number: int, upsertion: _Upsertion | None) -> _Refusal | None:
        mechanism = _MECHANISMS.get(number)
        if not name:
            return _NO_NAME
        if mechanism is None:
            return _NO_MECHANISM
        if mechanism.value in self.altered:
            return _TWICE
        verifier: ScramVerifier | None = None
        if upsertion is not None:
            if not SCRAM_ITERATIONS_MIN <= upsertion.iterations <= SCRAM_ITERATIONS_MAX:
                return _ITERATIONS
            salted = bytes(upsertion.salted_password)
            verifier = verifier_of(mechanism, salted, bytes(upsertion.salt), upsertion.iterations)
        self.altered[mechanism.value] = verifier
        return None


@awaited
async def handle_alter(call: Call) -> m.AlterUserScramCredentialsResponse:
    request = call.decode(m.AlterUserScramCredentialsRequest)
    broker = call.service.broker
    changes = await broker.work.run(_changes_of(request))
    refusals: dict[str, _Refusal] = {}
    try:
        call.authorize_cluster(Operation.ALTER)
    except DragomanError as error:
        refusals = dict.fromkeys(changes, _refusal_of(error))
    else:
        wanted = {name: each.altered for name, each in changes.items() if each.refusal is None}
        failed = await broker.access.users.alter_verifiers(wanted, call.actor)
        refusals = {name: _refusal_of(error) for name, error in failed.items()}
        refusals |= {name: each.refusal for name, each in changes.items() if each.refusal}
    return await broker.work.run(_altered(list(changes), refusals))


def _changes_of(request: m.AlterUserScramCredentialsRequest) -> Steps[dict[str, _Changes]]:
    changes: dict[str, _Changes] = {}
    for deletion in request.deletions:
        changes.setdefault(deletion.name, _Changes()).add(deletion.name, deletion.mechanism, None)
        yield 1
    for each in request.upsertions:
        changes.setdefault(each.name, _Changes()).add(each.name, each.mechanism, each)
        # A verifier takes three digests.
        yield 3
    return changes


def _altered(
    names: list[str], refusals: dict[str, _Refusal]
) -> Steps[m.AlterUserScramCredentialsResponse]:
    results: list[m.AlterUserScramCredentialsResponseUser] = []
    for name in names:
        code, text = refusals.get(name, _DONE)
        results.append(
            m.AlterUserScramCredentialsResponseUser(user=name, error_code=code, error_message=text)
        )
        yield 1
    return m.AlterUserScramCredentialsResponse(results=results)


def _refusal_of(error: DragomanError) -> _Refusal:
    if isinstance(error, UnknownUser):
        return _Refusal(ErrorCode.RESOURCE_NOT_FOUND, _NO_USER)
    return _Refusal(wire_code(error), wire_text(error))
