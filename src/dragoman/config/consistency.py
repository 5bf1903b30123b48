"""What settings must satisfy beyond the bounds of each key: values with parts, and values that have
to agree with others.
"""

from __future__ import annotations

import re

from dragoman.config.hosts import check_hosts, is_network, network_and_name, own_address
from dragoman.config.keys import INT_MAX, Value
from dragoman.config.listeners import Address, parse_address
from dragoman.config.settings import Settings, node_wide
from dragoman.config.user_names import problem_of
from dragoman.errors import ConfigError

#: Letters that need no escape in a URL or a cookie; it does not end with a slash.
_BASE_PATH = re.compile(r"/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-]")
#: Kinds of names in certificates of nodes.
_CERTIFICATE_NAMES = ("URI", "DNS", "IP Address", "SUBJECT")


def check_consistent(settings: Settings) -> None:
    """Refuse settings that contradict each other."""
    pairs = (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
        ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
        ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
        ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
        ("message.max.bytes", "socket.request.max.bytes"),
        # A request that does not fit the budget would never be read completely.
        ("socket.request.max.bytes", "memory.budget.bytes"),
    )
    for lower, upper in pairs:
        low, high = settings.value(lower), settings.value(upper)
        assert isinstance(low, int)
        assert isinstance(high, int)
        if low > high:
            raise ConfigError(f"{lower} ({low}) is above {upper} ({high})")
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms"
        )
    if not settings.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors: expected at least one")
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        raise ConfigError(
            "broker.heartbeat.interval.ms must be at most half of broker.session.timeout.ms"
        )
    if settings.cluster:
        own_address(settings.cluster_nodes, settings.node_id)
    peer = settings.listener("peer")
    if peer is not None and peer.bind.is_wildcard and not (peer.advertised or settings.cluster):
        raise ConfigError(
            "listen peer: other nodes need an address of this one, with --advertise peer=HOST:PORT"
        )
    if peer is not None:
        _check_peers(settings)
    check_hosts("http.allowed.hosts", settings.http_allowed_hosts)
    base_path_problem = problem_of_base_path(settings.console_base_path)
    if base_path_problem:
        raise ConfigError(f"console.base.path: {base_path_problem}")
    check_hosts("capture.allowed.hosts", settings.capture_allowed_hosts)
    super_users(settings)
    if not settings.data:
        raise ConfigError("data: expected a directory, got nothing")
    if not settings.metadata_etcd_prefix.strip("/"):
        raise ConfigError("metadata.etcd.prefix: expected a name, got nothing")
    etcd_addresses(settings)
    if settings.metadata_quorum == "etcd":
        _check_etcd(settings)
    connections_by_address(settings)
    _check_security(settings)


def problem_of_base_path(path: str) -> str:
    """Why a console cannot be shown under this path; empty when it can."""
    is_usable = _BASE_PATH.fullmatch(path) is not None and "//" not in path
    return "" if not path or is_usable else f"expected a path such as /dragoman, got {path!r:.200}"


def _check_security(settings: Settings) -> None:
    for name in ("principals", *(each for each, _ in settings.per_listener)):
        if node_wide(name) == "principals":
            _check_networks(name, settings.value(name))
    for listener in settings.listeners:
        security = settings.listener_security(listener.name)
        if security.tls == "off":
            continue
        options = settings.listener_tls(listener.name)
        if not options.certificate_file:
            raise ConfigError(
                f"listener {listener.name}: TLS needs ssl.certificate.file and ssl.key.file;"
                " `dragoman tls dev DIR` makes them for tests"
            )
        if options.client_certificates != "none" and not options.ca_file:
            raise ConfigError(
                f"listener {listener.name}: ssl.client.auth needs ssl.ca.file, the authorities of"
                " clients"
            )
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    schemes = ["file:///", "https://"]
    if settings.sasl_oauthbearer_insecure_http:
        schemes.append("http://")
    if url and not url.startswith(tuple(schemes)):
        raise ConfigError(
            "sasl.oauthbearer.jwks.endpoint.url: expected https://... or file:///..., got"
            f" {url!r:.200}"
        )
    if settings.ssl_principal_mapping_rules not in ("", "DEFAULT"):
        # Imported here: few nodes have rules.
        from dragoman.config.principals import parse_principal_rules

        parse_principal_rules(settings.ssl_principal_mapping_rules)


def _check_networks(key: str, value: Value) -> None:
    assert isinstance(value, tuple)
    for text in value:
        network, name = network_and_name(text)
        if not name or not is_network(network):
            raise ConfigError(f"{key}: expected NETWORK=NAME, as in 10.0.0.0/8=batch, got {text!r}")
        problem = problem_of(name)
        if problem:
            raise ConfigError(f"{key}: {problem}, got {text!r}")


def super_users(settings: Settings) -> tuple[str, ...]:
    """The principals to which no access rule applies. Raises `ConfigError`."""
    # Kafka's separator: the name of a user may be the subject of a certificate, with commas.
    found = tuple(filter(None, map(str.strip, settings.super_users.split(";"))))
    for text in found:
        kind, _, name = text.partition(":")
        if kind != "User" or problem_of(name):
            raise ConfigError(f"super.users: expected User:NAME, separated by `;`, got {text!r}")
    return found


def _check_peers(settings: Settings) -> None:
    """Refuse what would keep nodes from recognising each other: a cluster without connections
    could not even undo it.
    """
    security = settings.listener_security("peer")
    for name in settings.peer_certificate_names:
        kind, _, value = name.partition(":")
        if kind not in _CERTIFICATE_NAMES or "{node}" not in value:
            raise ConfigError(
                f"peer.certificate.names: expected {', '.join(_CERTIFICATE_NAMES)} and a name with "
                f"{{node}} after a colon, got {name!r}"
            )
    if security.authentication != "required":
        return
    if security.tls != "required":
        raise ConfigError(
            "listener.peer.authentication: nodes recognise each other inside TLS; set "
            "listener.peer.tls to required first, or this to off"
        )
    if not settings.peer_secret_file and security.client_certificates == "none":
        raise ConfigError(
            "listener.peer.authentication: nodes need peer.secret.file, or certificates: set "
            "listener.peer.ssl.client.auth to required, and listener.peer.ssl.ca.file"
        )


def connections_by_address(settings: Settings) -> dict[str, int]:
    """The addresses with another bound of connections. Raises `ConfigError`."""
    found: dict[str, int] = {}
    for text in settings.max_connections_per_ip_overrides:
        address, _, number = text.rpartition(":")
        is_number = number.isascii() and number.isdecimal() and int(number) <= INT_MAX
        usual = _usual_address(address.strip("[]")) if is_number else None
        if usual is None:
            raise ConfigError(
                f"max.connections.per.ip.overrides: expected ADDRESS:NUMBER, got {text!r}"
            )
        found[usual] = int(number)
    return found


def _usual_address(text: str) -> str | None:
    """An address in the form that the system uses for peers; None for a name."""
    # Imported here: the import would slow every start.
    import ipaddress

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def etcd_addresses(settings: Settings) -> list[Address]:
    """Addresses of the members of etcd. Raises `ConfigError`."""
    found: list[Address] = []
    schemes: set[str] = set()
    for text in settings.metadata_etcd_endpoints:
        scheme, separator, rest = text.partition("://")
        if separator and scheme not in ("http", "https"):
            raise ConfigError(
                f"metadata.etcd.endpoints: expected https://HOST:PORT or http://, got {text!r}"
            )
        schemes.add(scheme if separator else "http")
        address = rest.rstrip("/") if separator else text
        found.append(parse_address("metadata.etcd.endpoints", address, port_min=1))
    if len(schemes) > 1:
        raise ConfigError("metadata.etcd.endpoints: expected all with https:// or none")
    return found


def etcd_has_tls(settings: Settings) -> bool:
    """Whether the members of etcd are reached by https."""
    return any(text.startswith("https://") for text in settings.metadata_etcd_endpoints)


def _check_etcd(settings: Settings) -> None:
    files = ("ca", "certificate", "key")
    given = [each for each in files if settings.value(f"metadata.etcd.{each}.file")]
    if given and not etcd_has_tls(settings):
        raise ConfigError(
            f"metadata.etcd.{given[0]}.file: only for metadata.etcd.endpoints with https://"
        )
    if settings.metadata_etcd_key_file and not settings.metadata_etcd_certificate_file:
        raise ConfigError("metadata.etcd.key.file: needs metadata.etcd.certificate.file")
    user, password = settings.metadata_etcd_user, settings.metadata_etcd_password
    if bool(user) != bool(password):
        raise ConfigError("metadata.etcd.user and metadata.etcd.password need each other")
    if password and not password.startswith(("file:/", "env:")):
        # The value is not shown: it is a password, given by mistake.
        raise ConfigError("metadata.etcd.password: expected file:/PATH or env:NAME")
