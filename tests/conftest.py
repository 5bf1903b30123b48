"""What holds for every test: hypothesis profiles, and the package's own pytest plugin.

`HYPOTHESIS_PROFILE` picks a profile. `ci` tries the same examples in every run, so that a red build
is the change's fault and not the dice's; `nightly` looks for new ones for longer.

Workers of xdist run a file at a time (`--dist=loadfile`). Tests that need Spark share one session,
so they stay in one worker, and they start first: the longest work must not be left for the end.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from nodes.etcd import RealEtcd

PLUGIN = "dragoman.testing.plugin"
HOOKS = pytest.StashKey[tuple[object, ...]]()
FINISHED = pytest.StashKey[int]()
TESTS_PER_COLLECTION = 10
SPARK = os.path.join(os.path.dirname(__file__), "integration", "spark", "")

# No deadlines: a shared machine may stall any single example.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEtcd]:
    """A real etcd; each test uses a prefix of its own and leaves it running."""
    from nodes.etcd import RealEtcd

    started = RealEtcd(tmp_path_factory.mktemp("etcd"))
    yield started
    started.stop()


def pytest_configure(config: pytest.Config) -> None:
    """Installing the package registers its plugin; a checkout that is not installed has it too."""
    # Contexts of the person who runs the tests would send their commands elsewhere.
    os.environ["DRAGOMAN_CONTEXTS"] = os.path.join(os.sep, "nowhere", "contexts.toml")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start what runs in the background so, and processes of tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _journal_in_small_files()
    plugins = config.pluginmanager
    if not plugins.has_plugin("dragoman"):
        plugins.import_plugin(PLUGIN)


def _journal_in_small_files() -> None:
    """Let brokers in this process journal into files of 1 MB, where processes of nodes use 32 MB.

    Ten thousand tests have a broker in memory, which would fill a spare file with zeros.
    """
    from dragoman import limits
    from dragoman.log import group_commit, journal, store

    for module in (group_commit, journal, store):
        vars(module)["JOURNAL_FILE_BYTES"] = limits.JOURNAL_FIRST_FILE_BYTES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the items, which live until the end.

    There are sixteen thousand; each full collection of the tests would walk over all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _hooks() -> tuple[object, ...]:
    return sys.excepthook, sys.unraisablehook, threading.excepthook


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[HOOKS] = _hooks()
    session.stash[FINISHED] = 0


def pytest_sessionfinish() -> None:
    """Keep the garbage collector away from everything, since pytest collects once more.

    A worker has five seconds for its exit. Then execnet interrupts it, and the interrupt gets lost
    in whatever the collector calls. What the tests have left was collected after the last one.
    """
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what tests have left, and see that those of a file left the hooks of errors alone."""
    is_last = nextitem is None or nextitem.path != item.path
    item.session.stash[FINISHED] += 1
    if is_last or item.session.stash[FINISHED] % TESTS_PER_COLLECTION == 0:
        _collect()
    if is_last:
        # What is left are modules and caches, which stay.
        gc.freeze()
        # Without pytest's hooks, errors in threads and destructors would fail no test.
        assert _hooks() == item.session.stash[HOOKS], "tests of this file replaced hooks of errors"


def _collect() -> None:
    """Collect worlds that tests have left.

    They are few objects with many bytes. The collector counts objects, and would let gigabytes of
    them gather. Nodes that are dropped in the middle of their work leave suspended coroutines,
    which end now without being heard.
    """
    from dragoman.outcome import release_suspended

    report, sys.unraisablehook = sys.unraisablehook, lambda _: None
    release_suspended()
    gc.collect()
    sys.unraisablehook = report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not os.fspath(item.path).startswith(SPARK))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from distribution import SessionScheduling

    return SessionScheduling(config, log)
