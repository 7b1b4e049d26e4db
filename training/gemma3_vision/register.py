"""Ray Train's own register of checkpoints, in the run's folder. Light: the driver imports it."""

import json

from training.common.storage import Folder

RAY_NAME = "checkpoints"  # Ray's experiment folder below the run's folder
SNAPSHOT = "checkpoint_manager_snapshot.json"


def mend_register(folder: Folder) -> None:
    """Drop Ray's register of checkpoints where it would stop a new driver.

    Ray refuses to start when its snapshot cannot be read, was written by another version, or names
    a folder that is gone. The manifests say what is there, so the register may go.
    """
    store = folder / RAY_NAME
    try:
        text = store.read(SNAPSHOT).decode()
    except FileNotFoundError:
        return
    try:
        import ray

        state = json.loads(text)
        names = [result["checkpoint_dir_name"] for result in state["checkpoint_results"]]
        present = {path.split("/", 1)[0] for path in store.list()}
        sound = state["ray_version"] == ray.__version__ and set(names) <= present
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        store.delete(SNAPSHOT)
