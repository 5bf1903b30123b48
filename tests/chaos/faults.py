"""What happens to nodes and to the network between them, and how it ends."""

from __future__ import annotations

import signal
import time
from random import Random

from chaos.cluster import NODES, ChaosCluster
from chaos.network import Way


class Fault:
    """`begin`, some time, `end`; `settle` waits until the node serves again."""

    #: In words that are counted.
    kind: str

    def __init__(self, node: int) -> None:
        self.node = node

    def __str__(self) -> str:
        return f"{self.kind} {self.node}"

    def begin(self, cluster: ChaosCluster) -> None:
        raise NotImplementedError

    def end(self, cluster: ChaosCluster) -> None:
        raise NotImplementedError

    def settle(self, cluster: ChaosCluster) -> None: ...


class Kill(Fault):
    kind = "kill"

    def begin(self, cluster: ChaosCluster) -> None:
        cluster.kill(self.node)

    def end(self, cluster: ChaosCluster) -> None:
        cluster.begin(self.node)

    def settle(self, cluster: ChaosCluster) -> None:
        cluster.nodes[self.node].ready()


class Pause(Fault):
    kind = "pause"

    def begin(self, cluster: ChaosCluster) -> None:
        cluster.nodes[self.node].signal(signal.SIGSTOP)

    def end(self, cluster: ChaosCluster) -> None:
        cluster.nodes[self.node].signal(signal.SIGCONT)


class Cut(Fault):
    """Nodes do not hear each other; clients reach all of them."""

    def __init__(self, kind: str, node: int, ways: list[Way]) -> None:
        super().__init__(node)
        self.kind = kind
        self._ways = ways

    def begin(self, cluster: ChaosCluster) -> None:
        cluster.network.cut(self._ways)

    def end(self, cluster: ChaosCluster) -> None:
        cluster.network.heal()


class Resets(Fault):
    """All connections of a node to others are reset, a few times in a row."""

    kind = "reset"

    def __init__(self, node: int, pauses_s: list[float]) -> None:
        super().__init__(node)
        self._pauses_s = pauses_s

    def begin(self, cluster: ChaosCluster) -> None:
        for pause_s in self._pauses_s:
            for other in NODES:
                if other != self.node:
                    cluster.network.reset(self.node, other)
            time.sleep(pause_s)

    def end(self, cluster: ChaosCluster) -> None: ...


def plan(random: Random) -> list[Fault]:
    """The faults of one cycle."""
    what = random.choices(("processes", "cut", "resets", "both"), (9, 8, 2, 3))[0]
    faults: list[Fault] = []
    if what in ("cut", "both"):
        faults.append(_cut(random))
    if what in ("processes", "both"):
        count = 1 if what == "both" else random.choices((1, 2, 3), (6, 2, 1))[0]
        victims = random.sample(NODES, count)
        faults += [random.choice((Kill, Kill, Pause))(node) for node in victims]
    if what == "resets":
        pauses_s = [random.uniform(0.0, 0.3) for _ in range(random.randint(1, 5))]
        faults.append(Resets(random.choice(NODES), pauses_s))
    return faults


def _cut(random: Random) -> Cut:
    node, *others = random.sample(NODES, len(NODES))
    match random.choice(("isolate", "isolate", "deafen", "mute", "split")):
        case "isolate":
            ways = [way for other in others for way in ((node, other), (other, node))]
            return Cut("isolate", node, ways)
        case "deafen":
            return Cut("deafen", node, [(other, node) for other in others])
        case "mute":
            return Cut("mute", node, [(node, other) for other in others])
        case _:
            return Cut("split from one", node, [(node, others[0]), (others[0], node)])
