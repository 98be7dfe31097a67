"""Where a device over RPC is found: at a tracker by its key, or at the addresses of its agents."""

from __future__ import annotations

from dataclasses import dataclass, replace

# What a client waits for a device that is busy. Not longer: whoever has none wants to know.
FREE_S = 10.0
# A client gives a device up so long after the session's own end, which the device has to see to.
GRACE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class RpcAddress:
    """Either `tracker` ("host:port") and `key`, or the addresses of `agents`, with the `key` they were started with.

    `cpu` is what the devices have to be, where that is known already.
    `timeout_s`: what one thing done on the device (a candidate, one row's round) may take over its own time.
    """

    tracker: str | None = None
    agents: tuple[str, ...] = ()
    key: str = ""
    cpu: str | None = None
    timeout_s: float = 60.0

    def __str__(self) -> str:
        if self.tracker is not None:
            return f"rpc://{self.tracker}/{self.key}"
        return f"agent://{','.join(self.agents)}" + (f"/{self.key}" if self.key else "")

    @property
    def deadline_s(self) -> float:
        """After so long without an answer the device is given up."""
        return self.timeout_s + GRACE_S

    def of_cpu(self, cpu: str | None) -> RpcAddress:
        """The same, of whose devices those with another CPU are refused."""
        return replace(self, cpu=cpu)

    def single(self, number: int) -> RpcAddress:
        """The address of the device that the `number`-th of several workers uses; at a tracker all use the same."""
        if self.tracker is not None:
            return self
        return replace(self, agents=(self.agents[number],))


def split_address(text: str) -> tuple[str, int]:
    """(host, port) of "host:port"."""
    host, _, port = text.rpartition(":")
    return host, int(port)
