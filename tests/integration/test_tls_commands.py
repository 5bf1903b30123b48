"""Goal: what `dragoman tls dev` prints works as it stands, and commands connect with TLS by every
protocol.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.testing import EphemeralBroker
from nodes.process import SOURCE, ServedNode
from worlds.tls import TlsFiles

WAIT_S = 120.0


def dragoman(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
    return subprocess.run(
        [sys.executable, "-m", "dragoman.cli.main", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**environment, "PYTHONPATH": SOURCE},
    )


def test_printed_commands_work_as_they_stand(tmp_path: Path) -> None:
    directory = tmp_path / "certificates"
    made = dragoman("tls", "dev", str(directory), "--name", "broker.example", "--client", "alice")
    assert made.returncode == 0, made.stderr
    lines = [each for each in made.stdout.splitlines() if each.startswith("dragoman ")]
    serve, consume, as_alice = (each.split()[1:] for each in lines)
    for secret in ("ca-key.pem", "server-key.pem", "alice-key.pem"):
        assert stat.S_IMODE((directory / secret).stat().st_mode) == 0o600
    node = ServedNode(
        *("--data", str(tmp_path / "data")),
        *(each.replace(":9092", ":0").replace(":9093", ":0") for each in serve[1:]),
        *("--set", "listener.kafka-tls.ssl.client.auth=requested"),
    )
    with node.ready():
        address = node.listeners["kafka-tls"]
        produced = dragoman(
            *("produce", "t", "--bootstrap", address, "--ca-file", str(directory / "ca.pem")),
            given="over TLS\n",
        )
        assert produced.returncode == 0, produced.stderr
        for command in (consume, as_alice):
            command[1] = "t"
            command[command.index("--bootstrap") + 1] = address
            consumed = dragoman(*command)
            assert consumed.stdout == "over TLS\n", consumed.stderr
        assert node.stop() == 0


def test_authority_that_is_there_is_used_again(tmp_path: Path) -> None:
    assert main(["tls", "dev", str(tmp_path)]) == 0
    before = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    assert main(["tls", "dev", str(tmp_path), "--client", "bob"]) == 0
    assert (tmp_path / "ca.pem").read_bytes() == before[0]
    assert (tmp_path / "server.pem").read_bytes() != before[1]
    assert (tmp_path / "bob-key.pem").exists()


@pytest.mark.parametrize("client", ["ca", "server", "../x", ""])
def test_names_that_are_no_files_are_refused(tmp_path: Path, client: str) -> None:
    assert main(["tls", "dev", str(tmp_path / "new"), "--client", client]) == 2
    assert not (tmp_path / "new").exists()


def test_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main(["tls", "dev", str(tmp_path / "file")]) == 1


PROTOCOLS = ("kafka", "rocketmq", "minibroker", "cursus", "mlog")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_are_written_and_read_by_every_protocol(
    protocol: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    with EphemeralBroker(tls=True, listeners=("any",), settings={"num.partitions": "1"}) as broker:
        connect = ("--protocol", protocol, "--bootstrap", broker.address("any"))
        trusting = (*connect, "--ca-file", broker.ca_file)
        with EphemeralTopic(broker):
            assert main(["produce", "t", *trusting, "--file", str(lines)]) == 0
            assert main(["consume", "t", *trusting, "--max", "2"]) == 0
            assert sorted(capsys.readouterr().out.splitlines()) == ["one", "two"]


class EphemeralTopic:
    """The topic `t`, which not every protocol creates."""

    def __init__(self, broker: EphemeralBroker) -> None:
        self._broker = broker

    def __enter__(self) -> None:
        from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, NewTopic, TlsSettings

        settings = ClientSettings(tls=TlsSettings(ca=self._broker.ca_file))
        with BlockingKafkaClient(self._broker.address("any"), settings=settings) as client:
            client.create_topic(NewTopic(name="t", partitions=1, replication_factor=1))

    def __exit__(self, *_: object) -> None:
        return None


def test_bad_files_are_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = TlsFiles(tmp_path)
    missing = str(tmp_path / "missing.pem")
    for options, text in (
        (("--ca-file", missing), "missing.pem: No such file"),
        (("--ca-file", files.key), "server-key.pem"),
        (("--key-file", files.key), "--key-file needs --certificate-file"),
        (("--certificate-file", files.ca, "--key-file", files.key), "key values mismatch"),
    ):
        assert main(["consume", "t", *options]) == 2
        assert text in capsys.readouterr().err


def test_clients_of_spark_connect_with_tls_and_log_in(tmp_path: Path) -> None:
    from dragoman.spark import logs, options, writer

    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    settings = {"listener.kafka.ssl.client.auth": "requested"}
    with EphemeralBroker(
        tls=True, users={"spark": "correct horse"}, listeners=("kafka",), settings=settings
    ) as broker:
        certificate, key = broker.client_certificate("spark")
        both = tmp_path / "spark.pem"
        both.write_bytes(Path(certificate).read_bytes() + Path(key).read_bytes())
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": broker.ca_file,
            "kafka.ssl.keystore.location": str(both),
            "kafka.sasl.jaas.config": f'username="spark" password="file:{secret}"',
        }
        source = options.parse({**given, "subscribe": "t"}, "batch")
        sink = options.parse_sink(given)
        assert "correct horse" not in repr((source, sink))
        for client in (logs.open_client(source), writer.open_client(sink)):
            with client:
                assert client.cluster().brokers
