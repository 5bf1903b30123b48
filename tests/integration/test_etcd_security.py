"""Goal: nodes keep their metadata in an etcd that demands TLS, certificates and logins.

Method: the etcd of the test wheel with certificates of the test; nodes as processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.certificates import Authority
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from nodes.cluster import ServedCluster
from nodes.etcd import HOST, EtcdFiles, RealEtcd

PASSWORD = "correct horse"


def written(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


@pytest.fixture
def files(tmp_path: Path) -> EtcdFiles:
    authority = Authority.create("etcd")
    member = authority.server([HOST])
    client = authority.client("node")
    return EtcdFiles(
        ca=written(tmp_path / "ca.pem", authority.pair.certificate),
        member=written(tmp_path / "member.pem", member.certificate + member.key),
        client=written(tmp_path / "client.pem", client.certificate + client.key),
    )


@pytest.fixture
def etcd(tmp_path: Path, files: EtcdFiles) -> Iterator[RealEtcd]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    made = RealEtcd(directory, files._replace(client=None))
    made.require_logins("dragoman", PASSWORD)
    yield made
    made.stop()


def settings(files: EtcdFiles, password: str, **others: str) -> list[str]:
    wanted = {
        "metadata.etcd.ca.file": str(files.ca),
        "metadata.etcd.user": "dragoman",
        "metadata.etcd.password": password,
        **others,
    }
    return [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]


def test_nodes_log_in_to_etcd_and_again_when_their_tokens_are_gone(
    tmp_path: Path, etcd: RealEtcd, files: EtcdFiles
) -> None:
    secret = written(tmp_path / "password", PASSWORD.encode() + b"\n")
    options = settings(files, f"file:{secret}")
    with ServedCluster(tmp_path, 3, *options, etcd_url=etcd.url) as cluster:
        cluster.start(1, 2, 3)
        cluster.wait_in_sync()
        # Tokens live in the memory of a member.
        etcd.kill()
        etcd.start()
        # A new revision of users and rights makes earlier tokens worthless, too.
        login = {"name": "root", "password": "root"}
        etcd._token = etcd.post("/v3/auth/authenticate", login)["token"]
        etcd.post("/v3/auth/user/add", {"name": "another", "password": "x"})
        cluster.wait_in_sync()
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            client.create_topic(NewTopic(name="t", partitions=3, replication_factor=3))
        cluster.wait_in_sync(3)
        for node in cluster.nodes.values():
            assert not any(PASSWORD in line for line in node.log)
            command = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
            assert PASSWORD.encode() not in command


def test_what_etcd_refuses_is_said_once(tmp_path: Path, etcd: RealEtcd, files: EtcdFiles) -> None:
    options = settings(files, "env:ETCD_SECRET")
    with ServedCluster(tmp_path, 1, *options, etcd_url=etcd.url) as cluster:
        os.environ["ETCD_SECRET"] = "wrong"
        try:
            cluster.begin(1)
        finally:
            del os.environ["ETCD_SECRET"]
        said = "etcd accepts no login: user dragoman: etcdserver: authentication failed"
        cluster.wait_for_log(1, said)
        assert sum(said in line for line in cluster.nodes[1].log) == 1
        assert not any("wrong" in line for line in cluster.nodes[1].log)


def test_etcd_of_another_authority_is_not_used(
    tmp_path: Path, etcd: RealEtcd, files: EtcdFiles
) -> None:
    foreign = written(tmp_path / "foreign.pem", Authority.create("foreign").pair.certificate)
    secret = written(tmp_path / "password", PASSWORD.encode())
    options = settings(files, f"file:{secret}", **{"metadata.etcd.ca.file": str(foreign)})
    with ServedCluster(tmp_path, 1, *options, etcd_url=etcd.url) as cluster:
        cluster.begin(1)
        cluster.wait_for_log(1, "certificate verify failed")


def test_nodes_show_etcd_their_certificates(tmp_path: Path, files: EtcdFiles) -> None:
    (tmp_path / "etcd").mkdir()
    etcd = RealEtcd(tmp_path / "etcd", files)
    wanted = {
        "metadata.etcd.ca.file": files.ca,
        "metadata.etcd.certificate.file": files.client,
    }
    options = [part for key, path in wanted.items() for part in ("--set", f"{key}={path}")]
    try:
        with ServedCluster(tmp_path, 2, *options, etcd_url=etcd.url) as cluster:
            cluster.start(1, 2)
            cluster.wait_in_sync()
        # Without a certificate there is no connection.
        with ServedCluster(tmp_path / "other", 1, *options[:2], etcd_url=etcd.url) as cluster:
            cluster.begin(1)
            cluster.wait_for_log(1, " alert ")
    finally:
        etcd.stop()
