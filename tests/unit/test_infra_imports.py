"""Two of the program's own resources that the engine makes at the same moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FIRST_IMPORTS = """
import sys, threading, time
from infra import image, ray_operator

sys.setswitchinterval(1e-5)
start, ended = threading.Barrier(2), []

def create(provider, later):
    start.wait()
    time.sleep(later)
    try:
        provider.create({})
    except Exception as error:
        ended.append(repr(error))

providers = (image.ImageProvider(), 0.0), (ray_operator._Provider(), float(sys.argv[1]))
threads = [threading.Thread(target=create, args=pair) for pair in providers]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(ended))
"""


def test_two_resources_of_ours_fail_on_a_partially_initialized_module() -> None:
    for later in ("0.02", "0.05", "0.1"):  # one of these meets the moment on most machines
        done = subprocess.run(
            [sys.executable, "-c", FIRST_IMPORTS, later],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        # Each gets as far as to miss its first property.
        assert done.stdout == """["KeyError('kubeconfig')", "KeyError('project')"]\n"""
