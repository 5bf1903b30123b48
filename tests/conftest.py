"""What holds for every test: hypothesis profiles, and the package's own pytest plugin.

`HYPOTHESIS_PROFILE` picks a profile. `ci` tries the same examples in every run, so that a red build
is the change's fault and not the dice's; `nightly` looks for new ones for longer.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

PLUGIN = "dragoman.testing.plugin"

# No deadlines: a shared machine may stall any single example.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Installing the package registers its plugin; a checkout that is not installed has it too."""
    plugins = config.pluginmanager
    if not plugins.has_plugin("dragoman"):
        plugins.import_plugin(PLUGIN)
