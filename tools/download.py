"""The second way: the project's own release, verified by the SHA-256 that it publishes."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from tools.recipe import Release, Tool

PROBE_S = 3.0  # an unreachable host costs this once a run: all hosts are probed side by side
STALL_S = 10.0  # without a byte
_ARCH = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class DownloadError(Exception):
    """Why a release was not taken."""


def expand(template: str, version: str) -> str:
    """Fill a URL template for this machine."""
    system = sys.platform
    arch = _ARCH.get(platform.machine().lower(), platform.machine().lower())
    x64 = {"amd64": "x64"}.get(arch, arch)
    return template.format(version=version, os=system, Os=system.capitalize(), arch=arch, x64=x64)


class Hosts:
    """Which hosts answer. One that did not answer once is not asked again in this run."""

    def __init__(self) -> None:
        self._down: dict[str, str] = {}

    def probe(self, urls: Iterable[str]) -> None:
        """Ask one URL of each host, all at once, for PROBE_S at most."""
        first = {urlsplit(url).netloc: url for url in urls}

        def ask(host: str, url: str) -> None:
            try:
                request = urllib.request.Request(url, method="HEAD")
                urllib.request.urlopen(request, timeout=PROBE_S).close()
            except urllib.error.HTTPError:
                self._down.pop(host, None)  # it answers; what it says belongs to the file
            except OSError as error:
                self.mark_down(host, error)
            else:
                self._down.pop(host, None)

        threads = [threading.Thread(target=ask, args=item, daemon=True) for item in first.items()]
        for host in first:
            self._down[host] = f"{host} did not answer within {PROBE_S:.0f} s"
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PROBE_S + 0.5)  # a name server's silence is not bound by the timeout

    def mark_down(self, host: str, error: Exception) -> None:
        self._down[host] = f"{host} cannot be reached: {getattr(error, 'reason', error)}"

    def check(self, url: str) -> None:
        """Raises DownloadError for a host that is known not to answer."""
        if why := self._down.get(urlsplit(url).netloc):
            raise DownloadError(why)


def published_sha256(text: str, name: str) -> str | None:
    """The digest of the file in a checksums text: `DIGEST  NAME` lines, or one bare digest."""
    for line in text.splitlines():
        found = re.fullmatch(r"([0-9a-fA-F]{64})(?:\s+\*?(?:.*/)?(\S+))?", line.strip())
        if found and found[2] in (None, name):
            return found[1].lower()
    return None


def fetch(tool: Tool, into: Path, hosts: Hosts, tick: Callable[[str], None]) -> str:
    """Download, verify and unpack a tool's programs into `into`/bin; returns the URL.

    Raises DownloadError.
    """
    if tool.release is None:
        raise DownloadError("there is no official download of the program")
    return _fetch(tool, tool.release, into, hosts, tick)


def _fetch(
    tool: Tool, release: Release, into: Path, hosts: Hosts, tick: Callable[[str], None]
) -> str:
    url, sums = (expand(text, tool.version) for text in (release.url, release.checksums))
    name = url.rsplit("/", 1)[1]
    listed = into / "checksums"
    _get(sums, listed, hosts, tick)
    wanted = published_sha256(listed.read_text(errors="replace"), name)
    listed.unlink()
    if wanted is None:
        raise DownloadError(f"{sums} does not list {name}")
    archive = into / name
    got = _get(url, archive, hosts, tick)
    if got != wanted:
        raise DownloadError(f"{url} has SHA-256 {got}, but {sums} says {wanted}")
    (into / "bin").mkdir()
    if name.endswith(".tar.gz"):
        _unpack(archive, tool.programs, into / "bin")
        archive.unlink()
    else:
        archive.rename(into / "bin" / tool.programs[0])
    for program in tool.programs:
        path = into / "bin" / program
        if not path.is_file():
            raise DownloadError(f"{url} has no {program} in it")
        path.chmod(0o755)
    return url


def _unpack(archive: Path, programs: tuple[str, ...], into: Path) -> None:
    """Copy the programs out of the archive, by base name, and nothing else."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                base = member.name.rsplit("/", 1)[-1]
                if member.isfile() and base in programs and (source := tar.extractfile(member)):
                    with (into / base).open("wb") as target:
                        shutil.copyfileobj(source, target)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DownloadError(f"{archive.name} cannot be unpacked: {error}") from error


def _get(url: str, path: Path, hosts: Hosts, tick: Callable[[str], None]) -> str:
    """Download to a file; returns its SHA-256."""
    hosts.check(url)
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=STALL_S) as answer, path.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while chunk := answer.read(1 << 18):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                size = f"{done / 1e6:.0f}" + (f" of {total / 1e6:.0f}" if total else "")
                tick(f"downloading {path.name}: {size} MB")
    except urllib.error.HTTPError as error:
        raise DownloadError(f"{url} answers {error.code} {error.reason}") from error
    except OSError as error:
        hosts.mark_down(urlsplit(url).netloc, error)
        raise DownloadError(f"{url}: {getattr(error, 'reason', error)}") from error
    return digest.hexdigest()
