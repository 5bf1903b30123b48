"""The certificates of listeners in the HTTP API, and the command to read their files again."""

from __future__ import annotations

from dragoman.api.access import Access, Rights
from dragoman.api.values import CertificateCommand, CertificateList, CertificateStatus
from dragoman.net.tls.contexts import TlsContexts
from dragoman.security.access import Caller, Operation
from dragoman.security.audit import AuditLog, administration


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
