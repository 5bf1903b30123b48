"""A group resumes at its committed offsets, whichever members it has.

    python examples/minibroker_resume/main.py

starts a broker of its own and prints

    first worker: b'task 0' b'task 1' b'task 2', committed behind 2
    second worker: b'task 3' b'task 4' b'task 5'
"""

from __future__ import annotations

from dragoman.client.minibroker import BlockingMinibrokerClient, BlockingSubscription, Delivered
from dragoman.testing import EphemeralBroker

SECONDS_MAX = 30


def take(subscription: BlockingSubscription, count: int) -> list[Delivered]:
    records = [subscription.next(SECONDS_MAX) for _ in range(count)]
    return [each for each in records if each is not None]


def main() -> None:
    with EphemeralBroker(listeners=("minibroker",)) as broker:
        address = broker.address("minibroker")
        with BlockingMinibrokerClient(address) as client:
            client.publish_many("tasks", [b"task %d" % n for n in range(6)], key=b"queue")

            with client.join("tasks", "workers") as member:
                done = take(member, 3)
                # Everything up to this record is done; what was only received is not.
                member.commit(done[-1])
            shown = " ".join(str(each.payload) for each in done)
            print(f"first worker: {shown}, committed behind {done[-1].offset}")

        with BlockingMinibrokerClient(address) as client, client.join("tasks", "workers") as member:
            rest = take(member, 3)
            print("second worker:", *(each.payload for each in rest))


if __name__ == "__main__":
    main()
