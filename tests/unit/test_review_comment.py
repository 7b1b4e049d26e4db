"""The comment of a pull request, from digests of the shape that the engine documents."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from review import comment, values
from review.digest import Preview, read

CLUSTER = "gcp:container/cluster:Cluster"
BUCKET = "gcp:storage/bucket:Bucket"
JOB = "kubernetes:batch/v1:Job"
MAP = "kubernetes:core/v1:ConfigMap"
ACCOUNT = "gcp:serviceaccount/account:Account"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def urn(kind: str, name: str) -> str:
    return f"urn:pulumi:dev::gemma::gemma:infra:Part${kind}::{name}"


def step(op: str, kind: str, name: str, old: Any = None, new: Any = None, **more: Any) -> Any:
    found: dict[str, Any] = {"op": op, "urn": urn(kind, name), "detailedDiff": None, **more}
    if old is not None:
        found["oldState"] = {"urn": urn(kind, name), "custom": True, "inputs": old}
    if new is not None:
        found["newState"] = {"urn": urn(kind, name), "custom": True, "inputs": new}
    return found


def replacement(kind: str, name: str, old: Any, new: Any, reasons: list[str]) -> list[Any]:
    """The three steps of one replacement, in the engine's order."""
    return [
        step("create-replacement", kind, name, old, new, replaceReasons=reasons),
        step("replace", kind, name, old, new, replaceReasons=reasons),
        step("delete-replaced", kind, name, old),
    ]


MIXED = [
    step("same", ACCOUNT, "trainer", {"accountId": "trainer"}, {"accountId": "trainer"}),
    step("create", ACCOUNT, "builder", new={"accountId": "builder", "displayName": "Builds"}),
    step("update", MAP, "labels", {"data": {"a": "1"}}, {"data": {"a": "2"}}),
    step("delete", ACCOUNT, "old", {"accountId": "old"}),
    *replacement(JOB, "text", {"name": "text-1"}, {"name": "text-2"}, ["name"]),
    *replacement(BUCKET, "runs", {"location": "US"}, {"location": "EU"}, ["location"]),
    *replacement(CLUSTER, "gke", {"network": "a"}, {"network": "b"}, ["network"]),
]


def rendered(steps: list[Any], **more: Any) -> str:
    return comment.render(read({"steps": steps, **more}), "dev", "`main` (0123456789)")


def test_a_bucket_of_build_contexts_is_no_loss() -> None:
    steps = replacement(BUCKET, "builds", {"location": "US"}, {"location": "EU"}, ["location"])
    assert "WARNING" not in rendered(steps)
    assert "WARNING" in rendered(MIXED)


def test_the_pickled_code_of_our_own_resources_is_left_out() -> None:
    text = rendered([step("create", MAP, "build", new={"__provider": "gASVIAAAA", "tag": "t"})])
    assert "gASVIAAAA" not in text
    assert "tag: t" in text


def test_counts_one_resource_once() -> None:
    preview = read({"steps": MIXED})
    counts = {word: preview.count(verdict) for verdict, word in comment.COUNTS}
    assert counts == {"create": 1, "update": 1, "replace": 3, "delete": 1}
    assert preview.same == 1
    assert "1 create, 1 update, 3 replaces, 1 delete" in rendered(MIXED)


def test_cluster_bucket_and_run_come_first_with_a_warning() -> None:
    text = rendered(MIXED)
    warning, _, rest = text.partition("\n\nCompared with")
    assert "> [!WARNING]" in warning
    places = [warning.index(word) for word in ("the cluster", "the bucket", "the run")]
    assert places == sorted(places)
    assert "because of `network`" in warning
    rows = [line for line in rest.splitlines() if line.startswith("| ")][1:]
    assert [row.split("|")[2].strip() for row in rows[:3]] == ["`gke`", "`runs`", "`text`"]


@pytest.mark.parametrize("op", ["update", "create", "same"])
def test_no_warning_where_nothing_is_lost(op: str) -> None:
    text = rendered([step(op, CLUSTER, "gke", {"a": "1"}, {"a": "2"})])
    assert "WARNING" not in text


def test_deleting_the_bucket_warns() -> None:
    assert "**deletes the bucket**" in rendered([step("delete", BUCKET, "runs", {"name": "x"})])


def test_the_order_of_steps_and_keys_does_not_matter() -> None:
    shuffled = list(MIXED)
    for seed in range(5):
        random.Random(seed).shuffle(shuffled)
        assert rendered(shuffled) == rendered(MIXED)


def test_components_exist_nowhere_and_are_not_counted() -> None:
    component = step("create", "gemma:infra:Part", "part", new={})
    component["newState"]["custom"] = False
    preview = read({"steps": [component, MIXED[1]]})
    assert [change.name for change in preview.changes] == ["builder"]


def test_no_change() -> None:
    text = rendered([MIXED[0]])
    assert "no change" in text
    assert "<details>" not in text


def test_errors_are_the_comment() -> None:
    message = "gemma:accelerator: 'b300'\n  allowed: nvidia-b200, cpu"
    text = rendered(
        [MIXED[1]],
        diagnostics=[
            {"severity": "warning", "message": "old engine"},
            {"severity": "error", "message": message},
            {"severity": "error", "message": message},
        ],
    )
    assert text.count(message) == 1
    assert "old engine" not in text
    assert "stops" in text


def test_texts_of_several_lines_are_compared_line_by_line() -> None:
    before = "model:\n  name: gemma\nsft:\n  learning_rate: 0.0001\n  seed: 1\n"
    old = {"data": {"run.yaml": before}}
    new = {"data": {"run.yaml": before.replace("0.0001", "0.0002")}}
    text = rendered([step("update", MAP, "run", old, new)])
    assert "-       learning_rate: 0.0001\n+       learning_rate: 0.0002" in text
    assert "gemma" not in text.split("<details>")[1].split("run.yaml")[1]
    assert '`data["run.yaml"]`' in text


def test_what_only_the_cloud_knows_is_said_in_words() -> None:
    text = rendered([step("create", MAP, "m", new={"data": {"uri": UNKNOWN}})])
    assert UNKNOWN not in text
    assert "data.uri: (known after the deployment)" in text


def test_secrets_stay_closed() -> None:
    ciphertext = "v1:abcdef"
    secret = {values.SIGNATURE: values.SECRET, "ciphertext": ciphertext}
    old, new = {"secretData": "[secret]"}, {"secretData": secret}
    text = rendered([step("create", MAP, "m", new=new), step("update", MAP, "n", old, old)])
    assert ciphertext not in text
    assert "secretData: [secret]" in text


def test_long_values_are_named_by_their_hash() -> None:
    text = rendered([step("create", MAP, "m", new={"text": "x" * 5000})])
    assert "x" * 300 not in text
    assert "(5000 characters, sha256 " in text


def test_json_documents_are_compared_by_their_lines() -> None:
    document = {"widgets": [{"title": f"widget {n}", "height": n} for n in range(20)]}
    changed = json.loads(json.dumps(document))
    changed["widgets"][3]["height"] = 99
    kind = "gcp:monitoring/dashboard:Dashboard"
    old, new = ({"dashboardJson": json.dumps(d)} for d in (document, changed))
    body = rendered([step("update", kind, "gpus", old, new)]).split("```diff")[1]
    assert '"height": 99' in body
    assert "widget 17" not in body


@pytest.mark.parametrize("name", ["a|b", "a`b", "@team", "<script>", "a\nb"])
def test_names_cannot_break_out_of_the_table(name: str) -> None:
    row = next(line for line in rendered([step("create", MAP, name)]).splitlines() if MAP in line)
    assert row.count("|") == 5
    assert row.split("|")[2].strip().count("`") == 2


def test_a_fence_inside_a_value_cannot_end_the_diff() -> None:
    text = rendered([step("create", MAP, "m", new={"data": {"a.md": "x\n```\n<b>y</b>\n"}})])
    assert "````diff" in text


def test_stays_within_githubs_limit() -> None:
    steps = [step("create", MAP, f"m{n}", new={"data": "v" * 390}) for n in range(400)]
    text = rendered(steps)
    assert len(text) < 65_536
    assert "more are left out" in text


def test_marker_is_the_first_line() -> None:
    for text in (rendered(MIXED), rendered([]), rendered(MIXED, diagnostics=[])):
        assert text.splitlines()[0] == comment.marker("dev")


def test_a_broken_base_is_said() -> None:
    preview = Preview(changes=read({"steps": MIXED}).changes, same=0, errors=(), base_error="boom")
    text = comment.render(preview, "dev", "`main` (0123456789)")
    assert "cannot be deployed" in text
    assert "boom" in text


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        ("gcp:artifactregistry/repository:Repository", "registry", "repository"),
        (ACCOUNT, "trainer", "account"),
    ],
)
def test_what_a_run_needs_to_go_on_warns_when_it_goes(kind: str, name: str, word: str) -> None:
    assert f"**deletes the {word}**" in rendered([step("delete", kind, name, {"name": "x"})])
    replaced = replacement(kind, name, {"name": "x"}, {"name": "y"}, ["name"])
    assert f"**replaces the {word}** `{name}`" in rendered(replaced)
    assert "WARNING" not in rendered([step("update", kind, name, {"a": "1"}, {"a": "2"})])


@pytest.mark.parametrize(
    ("kind", "key", "kept", "word"),
    [(CLUSTER, "deletionProtection", True, "cluster"), (BUCKET, "forceDestroy", False, "bucket")],
)
def test_lifting_a_protection_warns(kind: str, key: str, kept: bool, word: str) -> None:
    lifted = [step("update", kind, "it", {key: kept}, {key: not kept})]
    assert f"**updates the {word}** `it`: it is protected no longer" in rendered(lifted)
    given = [step("update", kind, "it", {key: not kept}, {key: kept})]
    assert "WARNING" not in rendered(given)


def test_a_stack_without_runs_says_so() -> None:
    bucket = step("create", "gcp:storage/bucket:Bucket", "bucket", new={"name": "b"})
    assert "No run is enabled" in rendered([bucket])


def test_the_machines_of_each_run_are_told() -> None:
    steps = list(MIXED)
    for op, name in (("same", "vision"), ("create", "sql"), ("delete", "gone")):
        state = {"metadata": {"annotations": {"gemma.run/demand": f"1 x a4-highgpu-8g for {name}"}}}
        steps.append(step(op, JOB, name, state, None if op == "delete" else state))
    text = rendered(steps)
    assert "- `sql`: 1 x a4-highgpu-8g for sql\n- `vision`: 1 x a4-highgpu-8g for vision" in text
    assert "for gone" not in text
    assert "demand" not in text, "told twice"
