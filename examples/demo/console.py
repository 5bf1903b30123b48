"""Steps with the console: a user who logs in there, and what its screens show."""

from __future__ import annotations

import json
import time
import urllib.request
from http.client import HTTPException
from http.cookiejar import CookieJar
from typing import Any, Final

from demo.broker_process import CONSOLE_PASSWORD, CONSOLE_USER
from demo.shop import GROUPS, LEFT, SALES, UNREADABLE
from demo.story import DemoError, Stage, Step
from dragoman.api.access_values import (
    AccessRule,
    AccessRules,
    NewUser,
    Operation,
    Resource,
    UserDescription,
)
from dragoman.cli.remote import Remote

#: For the page about security; in an open node rules do not count.
_RULES: Final = AccessRules(
    rules=tuple(
        AccessRule(principal="User:reports", operation=Operation.READ, resource=resource, name=name)
        for resource, name in ((Resource.TOPIC, SALES), (Resource.GROUP, "reports"))
    )
)
#: `billing` has two, and the others one each, but that mlog knows no members.
_MEMBERS: Final = len(GROUPS)
_WAIT_SECONDS_MAX: Final = 60.0
_LOOK_S: Final = 0.2


class _Visitor:
    """Asks the console what its pages ask, logged in."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )
        login = json.dumps({"user": CONSOLE_USER, "password": CONSOLE_PASSWORD}).encode()
        self._ask("session", login)

    def page(self) -> str:
        return self._ask("").decode()

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(json.loads(self._ask(path))["items"])

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/{path}", body, headers)
        try:
            with self._opener.open(request, timeout=_WAIT_SECONDS_MAX) as answer:
                found: bytes = answer.read()
                return found
        except (OSError, HTTPException) as error:
            raise DemoError(f"the console does not answer /{path}: {error}") from None


def _show(stage: Stage) -> str:
    node = Remote(stage.broker.http_url)
    user = NewUser(name=CONSOLE_USER, password=CONSOLE_PASSWORD)
    node.post("/api/v1/security/users", user, UserDescription)
    node.send("/api/v1/security/rules", _RULES)
    stage.screen.note("until every screen has something to show")
    visitor = _Visitor(stage.broker.console_url)
    if "<title>" not in visitor.page():
        raise DemoError("the console has no page")
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while empty := _empty(visitor, stage):
        if time.monotonic() > deadline:
            raise DemoError(f"the console has nothing to show of {', '.join(empty)}")
        time.sleep(_LOOK_S)
    topics, groups = visitor.items("lists/topics"), visitor.items("lists/groups")
    return f"{stage.broker.console_url} shows {len(topics)} topics and {len(groups)} groups"


def _empty(visitor: _Visitor, stage: Stage) -> list[str]:
    """What its screens lack as yet."""
    groups = {each["group"]: each for each in visitor.items("lists/group-usage")}
    records = {each["name"]: each["records"] for each in visitor.items("lists/topic-usage")}
    captures, pipelines = visitor.items("lists/captures"), visitor.items("lists/pipelines")
    shown = {
        **{f"group {each}": each in groups for each in (*GROUPS, LEFT)},
        "members of groups": sum(each["members"] for each in groups.values()) >= _MEMBERS,
        "dead letters": bool(records.get("%DLQ%shipping")),
        "delayed records": bool(visitor.items("api/v1/delayed")),
    }
    if stage.has_database:
        shown["the capture"] = any(each["status"]["state"] == "streaming" for each in captures)
    if stage.has_spark:
        shown["the pipeline"] = any(each["state"] == "running" for each in pipelines)
        shown["its dead letters"] = bool(records.get(UNREADABLE))
    return [what for what, is_shown in shown.items() if not is_shown]


SHOW = Step(title="Fill the console", run=_show)
