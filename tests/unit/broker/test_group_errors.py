"""Goal: every refusal of the broker has a code of its own that programs may match on. Method: all
classes of the module.
"""

from __future__ import annotations

import re

from dragoman.broker import errors
from dragoman.errors import BrokerError


def reasons() -> list[type[BrokerError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [value for value in found if issubclass(value, BrokerError) and value is not BrokerError]


def test_every_reason_has_its_own_code() -> None:
    codes = [reason.code for reason in reasons()]
    assert len(codes) >= 20
    assert len(set(codes)) == len(codes)


def test_codes_are_lower_case_words() -> None:
    for reason in reasons():
        assert re.fullmatch("[a-z]+(_[a-z]+)*", reason.code), reason
