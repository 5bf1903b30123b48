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
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from nodes.etcd import RealEtcd

PLUGIN = "dragoman.testing.plugin"
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
    plugins = config.pluginmanager
    if not plugins.has_plugin("dragoman"):
        plugins.import_plugin(PLUGIN)


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


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what the tests of a file have left.

    A simulated disk is few objects with many bytes. The collector counts objects, and would let
    gigabytes of them gather. Nodes that are dropped in the middle of their work leave suspended
    coroutines, which end now without being heard.
    """
    if nextitem is None or nextitem.path != item.path:
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
