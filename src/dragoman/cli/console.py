"""`dragoman console`: see and steer a node and its cluster in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import Broker, BrokerTarget
from dragoman.cli.kafka_client import DEFAULT_BOOTSTRAP
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.cli.target import DEFAULT_SERVER, Server
from dragoman.config.listeners import Address, parse_address

if TYPE_CHECKING:
    from dragoman.config.console import KafkaTarget

app = App(name="console", help="See and steer a node and its cluster in the browser.")
_DEFAULT_LISTEN = "127.0.0.1:8081"
_BACKLOG = 128


@app.default
def console(
    *,
    listen: Annotated[str, Parameter(help="Address for browsers, as HOST:PORT.")] = _DEFAULT_LISTEN,
    base_path: Annotated[
        str, Parameter(help="Path under which a proxy shows the console, such as /dragoman.")
    ] = "",
    host: Annotated[
        tuple[str, ...],
        Parameter(
            help="Another name by which browsers reach the console, whose pages may use it; may"
            " be repeated."
        ),
    ] = (),
    bootstrap: Annotated[
        str | None,
        Parameter(
            name=["--bootstrap", "-b"],
            help="Kafka brokers of which records are read, as HOST:PORT, separated by commas."
            f" Default: {DEFAULT_BOOTSTRAP}.",
            show_default=False,
        ),
    ] = None,
    tls: Annotated[
        bool,
        Parameter(
            help="Connect to the brokers with TLS; --ca-file is for both.",
            show_default=False,
            negative="",
        ),
    ] = False,
    certificate_file: Annotated[
        str,
        Parameter(
            help="Certificate (PEM) to show to the brokers; implies --tls.", show_default=False
        ),
    ] = "",
    key_file: Annotated[
        str, Parameter(help="Key (PEM) of the certificate.", show_default=False)
    ] = "",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Serve the console until it is interrupted.

    It has no rights of its own: users log in with what they log in to the node with, also to the
    brokers, by the best SASL mechanism that these offer. Without a login it only reads, and only
    browsers of this machine are served.

    Examples
    --------
    dragoman console --server http://10.0.0.5:8080 --bootstrap 10.0.0.5:9092
    dragoman console --server https://node:8080 --bootstrap node:9092 --tls --ca-file ca.pem
    """
    from dragoman.config.consistency import problem_of_base_path
    from dragoman.config.console import ConsoleSettings
    from dragoman.console.serve import serve

    address = parse_address("--listen", listen, port_min=0)
    target = server.resolved()
    if target.server.startswith("unix:"):
        raise CommandError("--server: the console needs a URL; it has no administrator", USAGE)
    if problem := problem_of_base_path(base_path):
        raise CommandError(f"--base-path: {problem}", USAGE)
    if target.server.startswith("https:"):
        target.tls()
    options = BrokerTarget(
        bootstrap=bootstrap,
        tls=tls,
        certificate_file=certificate_file,
        key_file=key_file,
        context=server.context,
    )
    kafka = _kafka(options.resolved(DEFAULT_BOOTSTRAP), server.ca_file)
    listener = _bound(address)
    settings = ConsoleSettings(
        server=target.server,
        ca_file=target.ca_file,
        kafka=kafka,
        base_path=base_path,
        hosts=(os.uname().nodename,),
        allowed_hosts=host,
        is_local=address.is_loopback,
    )
    bound = listener.getsockname()
    say(f"console at http://{Address(bound[0], bound[1])}{base_path}/, of {target.server}")

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        await serve(settings, listener, stop)

    asyncio.run(run())


def _kafka(broker: Broker, ca_file: str) -> KafkaTarget:
    """`ca_file` is the option, which is for https and brokers."""
    from dragoman.config.console import KafkaTarget

    if broker.tls is None:
        return KafkaTarget(bootstrap=broker.bootstrap)
    tls = msgspec.structs.replace(broker.tls, ca=ca_file or broker.tls.ca)
    # Once before browsers connect.
    tls.context()
    return KafkaTarget(
        bootstrap=broker.bootstrap,
        is_encrypted=True,
        authorities=tls.ca,
        certificate=tls.certificate,
        key=tls.key,
    )


def _bound(address: Address) -> socket.socket:
    """Raises `CommandError`."""
    try:
        return socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
            backlog=_BACKLOG,
        )
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"--listen {address}: cannot bind: {reason}") from None
