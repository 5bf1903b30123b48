"""The examples of every command run as they are written, in a shell, against a node.

Variables say where the node is, instead of the usual ports. What an example needs exists
beforehand: topics, a group, users, contexts and files. Examples that a test cannot run say why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from dragoman.cli.tree import Command, commands
from dragoman.offline import add_cluster_key
from nodes.process import ServedNode, serve
from protocols.minibroker_directory import write_example

#: Commands that are run elsewhere, with the reason.
NOT_HERE: Final = {
    "serve": "runs until it is stopped: test_serve_process.py",
    "cluster up": "runs until it is stopped: test_local_cluster.py",
    "console": "runs until it is stopped: test_console.py",
    "sql": "needs Spark: integration/spark",
    "pipeline run": "needs Spark: integration/spark and test_pipeline_command.py",
    "pipeline status": "needs a pipeline that was run, hence Spark",
    "pipeline stop": "needs a pipeline that runs, hence Spark",
    "cluster add": "needs a cluster: test_cluster_operations.py",
    "cluster remove": "needs a cluster: test_cluster_operations.py",
    "cluster transfer": "needs a cluster: test_cluster_operations.py",
    "cluster reassign": "needs a cluster: test_cluster_operations.py",
    "cluster unclean-elect": "needs a cluster: test_cluster_operations.py",
    "cdc add": "needs PostgreSQL: test_cdc_command.py",
    "cdc pause": "needs PostgreSQL: test_cdc_command.py",
    "cdc resume": "needs PostgreSQL: test_cdc_command.py",
    "cdc run-as": "needs PostgreSQL: test_locked_captures.py",
    "cdc rewind": "needs PostgreSQL: test_cdc_command.py",
    "cdc snapshot": "needs PostgreSQL: test_cdc_command.py",
    "cdc remove": "needs PostgreSQL: test_cdc_command.py",
    "cdc doctor": "needs PostgreSQL: test_cdc_command.py",
    "user token revoke": "the id of a token is random: test_access_commands.py",
    "rocketmq consumer-connection": "needs a member: test_rocketmq_admin_calls.py",
    "rocketmq producer-connection": "needs a producer: test_rocketmq_admin_calls.py",
    "rocketmq query-msg-by-id": "ids are made by brokers: test_rocketmq_admin_calls.py",
    "rocketmq query-msg-by-unique-key": "ids are made by clients: test_rocketmq_admin_calls.py",
    "rocketmq dlq-resend": "needs a dead letter: test_rocketmq_admin_calls.py",
}
#: Single examples of the same kind.
NOT_THIS: Final = {
    "dragoman top": "runs until it is stopped",
    "dragoman top --sort out --interval 15": "runs until it is stopped",
    "dragoman cdc status shop --watch": "needs PostgreSQL, and runs until it is stopped",
    "dragoman rocketmq topic-list -n 127.0.0.1:9876": "names the usual port",
    "dragoman doctor dragoman-data": "a node uses the directory; below without it",
}
#: Commands on a directory that no node may use.
OFFLINE: Final = ("log repair", "log adopt", "import minibroker")
LISTENERS: Final = ("kafka", "http", "rocketmq", "rocketmq-broker", "mlog")
SETUP: Final = r"""
dragoman topic create orders --partitions 4
dragoman topic create old-orders
dragoman topic create copy --partitions 4
dragoman topic create test-1
dragoman topic create images
printf picture | tee cat.png > dog.png
printf 'eu:first\nus:second\neu:third\n' | dragoman produce orders -K :
dragoman consume orders --group reports
dragoman group describe reports --output csv > offsets.csv
dragoman rocketmq update-topic -t orders -r 4 -w 4
printf 'a password' | tee alice.password bob.password carol.password > alice.secret
dragoman user create alice --new-password file:alice.password
dragoman user create carol --new-password file:carol.password
dragoman acl add alice read topic:orders
dragoman acl add carol read topic:orders
dragoman quota set controller_mutation_rate=100000 --default-client-id
dragoman rocketmq send-message -t orders -p apples -b dragoman-1 -i 0
dragoman rocketmq update-sub-group -g shoppers
dragoman context add production --server $DRAGOMAN_SERVER --bootstrap $DRAGOMAN_BOOTSTRAP
echo 'num.partitions = 3' > dragoman.toml
"""


class Example(NamedTuple):
    command: Command
    line: str


def _examples() -> list[Example]:
    found = [
        Example(command, line)
        for command in commands()
        if command.path not in NOT_HERE
        for line in command.examples
    ]
    return [each for each in found if each.line not in NOT_THIS]


class Place(NamedTuple):
    folder: Path
    environment: dict[str, str]

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-ec", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def _environment(folder: Path, **more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "DRAGOMAN_CONTEXTS": str(folder / "contexts.toml"),
        **more,
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A folder, and the variables of a node whose data is in it."""
    folder = tmp_path_factory.mktemp("examples")
    key = folder / "cluster.key"
    add_cluster_key(str(key))
    listen = [word for name in LISTENERS for word in ("--listen", f"{name}=127.0.0.1:0")]
    options = ("--data", str(folder / "dragoman-data"), "--set", f"cluster.key.file={key}")
    with ServedNode(*options, *listen) as node:
        node.ready()
        found = Place(
            folder,
            _environment(
                folder,
                DRAGOMAN_SERVER=f"http://{node.listeners['http']}",
                DRAGOMAN_BOOTSTRAP=node.listeners["kafka"],
                NAMESRV_ADDR=node.listeners["rocketmq"],
            ),
        )
        done = found.run(SETUP)
        assert done.returncode == 0, done.stderr
        yield found


@pytest.mark.parametrize("example", _examples(), ids=lambda each: each.line)
def test_example_runs_as_written(example: Example, place: Place, tmp_path: Path) -> None:
    if example.command.path in OFFLINE:
        place = Place(tmp_path, _environment(tmp_path))
        _prepare(example.command.path, tmp_path)
    done = place.run(example.line)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def _prepare(command: str, folder: Path) -> None:
    """What a command on a directory needs there."""
    if command == "import minibroker":
        write_example(folder / "minibroker-data")
        return
    with serve(folder / "dragoman-data") as node:
        assert node.stop() == 0
    if command == "log adopt":
        (folder / "dragoman-data" / "node.json").unlink()


def test_every_command_has_up_to_three_examples_of_itself() -> None:
    for command in commands():
        assert 1 <= len(command.examples) <= 3, command.path
        for line in command.examples:
            assert f"dragoman {command.path}" in line
            # Two columns of `--help` before it.
            assert len(line) <= 98


def test_exceptions_name_commands_and_examples_that_exist() -> None:
    assert {*NOT_HERE, *OFFLINE} <= {each.path for each in commands()}
    assert NOT_THIS.keys() <= {line for each in commands() for line in each.examples}
