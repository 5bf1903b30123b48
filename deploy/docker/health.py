"""Exits with 0 if the node of this container answers `/livez`, or the path that is given.

The administrator's socket needs neither an address, TLS nor a login, whatever the settings are.
"""

import os
import socket
import sys

path = sys.argv[1] if len(sys.argv) > 1 else "/livez"
directory = os.environ.get("DRAGOMAN_DATA", "/var/lib/dragoman")
with socket.socket(socket.AF_UNIX) as node:
    node.settimeout(4)
    try:
        node.connect(f"{directory}/admin.sock")
        node.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = b""
        while data := node.recv(4096):
            answer += data
    except OSError as error:
        sys.exit(f"no answer: {error}")
head, _, body = answer.partition(b"\r\n\r\n")
print(body.decode(errors="replace").strip())
sys.exit(0 if head.split()[1:2] == [b"200"] else 1)
