"""A group resumes at its committed offsets, whichever members it has.

    python examples/cursus_resume/main.py

starts a broker of its own and prints

    the first worker did b'0' b'1' b'2' and committed
    it looked at b'3' and did not commit
    the second worker does b'3' b'4' b'5'
"""

from __future__ import annotations

from dragoman.client.cursus import BlockingCursusClient
from dragoman.testing import EphemeralBroker


def main() -> None:
    with (
        EphemeralBroker(listeners=("cursus",)) as broker,
        BlockingCursusClient(broker.address("cursus")) as client,
    ):
        client.create_topic("jobs", 1)
        with client.producer() as producer:
            producer.send_many("jobs", [b"%d" % number for number in range(6)])

        with client.consumer("jobs", "workers", auto_commit_s=None) as worker:
            done = [next(worker).payload for _ in range(3)]
            worker.commit()
            print("the first worker did", *done, "and committed")
            print("it looked at", next(worker).payload, "and did not commit")

        with client.consumer("jobs", "workers") as worker:
            print("the second worker does", *[next(worker).payload for _ in range(3)])


main()
