"""`dragoman console`: see and steer a node and its cluster in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Annotated

from cyclopts import App, Parameter

from dragoman.cli.kafka_client import DEFAULT_BOOTSTRAP
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.cli.target import DEFAULT_SERVER, Server
from dragoman.config.listeners import Address, parse_address

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
        str,
        Parameter(
            name=["--bootstrap", "-b"],
            help="Kafka brokers of which records are read, as HOST:PORT, separated by commas.",
        ),
    ] = DEFAULT_BOOTSTRAP,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Serve the console until it is interrupted.

    It has no rights of its own: users log in with what they log in to the node with. Without a
    login it only reads, and only browsers of this machine are served.

    Examples
    --------
    dragoman console --server http://10.0.0.5:8080 --bootstrap 10.0.0.5:9092
    """
    from dragoman.config.consistency import problem_of_base_path
    from dragoman.config.console import ConsoleSettings, KafkaTarget
    from dragoman.console.serve import serve

    address = parse_address("--listen", listen, port_min=0)
    target = server.resolved()
    if target.server.startswith("unix:"):
        raise CommandError("--server: the console needs a URL; it has no administrator", USAGE)
    if problem := problem_of_base_path(base_path):
        raise CommandError(f"--base-path: {problem}", USAGE)
    listener = _bound(address)
    settings = ConsoleSettings(
        server=target.server,
        ca_file=target.ca_file,
        kafka=KafkaTarget(bootstrap=bootstrap),
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
