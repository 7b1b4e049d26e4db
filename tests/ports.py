"""Ports of this machine, for servers that tests start and that must be told theirs."""

from __future__ import annotations

import random
import socket

# Below those that the kernel hands out (32768 and up): no connection of anybody takes one between
# the moment that it is chosen and the moment that its server listens. Above those of Ray.
PORTS = range(20000, 32000)


def free_port() -> int:
    """A port on which nothing listens."""
    for port in random.SystemRandom().sample(PORTS, 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("1000 ports of this machine are taken")
