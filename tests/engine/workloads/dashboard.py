"""Ray's job API for simulated clusters, whose heads run no Ray."""

from __future__ import annotations

import subprocess

from tests.engine.workloads.simulation import Simulation, wait_until


class RayDashboard:
    """Ray's job API in place of the head that a simulation does not run; a context manager."""

    def __init__(self, simulation: Simulation, cluster: str) -> None:
        """`cluster` is the RayCluster's name."""
        self._head = {"ray.io/cluster": cluster, "ray.io/node-type": "head"}
        self._sandbox = simulation.sandbox
        self._simulation = simulation
        self._state = simulation.sandbox.folder.root / "ray-job-status"
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> RayDashboard:
        head = wait_until(
            "Ray's head",
            lambda: [
                pod for pod in self._simulation.pods(**self._head) if pod["status"].get("podIP")
            ],
        )[0]
        address = ["ip", "address", "add", f"{head['status']['podIP']}/32", "dev", "lo"]
        self._sandbox.run(address)
        self.serve("PENDING")
        self._server = self._sandbox.popen(["python", "-c", DASHBOARD, str(self._state)])
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def serve(self, status: str) -> None:
        """What the API says from now on."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(status)
        fresh.replace(self._state)  # the server may be reading


DASHBOARD = """
import http.server, json, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status = pathlib.Path(sys.argv[1]).read_text()
        job = {"status": status, "message": "", "entrypoint": "e", "type": "SUBMISSION"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(job).encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8265), Handler).serve_forever()
"""
