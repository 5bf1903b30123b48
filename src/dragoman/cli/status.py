"""Exit statuses, and the failures that end a command with one line on stderr.

A failure is text, or with `--output json` an object for programs:

    {"error": {"code": "unknown_topic", "message": "…", "hint": "…", "request_id": "…"}}

Codes are stable: those of errors (`errors.py`), and below those of the command line. A hint says
what to type or to check; the text appends it to the message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dragoman.errors import ConfigError, DragomanError

OK = 0
#: The request was valid and failed: the node refused it or is unreachable, or damage was found.
FAILED = 1
#: The command line or the configuration is wrong, or the node cannot start with it.
USAGE = 2


#: Codes of failures that the command line itself finds, with what they mean.
CODES = {
    "usage": "arguments, an input or a file that the command cannot use",
    "failed": "any other failure",
    "unreachable": "no connection, or one that was lost before the answer",
    "no_answer": "the other side has not answered in time",
    "invalid_answer": "the other side does not speak the protocol, or its answer is not valid",
    "unknown_context": "there is no context of this name",
    "unknown_pipeline": "no pipeline of this name was run here, or it does not run",
    "unknown_user": "there is no user of this name",
    "unknown_quota": "the user, client id or address has no quotas",
    "contexts_file": "the file of contexts cannot be read or written, or others may write to it",
    "not_confirmed": "a question was not answered with yes",
    "unexpected": "an error that the command does not expect, named by its class",
}


class CommandError(DragomanError):
    """Ends a command with one line on stderr and an exit status."""

    def __init__(
        self,
        message: str,
        status: int = FAILED,
        *,
        code: str = "",
        hint: str = "",
        request_id: str = "",
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.status = status
        self.code = code or ("usage" if status == USAGE else "failed")
        self.hint = hint
        self.request_id = request_id


class ErrorDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    hint: str = ""
    #: The id of the HTTP request, which the logs of the node have, too.
    request_id: str = ""


class Failure(msgspec.Struct, frozen=True):
    """What a failed command prints with `--output json`."""

    error: ErrorDescription


def say(message: str) -> None:
    """Print a message of one or more lines on stderr."""
    # Imported here, because a node's start imports this module.
    from dragoman.telemetry.logs import escape

    # Names of clients and texts of servers may have characters that a terminal would interpret.
    print("\n".join(map(escape, message.split("\n"))), file=sys.stderr)


def complain(message: str) -> None:
    """Print the reason why a command failed, as one line even if the message has several."""
    say("dragoman: " + " ".join(message.split()))


def report(error: CommandError, *, is_json: bool) -> None:
    """Print why a command failed."""
    if not is_json:
        complain(str(error))
        return
    described = ErrorDescription(
        code=error.code, message=error.message, hint=error.hint, request_id=error.request_id
    )
    # Not escaped: JSON does that itself.
    print(msgspec.json.encode(Failure(described)).decode(), file=sys.stderr)


@contextmanager
def one_line_failures(protocol: str) -> Iterator[None]:
    """Turn the errors of a client into a `CommandError` with its most likely cause."""
    # Here, because a node's start imports this module.
    from dragoman.client_core.errors import (
        ConnectionLostError,
        RequestTimeoutError,
        UnreachableError,
    )

    try:
        yield
    except CommandError:
        raise
    except ConfigError as error:
        raise CommandError(f"--bootstrap: {error}", USAGE, code=error.code) from None
    except UnreachableError as error:
        question = "is a node running there?"
        if "closed by the server" in str(error):
            question = "does it demand TLS (--tls) or a login (--user)?"
        elif "certificate is refused" in str(error):
            question = advice_on_certificate(str(error))
        code = "no_answer" if "answer" in str(error) else "unreachable"
        raise _doubted(error, code, question) from None
    except ConnectionLostError as error:
        raise _doubted(error, "unreachable", f"does it speak {protocol}?") from None
    except RequestTimeoutError as error:
        raise _doubted(error, "no_answer", f"does it speak {protocol}?") from None
    except DragomanError as error:
        raise CommandError(str(error), code=error.code) from None


def advice_on_certificate(refusal: str) -> str:
    """What to type when OpenSSL refuses a server's certificate because it does not trust it."""
    is_untrusted = "issuer" in refusal or "self-signed" in refusal
    return "--ca-file names the certificates to trust" if is_untrusted else ""


def _doubted(error: DragomanError, code: str, question: str) -> CommandError:
    """The error with the most likely cause as a question, unless it names the cause already."""
    hint = "" if "does not speak" in str(error) else question
    return CommandError(str(error), code=code, hint=hint)
