"""The cluster's key and the certificates of listeners in the HTTP API: their state, and commands.

A command rotates the key, or has the files of certificates read again.
"""

from __future__ import annotations

from dragoman.api.access import Access, Rights
from dragoman.api.values import (
    CertificateCommand,
    CertificateList,
    CertificateStatus,
    ClusterKeyNode,
    ClusterKeyStatus,
    KeyCommand,
)
from dragoman.broker.cluster_key import ClusterKeyService, KeyStatus
from dragoman.errors import DragomanError
from dragoman.net.future import future_of
from dragoman.net.tls.contexts import TlsContexts
from dragoman.security.access import Caller, Operation
from dragoman.security.audit import AuditLog, administration


class KeyService:
    def __init__(self, cluster_key: ClusterKeyService, rights: Rights, audit: AuditLog) -> None:
        self._cluster_key = cluster_key
        self._access = Access(rights)
        self._audit = audit

    async def cluster_key_status(self, caller: Caller) -> ClusterKeyStatus:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        return _shown(await future_of(self._cluster_key.status()))

    async def command_cluster_key(self, caller: Caller, wanted: KeyCommand) -> ClusterKeyStatus:
        self._access.require_cluster(caller, Operation.ALTER)
        assert wanted.command == "rotate"
        try:
            status = await future_of(self._cluster_key.rotate())
        except DragomanError as error:
            self._record(caller, failure=str(error))
            raise
        self._record(caller, detail=f"current: {status.current}")
        return _shown(status)

    def _record(self, caller: Caller, *, detail: str = "", failure: str = "") -> None:
        self._audit.record(
            administration("key.rotate", caller, "http", detail=detail, failure=failure)
        )


def _shown(status: KeyStatus) -> ClusterKeyStatus:
    return ClusterKeyStatus(
        current=status.current,
        nodes=tuple(
            ClusterKeyNode(node=each.node, keys=each.keys, problem=each.problem)
            for each in status.nodes
        ),
        sealed=status.sealed,
        clear=status.clear,
    )


class CertificateService:
    def __init__(self, contexts: TlsContexts, rights: Rights, audit: AuditLog) -> None:
        self._contexts = contexts
        self._access = Access(rights)
        self._audit = audit

    def certificate_status(self, caller: Caller) -> CertificateList:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        return self._shown()

    async def command_certificates(
        self, caller: Caller, wanted: CertificateCommand
    ) -> CertificateList:
        self._access.require_cluster(caller, Operation.ALTER)
        assert wanted.command == "reload"
        self._contexts.reload()
        shown = self._shown()
        problems = "; ".join(each.problem for each in shown.items if each.problem)
        self._audit.record(administration("certificates.reload", caller, "http", failure=problems))
        return shown

    def _shown(self) -> CertificateList:
        return CertificateList(
            items=tuple(
                CertificateStatus(
                    listener=each.listener,
                    subject=each.subject,
                    expires_ms=each.expires_ms,
                    problem=each.problem,
                )
                for each in self._contexts.states()
            )
        )
