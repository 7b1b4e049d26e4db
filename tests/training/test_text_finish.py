"""The order of what follows the last step: nothing is handed on that was not verified."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from training.common import hub
from training.common.storage import Folder
from training.gemma4_text import export, finish
from training.gemma4_text.config import load
from training.gemma4_text.rows import Row
from training.gemma4_text.split import Split

GOOD = {"tuned": [1.0], "base": [2.0]}


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        (GOOD, ""),
        ({"tuned": [2.0], "base": [2.0]}, "changes nothing"),
        ({"tuned": [1.5], "base": [2.0]}, "row 0, tuned"),
    ],
)
def test_only_an_adapter_that_is_what_was_trained_is_merged_and_pushed(
    fresh: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sections = {
        "run": {"output_dir": str(tmp_path / "out"), "device": "cpu"},
        "model": {"model_name_or_path": str(tmp_path), "dtype": "float32"},
        "export": {"merged": True},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(sections))
    order: list[str] = []

    def step(module: Any, name: str, result: Any) -> None:
        def call(*_: Any, **__: Any) -> Any:
            order.append(name)
            return result

        monkeypatch.setattr(module, name, call)

    row = Row("q", "CREATE TABLE t (a INT)", "SELECT a FROM t")
    step(finish, "_measure", ({"tuned": (1.0, [row.answer])}, [{}], GOOD))
    step(finish, "_reload", fresh)
    step(export, "merge", 1)
    step(hub, "push", "page")
    (tmp_path / "local" / "adapter").mkdir(parents=True)
    trainer = SimpleNamespace(args=SimpleNamespace(process_index=0), model=None)
    facts = {"steps": 1, "parameters": 1, "train_loss": 1.0, "rows": {"rows": 1}, "dropped": {}}

    def end() -> int:
        return finish.finish(
            load(tmp_path / "run.yaml"),
            trainer,
            None,
            Split([], [row]),
            repository="jane/sql",
            local=tmp_path / "local",
            facts=facts,
            began=0.0,
        )

    if not said:
        assert end() == 0
        assert order == ["_measure", "_reload", "merge", "push"]
        assert Folder(tmp_path / "out").exists("result.json")
    else:
        with pytest.raises(RuntimeError, match=said):
            end()
        assert order == ["_measure", "_reload"]
        assert not (tmp_path / "out").exists()
