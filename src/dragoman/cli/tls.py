"""`dragoman tls`: certificates to begin with."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.output import Output, note, show
from dragoman.cli.status import USAGE, CommandError


class CertificateFiles(msgspec.Struct, frozen=True):
    """An item of the JSON form of `tls dev`."""

    #: `server`, or the user of a client.
    name: str
    certificate: str
    key: str
    ca: str


app = App(name="tls", help="Make certificates for tests.")
_HOSTS = ("localhost", "127.0.0.1", "::1")


@app.command
def dev(
    directory: str,
    /,
    *,
    name: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    client: Annotated[tuple[str, ...], Parameter(negative="")] = ("client",),
    output: Output = "table",
) -> None:
    """Write a test authority, a server's certificate and certificates of clients to a directory.

    An authority that is there is used again, so that its clients trust the new certificates, too.

    Parameters
    ----------
    directory
        Directory to write to; it is created.
    name
        Host name or address of the server, besides those of this machine; may be repeated.
    client
        User to make a certificate for; may be repeated.

    Examples
    --------
    dragoman tls dev certificates --name broker1.example --client alice
    """
    # Imported here: cryptography takes a tenth of a second.
    from dragoman.certificates import AUTHORITY_FILE, authority_in, write_pair

    if "ca" in client or "server" in client:
        raise CommandError("--client: the files ca and server belong to others", USAGE)
    if any(os.sep in each or not each.isprintable() or not each for each in client):
        raise CommandError("--client: expected names that can be names of files", USAGE)
    where = os.path.abspath(directory)
    try:
        authority = authority_in(where)
        certificate, key = write_pair(where, "server", authority.server([*name, *_HOSTS]))
        pairs = {each: write_pair(where, each, authority.client(each)) for each in client}
    except (OSError, ValueError) as error:
        raise CommandError(f"{directory}: {error}") from None
    ca = os.path.join(where, AUTHORITY_FILE)
    host = name[0] if name else "localhost"
    note(output, f"{where} has a test authority, a server's certificate and {', '.join(pairs)}'s")
    files = [CertificateFiles("server", certificate, key, ca)]
    files += [CertificateFiles(user, *pair, ca) for user, pair in pairs.items()]
    text = (
        "# A node with a listener for TLS:\n"
        "dragoman serve --listen kafka=127.0.0.1:9092 --listen kafka-tls=127.0.0.1:9093"
        " --set listener.kafka-tls.tls=required"
        f" --set ssl.certificate.file={certificate} --set ssl.key.file={key}"
        f" --set ssl.ca.file={ca}\n"
        "# Its clients:\n"
        f"dragoman consume TOPIC --bootstrap {host}:9093 --ca-file {ca}\n"
        f"kcat -b {host}:9093 -X security.protocol=SSL -X ssl.ca.location={ca} -L"
    )
    for user, (client_certificate, client_key) in pairs.items():
        text += (
            f"\n# With --set listener.kafka-tls.ssl.client.auth=required, as CN={user}:\n"
            f"dragoman consume TOPIC --bootstrap {host}:9093 --ca-file {ca}"
            f" --certificate-file {client_certificate} --key-file {client_key}"
        )
    show(output, files, CertificateFiles, text)
