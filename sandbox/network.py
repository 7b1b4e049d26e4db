"""The sandbox's network: one bridge, and a network namespace with its own address for each pod."""

from __future__ import annotations

import ipaddress
import subprocess
import threading
from pathlib import Path

from sandbox.certificates import ADDRESS

BRIDGE = "pods0"
PREFIX = 16


def run(*command: str) -> None:
    """Run a command of the system; its complaint is the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def set_up(hosts: Path, resolver: Path) -> None:
    """Make the bridge and put our hosts file in place; inside the sandbox's namespaces only."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")  # `ip netns` keeps its names there
    hosts.write_text("127.0.0.1 localhost\n")
    # No server answers there: a name that is in no hosts file fails at once instead of after
    # the host's resolver has timed out.
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    run("mount", "--bind", str(hosts), "/etc/hosts")
    if Path("/etc/resolv.conf").exists():
        run("mount", "--bind", str(resolver), "/etc/resolv.conf")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    run("ip", "address", "add", f"{ADDRESS}/{PREFIX}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


class PodNetworks:
    """Hands out addresses and network namespaces to pods."""

    def __init__(self) -> None:
        self._range = ipaddress.ip_network(f"{ADDRESS}/{PREFIX}", strict=False)
        self._next = 256  # 10.77.1.0: the first 255 addresses are the sandbox's own
        self._lock = threading.Lock()

    def add(self) -> tuple[str, str]:
        """A new namespace: its name and its address.

        There is no default route: whatever is not in the sandbox is unreachable at once.
        """
        number = self._number()
        address = str(self._range[number])
        name = f"pod{number}"
        host_end = f"veth{number}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", host_end, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", host_end, "master", BRIDGE, "up")
        run("ip", "-n", name, "address", "add", f"{address}/{PREFIX}", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        return name, address

    def reserve(self) -> str:
        """An address without a namespace."""
        return str(self._range[self._number()])

    def _number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def remove(self, name: str) -> None:
        """Remove a namespace; its link and address go with it."""
        run("ip", "netns", "delete", name)
