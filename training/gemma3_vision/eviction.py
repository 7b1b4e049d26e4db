"""What a worker hears of the end of its node. Light: a test of the hook imports it."""

import os
from pathlib import Path


class Eviction:
    """A node that is about to be taken away, as its pod's preStop hook tells it.

    The hook writes GEMMA_STOP_FILE, and holds the pod back while a process lives whose id names a
    file in GEMMA_TRAINING_FOLDER. Each rank has a file of its own: those of one node let go at
    different times, and one that was killed holds nobody back. Without these variables nothing is
    ever asked for.
    """

    def __init__(self) -> None:
        folder = os.environ.get("GEMMA_TRAINING_FOLDER")
        self.training = Path(folder) / str(os.getpid()) if folder else None
        self.stop = os.environ.get("GEMMA_STOP_FILE")

    def begin(self) -> None:
        """Training has begun: a stop must wait for a checkpoint."""
        if self.training:
            self.training.parent.mkdir(parents=True, exist_ok=True)
            self.training.touch()

    def asked(self) -> bool:
        """Whether this node is to go."""
        return bool(self.stop) and Path(str(self.stop)).exists()

    def end(self) -> None:
        """Nothing is lost any more when this process goes."""
        if self.training:
            self.training.unlink(missing_ok=True)
