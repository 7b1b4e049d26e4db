"""Branches of the Hub as the commits that they stood for when the run first started.

A branch may move while a run waits for machines or starts again: it would go on with other rows,
some of them perhaps held out before, and its adapter would name a base that it never saw.
"""

from __future__ import annotations

import json
import re

from training.common import sources
from training.common.hub_errors import Kind
from training.common.preflight import Checked
from training.common.storage import Folder

PINS = "revisions.json"
COMMIT = re.compile(r"[0-9a-f]{40}")

Pins = dict[str, dict[str, str]]


def pins(config: Checked) -> Pins:
    """The commits of a run's model and data set, as values of its configuration.

    The first start of a run asks the Hub and writes them to the run's folder; later ones, and its
    other machines, read them there. Folders have none.

    Returns:
        {"model": {"model_revision": commit}, "data": {"dataset_revision": commit}}, without what
        is a folder.

    Raises:
        ConfigError, UnreachableError: as `sources.fetch`.
    """
    folder = Folder(config.run.output_dir)
    try:
        return json.loads(folder.read(PINS))
    except FileNotFoundError:
        pass
    model, data = config.model, config.data
    asked: tuple[tuple[str, str, str, str, Kind], ...] = (
        ("model", "model_revision", model.model_name_or_path, model.model_revision, "model"),
        ("data", "dataset_revision", data.dataset_name, data.dataset_revision, "dataset"),
    )
    found: Pins = {}
    for section, key, name, revision, kind in asked:
        if commit := sources.commit(name, revision, kind):
            found[section] = {key: commit}
    if found:
        folder.write(PINS, json.dumps(found, indent=2) + "\n")
    return found


def told(config: Checked) -> dict[str, str | None]:
    """Both commits for the record; None for a folder, which has none."""
    given = {
        "model_revision": config.model.model_revision,
        "dataset_revision": config.data.dataset_revision,
    }
    return {name: text if COMMIT.fullmatch(text) else None for name, text in given.items()}
