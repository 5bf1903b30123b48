"""`/livez` and `/readyz`: whether to restart a node, and whether to send clients to it.

    plain text            one line, for probes
    ?verbose              a line for each check, as Kubernetes has it
    ?format=json, or      the checks in JSON
    Accept: application/json

Every client is answered. What the details name, such as files of topics, is for callers who may
describe the cluster and have named this node: others learn which checks do not pass, and why the
node serves no clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dragoman.api.authentication import caller_if_known
from dragoman.api.hosts import is_foreign
from dragoman.api.operations import NodeView
from dragoman.api.values import Check, CheckStatus, Health, HealthStatus
from dragoman.security.access import CLUSTER_NAME, Operation, Resource

_MARKS: dict[CheckStatus, str] = {"ok": "+", "warning": "!", "failed": "-"}


class HealthPages:
    def __init__(self, node: NodeView) -> None:
        self._node = node

    async def live(self, request: Request) -> Response:
        """Any answer shows that the event loop runs."""
        failure = self._node.fatal_failure()
        check = Check("journal", "failed" if failure else "ok", failure)
        status = 503 if failure else 200
        if _wants_json(request):
            return _json(Health("not live" if failure else "live", (check,)), status)
        if _wants_checks(request):
            return _verbose("livez", (check,), status)
        return PlainTextResponse(f"not live: {failure}\n" if failure else "ok\n", status)

    async def ready(self, request: Request) -> Response:
        objection = self._node.objection()
        status = 503 if objection else 200
        if _wants_json(request):
            checks = await self._checks(request)
            is_degraded = any(each.status != "ok" for each in checks)
            found: HealthStatus = "degraded" if is_degraded else "ready"
            return _json(Health("not ready" if objection else found, checks), status)
        if _wants_checks(request):
            return _verbose("readyz", await self._checks(request), status)
        if objection:
            return PlainTextResponse(f"not ready: {objection}\n", status)
        degradation = self._node.degradation(with_files=False)
        if not degradation:
            return PlainTextResponse("ready\n")
        if await self._may_see_details(request):
            degradation = self._node.degradation(with_files=True)
        # The node still serves what is not damaged, and reads without a leader of the metadata.
        return PlainTextResponse(f"ready, degraded: {degradation}\n")

    async def _checks(self, request: Request) -> tuple[Check, ...]:
        checks = self._node.health_checks()
        if await self._may_see_details(request):
            return checks
        return tuple(
            each if each.status == "failed" else msgspec.structs.replace(each, detail="")
            for each in checks
        )

    async def _may_see_details(self, request: Request) -> bool:
        if is_foreign(request):
            return False
        caller = await caller_if_known(request)
        if caller is None:
            return False
        wanted = Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME
        return self._node.authorizer.may(caller, *wanted)


def _wants_json(request: Request) -> bool:
    wanted = request.query_params.get("format")
    if wanted is not None:
        return wanted == "json"
    accepted = request.headers.get("accept", "").split(",")
    return any(each.partition(";")[0].strip().lower() == "application/json" for each in accepted)


def _wants_checks(request: Request) -> bool:
    return "verbose" in request.query_params


def _json(health: Health, status: int) -> Response:
    return Response(msgspec.json.encode(health), status, media_type="application/json")


def _verbose(page: str, checks: Sequence[Check], status: int) -> Response:
    lines = [f"[{_MARKS[each.status]}]{each.name} {_said(each)}" for each in checks]
    lines.append(f"{page} check {'passed' if status == 200 else 'failed'}")
    return PlainTextResponse("\n".join(lines) + "\n", status)


def _said(check: Check) -> str:
    return f"{check.status}: {check.detail}" if check.detail else check.status
