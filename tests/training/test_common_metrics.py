"""Metrics lines, the guard against divergence, the report and the record."""

import json
import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from training.common import record, report
from training.common.metrics import (
    DivergedError,
    MetricsCallback,
    Mirror,
    duration,
    last,
    read_metrics,
    resume_metrics,
)
from training.common.storage import Folder


def log(callback: MetricsCallback, step: int, first: bool = True, **logs: Any) -> None:
    state: Any = SimpleNamespace(global_step=step, max_steps=10, is_world_process_zero=first)
    callback.on_log(None, state, None, logs=logs)  # pyright: ignore[reportArgumentType]


def test_each_log_is_a_line_of_json_and_a_line_of_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    callback = MetricsCallback(tmp_path)
    log(callback, 1, loss=2.5, learning_rate=2e-4, tokens=1000)
    log(callback, 1, eval_loss=2.25)
    log(callback, 2, first=False, loss=2.4)
    lines = read_metrics(tmp_path)
    assert [(line["step"], line.get("loss"), line.get("eval_loss")) for line in lines] == [
        (1, 2.5, None),
        (1, None, 2.25),
    ]
    assert lines[0]["tokens_per_second"] > 0
    printed = capsys.readouterr().err
    assert "step 1/10  loss 2.500  lr 2.0e-04" in printed
    assert "eta" in printed
    assert "held-out loss 2.2500" in printed


@pytest.mark.parametrize("logs", [{"loss": math.nan}, {"loss": 1.0, "grad_norm": math.inf}])
def test_what_is_no_number_stops_the_run(tmp_path: Path, logs: dict[str, float]):
    with pytest.raises(DivergedError, match="step 3"):
        log(MetricsCallback(tmp_path), 3, **logs)


def test_an_exploding_loss_stops_the_run_on_every_rank(tmp_path: Path):
    callback = MetricsCallback(tmp_path, explode=10)
    log(callback, 1, first=False, loss=0.5)
    log(callback, 2, first=False, loss=2.4)  # 4.8 times: not yet
    with pytest.raises(DivergedError, match=r"5\.100"):
        log(callback, 3, first=False, loss=5.1)
    # Much of very little is no explosion, nor is little of much.
    for lowest, later in ((0.01, 0.5), (3.0, 6.0)):
        calm = MetricsCallback(tmp_path, explode=10)
        log(calm, 1, loss=lowest)
        log(calm, 2, loss=later)


def test_speed_is_that_of_training_alone_since_the_last_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = [100.0]
    monkeypatch.setattr(
        "training.common.metrics.time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0)
    )
    callback = MetricsCallback(tmp_path)
    now[0] = 200.0
    resumed: Any = SimpleNamespace(global_step=4)
    callback.on_train_begin(None, resumed, None)  # pyright: ignore[reportArgumentType]
    now[0] = 210.0
    log(callback, 6, loss=1.0, tokens=1000)  # two steps of 5 s
    assert "eta 20s" in capsys.readouterr().err
    now[0] = 240.0
    log(callback, 6, eval_loss=1.0, eval_runtime=30.0)
    now[0] = 244.0
    log(callback, 7, loss=0.5, tokens=1000)
    lines = [line for line in read_metrics(tmp_path) if "loss" in line]
    assert [line["seconds_per_step"] for line in lines] == [5, 4]
    assert [line["tokens_per_second"] for line in lines] == [100, 250]
    assert last(tmp_path, "loss") == 0.5


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    lines = [json.dumps({"step": step, "loss": step}) for step in (1, 2, 3)]
    folder.write("metrics.jsonl", "\n".join([*lines, '{"step": 4, "lo']))
    resume_metrics(folder, tmp_path / "local", 2)
    assert [line["step"] for line in read_metrics(tmp_path / "local")] == [1, 2]
    resume_metrics(Folder(tmp_path / "empty"), tmp_path / "fresh", 0)
    assert read_metrics(tmp_path / "fresh") == []


def test_the_mirror_has_all_lines_at_the_end(tmp_path: Path):
    folder, path = Folder(tmp_path / "run"), tmp_path / "metrics.jsonl"
    with Mirror(path, folder, "metrics.jsonl", seconds=60):
        path.write_text("one\ntwo\n")
    assert folder.read("metrics.jsonl") == b"one\ntwo\n"
    with Mirror(path, folder, "metrics.jsonl", seconds=60) as mirror:
        mirror.copy()
        path.write_text("one\ntwo\nthree\n")
    assert folder.read("metrics.jsonl") == b"one\ntwo\nthree\n"
    with Mirror(path, folder, "other", active=False):
        pass
    assert not folder.exists("other")


def test_the_mirror_goes_on_after_a_copy_that_failed(tmp_path: Path):
    class Bucket(Folder):
        failed, copied = threading.Event(), threading.Event()

        def write(self, path: str, content: bytes | str) -> None:
            if not self.failed.is_set():
                self.failed.set()
                raise OSError("the bucket is gone")
            self.copied.set()

    path = tmp_path / "metrics.jsonl"
    path.write_text("one\n")
    with Mirror(path, Bucket(tmp_path / "run"), "metrics.jsonl", seconds=0.01):
        assert Bucket.copied.wait(10)


def test_durations_read_well():
    assert [duration(s) for s in (0, 45, 190, 7500)] == ["0s", "45s", "3m10s", "2h05m"]


def test_the_page_stands_alone_and_escapes_what_it_shows():
    page = report.page(
        "A & B",
        "<sub>",
        settings={"rank": 16, "image": None},
        notice=report.tiny(2_000_000),
        headlines=[report.Headline("loss", "1.5", "was 3")],
        curves={"train": [(1, 3.0), (2, math.nan), (3, 1.5)], "held out": []},
        sections=[
            report.Section(
                "S",
                ["a", "b"],
                [["<script>", report.code("x < 1")], ["y", report.badge("right", True)]],
            )
        ],
        facts={"versions": {"torch": 1}},
    )
    assert "<script>" not in page
    assert "x &lt; 1" in page
    assert "{{" not in page
    assert "2.0 million parameters" in page
    assert "<th>rank</th><td>16</td>" in page
    assert "image" not in page.replace("image/", "")  # what is empty is left out
    assert report.tiny(268_000_000) == ""
    assert "http" not in page.replace("http-equiv", "")
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    drawing = ElementTree.fromstring(svg)
    lines = drawing.findall("polyline")
    assert len(lines) == 1
    assert len(lines[0].attrib["points"].split()) == 2


def test_the_page_shows_text_in_double_braces_as_it_is():
    odd = "{{facts}} {{sections}} {{none}}"
    rows = report.Section("S", ["a"], [[odd]])
    shown: dict[str, Any] = {"settings": {"k": odd}, "facts": {"only": "once"}, "curves": {}}
    page = report.page(odd, odd, headlines=[report.Headline(odd, odd)], sections=[rows], **shown)
    assert page.count(odd) == 7  # the title twice
    assert page.count("once") == 1


def test_the_curve_is_drawn_to_scale():
    points = [(0.0, 0.0), (10.0, 5.0), (20.0, 10.0)]
    text = report.chart({"line": points})
    drawn = ElementTree.fromstring(text[: text.index("</svg>") + 6]).find("polyline")
    assert drawn is not None
    xy = [tuple(map(float, pair.split(","))) for pair in drawn.attrib["points"].split()]
    assert xy[1][0] == pytest.approx((xy[0][0] + xy[2][0]) / 2, abs=0.1)
    assert xy[1][1] == pytest.approx((xy[0][1] + xy[2][1]) / 2, abs=0.1)
    assert xy[0][1] > xy[2][1]
    assert report.ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert "no points" in report.chart({"line": []})


def test_a_run_is_done_when_its_record_says_so(tmp_path: Path):
    folder = Folder(tmp_path)
    assert record.finished(folder) is None
    folder.write("result.json", '{"status": "do')
    assert record.finished(folder) is None
    folder.write("result.json", '{"status": "stopped"}')
    assert record.finished(folder) is None
    written = record.finish(folder, {"name": "x", "id": "1"}, {"steps": 3})
    assert record.finished(folder) == json.loads(json.dumps(written))
    assert written["versions"]["torch"].startswith("2.")
