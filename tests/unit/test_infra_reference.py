"""docs/configuration.md and Pulumi.yaml follow from the settings' model."""

from __future__ import annotations

import yaml

from infra import reference
from infra.schema import Settings
from tests.unit.program import ROOT


def test_page_and_project_file_are_fresh():
    assert reference.main(["--check"]) == 0, "run `python -m infra.reference`"


def test_stale_page_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "PAGE", tmp_path / "docs" / "configuration.md")
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: gemma\nconfig:\n  gemma:old: {}\n")
    monkeypatch.setattr(reference, "PROJECT", project)
    assert reference.main(["--check"]) == 1
    assert "docs/configuration.md is stale" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    assert project.read_text().startswith("name: gemma\nconfig:\n  gemma:accelerator")


def test_every_key_is_described():
    page = reference.page()
    for key, field in reference.fields(Settings):
        text = " ".join((field.description or "").split())
        assert text.endswith("."), key
        assert text in page, key
        assert key.rpartition(".")[2] in page


def test_every_declared_key_has_a_type_and_a_default_that_the_engine_accepts():
    # The engine takes a declared key without a default for required, before our checks run.
    block = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    types = {"string": str, "boolean": bool, "object": dict}
    for key, declared in block.items():
        assert key.startswith("gemma:")
        assert isinstance(declared["default"], types[declared["type"]]), key
        assert declared["description"].endswith(".")
        assert "secret" not in declared  # the engine refuses the empty default of a secret key


def test_defaults_of_the_project_file_are_those_of_the_model():
    block = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    for name, field in Settings.model_fields.items():
        key = f"gemma:{field.alias or name}"
        if not field.exclude and block[key]["type"] != "object":
            assert block[key]["default"] == ("" if field.default is None else field.default), key
