"""What is found from a model, the merged checkpoint, and the isolation of packed rows."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from training.common.config import ConfigError
from training.common.storage import Folder
from training.gemma4_text import evaluate, model, verify
from training.gemma4_text.config import LAYERS, DataConfig, FsdpConfig, ModelConfig, resolve
from training.gemma4_text.export import merge
from training.gemma4_text.rows import Row
from training.gemma4_text.tokens import prompt_ids
from training.samples import text_model

ENDS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_model.write(tmp_path_factory.mktemp("model") / "tiny", hidden=64, layers=2)


@pytest.fixture
def tiny(folder: Path) -> Any:
    settings = ModelConfig(str(folder), dtype="float32")
    return model.load(folder, settings, weights=True).eval()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def data_config() -> DataConfig:
    return DataConfig(**resolve({})["data"])


def adapted(base: Any) -> Any:
    from peft import get_peft_model

    settings = {"r": 4, "lora_alpha": 8, "target_modules": ENDS}
    peft = get_peft_model(base, model.lora_config(base, settings))
    torch.manual_seed(0)
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return peft.eval()


def test_the_wrap_class_and_the_layers_are_found(tiny: Any):
    assert model.wrap_class(tiny, FsdpConfig()) == "Gemma4TextDecoderLayer"
    _, layers = model.decoder_layers(tiny)
    assert layers == ["model.language_model.layers.0", "model.language_model.layers.1"]
    with pytest.raises(ConfigError, match="LlamaDecoderLayer"):
        model.wrap_class(tiny, FsdpConfig(transformer_layer_cls_to_wrap="LlamaDecoderLayer"))


@pytest.mark.parametrize(
    ("family", "layer"),
    [
        ("Gemma", "GemmaDecoderLayer"),
        ("Gemma2", "Gemma2DecoderLayer"),
        ("Gemma3", "Gemma3DecoderLayer"),
        ("Gemma4", "Gemma4TextDecoderLayer"),
    ],
)
def test_every_gemma_text_model_is_trained(family: str, layer: str):
    import transformers

    kind = getattr(transformers, f"{family}TextConfig", None) or getattr(
        transformers, f"{family}Config"
    )
    settings = kind(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        pad_token_id=0,
    )
    found = transformers.AutoModelForCausalLM.from_config(settings)
    assert model.wrap_class(found, FsdpConfig()) == layer
    assert LAYERS.get(family.removeprefix("Gemma"), layer) == layer
    adapters = {
        n for n, _ in adapted(found).named_parameters() if n.endswith("lora_A.default.weight")
    }
    assert len(adapters) == 2 * len(ENDS)


def test_models_that_are_not_supported_are_refused_by_name(tmp_path: Path):
    import transformers

    with pytest.raises(ConfigError, match="a Gemma text model"):
        model.decoder_layers(nn.Sequential(nn.Linear(2, 2)))
    transformers.ViTConfig().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"(?s)model_name_or_path.*ViTConfig"):
        model.load(tmp_path, ModelConfig(str(tmp_path)), weights=False)


def test_adapters_go_to_the_language_model_and_wrong_names_are_refused(tiny: Any):
    with pytest.raises(ConfigError, match=r"down_proj, gate_proj"):
        model.lora_config(tiny, {"target_modules": ["q_proj", "query"]})
    towers = [n for n, m in tiny.named_modules() if n.endswith("q_proj") and "vision" in n]
    assert towers, "the vision tower has layers of the same name"
    names = [n for n, _ in adapted(tiny).named_parameters() if "lora_" in n]
    assert names
    assert all("language_model" in name for name in names)


def test_ranks_without_weights_hold_none(folder: Path):
    empty = model.load(folder, ModelConfig(str(folder)), weights=False)
    assert all(parameter.is_meta for parameter in empty.parameters())
    full = model.load(folder, ModelConfig(str(folder)), weights=True)
    shapes = [{n: p.shape for n, p in m.named_parameters()} for m in (empty, full)]
    assert shapes[0] == shapes[1]


def test_weights_are_mapped_from_their_file_and_not_copied(tmp_path: Path):
    folder = text_model.write(tmp_path / "wide", hidden=768, layers=4)

    def mapped(dtype: Any) -> float:
        """Share of the weights' bytes that lie where the kernel maps their file."""
        loaded = model.load(folder, ModelConfig(str(folder), dtype=dtype), weights=True)
        lines = Path("/proc/self/maps").read_text().splitlines()
        ranges = [
            [int(end, 16) for end in line.split()[0].split("-")]
            for line in lines
            if line.endswith(str(folder / "model.safetensors"))
        ]
        weights = {p.data_ptr(): p.nbytes for p in loaded.parameters()}
        there = sum(
            size
            for address, size in weights.items()
            if any(start <= address and address + size <= end for start, end in ranges)
        )
        return there / sum(weights.values())

    assert mapped("bfloat16") == 1.0  # as it is stored: the kernel can take the pages back
    assert mapped("float32") == 0.0  # what must be converted is copied


def test_a_merged_checkpoint_gives_the_adapters_logits(tiny: Any, folder: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    peft = adapted(tiny)
    peft.save_pretrained(tmp_path / "adapter")
    changed = merge(folder, tmp_path / "adapter", Folder(tmp_path / "run"), tmp_path / "scratch")
    assert changed == sum("lora_A" in name for name, _ in peft.named_parameters())
    ids = torch.tensor([[2, 300, 301, 302, 303]])
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "merged", dtype=torch.float32)
    with torch.no_grad():
        wanted, got = peft(ids).logits, merged.eval()(ids).logits
        with peft.disable_adapter():
            base = peft(ids).logits
    # The merged weights are rounded to bfloat16 (8 bits), the adapter's are not.
    assert (wanted - got).abs().max() < 0.1 * (wanted - base).abs().max()
    assert merged.config.tie_word_embeddings
    assert merged.get_output_embeddings().weight is merged.get_input_embeddings().weight


def test_a_merge_that_would_miss_layers_is_refused(folder: Path, tmp_path: Path, tiny: Any):
    adapted(tiny).save_pretrained(tmp_path / "adapter")
    settings = tmp_path / "adapter" / "adapter_config.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps({**content, "use_dora": True}))
    with pytest.raises(ValueError, match="use_dora"):
        merge(folder, tmp_path / "adapter", Folder(tmp_path / "run"), tmp_path / "s")
    settings.write_text(json.dumps({**content, "use_rslora": True}))
    merge(folder, tmp_path / "adapter", Folder(tmp_path / "rs"), tmp_path / "s")
    name = "model.language_model.layers.0.mlp.up_proj"
    lora = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    pair = [lora[f"base_model.model.{name}.lora_{side}.weight"] for side in "BA"]
    base, new = (
        load_file(place / "model.safetensors")[f"{name}.weight"].float()
        for place in (folder, tmp_path / "rs" / "merged")
    )
    wanted = base + pair[0] @ pair[1] * 8 / math.sqrt(4)
    assert torch.equal(new, wanted.to(torch.bfloat16).float())  # rounded once
    settings.write_text(json.dumps(content))
    other = {
        f"base_model.model.other.lora_{side}.weight": tensor.clone()
        for side, tensor in zip("BA", pair, strict=True)
    }
    save_file({**lora, **other}, tmp_path / "adapter" / "adapter_model.safetensors")
    run = Folder(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"1 adapted layers are not in the base, other\.weight"):
        merge(folder, tmp_path / "adapter", run, tmp_path / "s")
    assert run.list() == {}  # nothing that looks like a model is left


def test_a_merge_holds_one_file_at_a_time_and_brings_all_that_a_model_needs(
    folder: Path, tmp_path: Path, tiny: Any
):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    held: list[int] = []

    class Watched(Folder):
        def upload(self, source: Any, path: str) -> int:
            held.append(len([*scratch.glob("*")]))
            return super().upload(source, path)

    shards, scratch = tmp_path / "shards", tmp_path / "scratch"
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(shards, max_shard_size="200KB")
    AutoTokenizer.from_pretrained(folder).save_pretrained(shards)
    assert len([*shards.glob("*.safetensors")]) > 2
    adapted(tiny).save_pretrained(tmp_path / "adapter")
    merge(shards, tmp_path / "adapter", Watched(tmp_path / "run"), scratch)
    assert max(held) == 1
    merged = tmp_path / "run" / "merged"
    assert {path.name for path in merged.iterdir()} == {path.name for path in shards.iterdir()}
    AutoModelForCausalLM.from_pretrained(merged)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_rows_do_not_see_each_other(folder: Path, attention: str):
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    settings = ModelConfig(str(folder), dtype="float32", attn_implementation=attention)
    tiny = model.load(folder, settings, weights=True).eval()
    torch.manual_seed(1)
    documents = [torch.randint(300, 900, (n,)).tolist() for n in (40, 25, 60)]
    rows = [{"input_ids": d, "labels": [-100] * 10 + d[10:]} for d in documents]
    joined = {
        "input_ids": [token for document in documents for token in document],
        "labels": [label for row in rows for label in row["labels"]],
        "seq_lengths": [len(d) for d in documents],
    }
    batch = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)([joined])

    def total(**inputs: Any) -> float:
        labels = batch["labels"][:, 1:]
        with torch.no_grad():
            logits = tiny(**inputs).logits[:, :-1]
        chosen = labels != -100
        return float(nn.functional.cross_entropy(logits[chosen], labels[chosen], reduction="sum"))

    cpu = torch.device("cpu")
    apart = sum(evaluate.nll(tiny, evaluate.pad([row], 0, cpu))[0] for row in rows)
    ids = batch["input_ids"]
    together = total(input_ids=ids, position_ids=batch["position_ids"])
    assert together == pytest.approx(apart, rel=1e-5)
    mixed = total(input_ids=ids, position_ids=torch.arange(ids.shape[1])[None])
    assert abs(mixed - apart) > 1e-3 * apart  # the test notices when they do


def test_the_held_out_loss_depends_on_no_batch_size(tiny: Any, tokenizer: Any):
    rows = [Row(f"How many {w}?", "CREATE TABLE t (a INT);", f"SELECT {w};") for w in "abcdefg"]
    losses = [
        evaluate.held_out_loss(
            tiny, tokenizer, rows, data=data_config(), batch_size=n, device=torch.device("cpu")
        )
        for n in (1, 3, 7)
    ]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)


def test_a_reloaded_adapter_is_refused_for_each_way_in_which_it_may_be_another():
    good = {"tuned": [1.0, 2.0], "base": [3.0, 4.0]}
    assert verify.compare(good, good, "float32") == []
    close = {**good, "tuned": [1.0005, 2.0]}
    assert verify.compare(good, close, "float32") == []
    for other in (
        {**good, "tuned": [1.1, 2.0]},
        {**good, "base": [3.0, 4.1]},
        {**good, "tuned": [math.nan, 2.0]},
        {**good, "tuned": [math.inf, 2.0]},
    ):
        assert len(verify.compare(good, other, "float32")) == 1
        assert len(verify.compare(other, good, "float32")) == 1
    none = {"tuned": [3.0, 4.0], "base": [3.0, 4.0]}
    assert verify.compare(none, none, "float32") == ["the reloaded adapter changes nothing"]
    broken = {"tuned": [math.nan], "base": [1.0]}
    assert verify.compare(broken, broken, "float32") != []


def test_a_loss_is_summed_in_float32(tiny: Any):
    torch.manual_seed(2)
    ids = torch.randint(300, 900, (1, 400))
    half = tiny.to(torch.bfloat16)
    row = {"input_ids": ids[0].tolist(), "labels": ids[0].tolist()}
    total, _ = evaluate.nll(half, evaluate.pad([row], 0, torch.device("cpu")))
    with torch.no_grad():
        logits = half(input_ids=ids).logits[0, :-1].double()
    wanted = nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
    assert total == pytest.approx(float(wanted), rel=1e-5)


def test_an_answer_ends_with_its_turn(tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch):
    from training.gemma4_text.config import EvaluationConfig

    row, settings = Row("q", "s", "SELECT 1"), EvaluationConfig(max_new_tokens=6)
    options = {"data": data_config(), "evaluation": settings, "device": torch.device("cpu")}
    (long,) = evaluate.generate(tiny, tokenizer, [row], **options)
    prompt = torch.tensor([prompt_ids(tokenizer, row, data_config())])
    spoken = tiny.generate(prompt, max_new_tokens=1, do_sample=False)[0, -1]
    monkeypatch.setattr(evaluate, "end_of_turn", lambda *_: int(spoken))
    (short,) = evaluate.generate(tiny, tokenizer, [row], **options)
    assert short == tokenizer.decode(spoken, skip_special_tokens=True)
    assert long.startswith(short)
    assert long != short


def test_answers_come_in_the_order_of_the_rows(tiny: Any, tokenizer: Any):
    from training.gemma4_text.config import EvaluationConfig

    tiny.generation_config.do_sample = True  # as Gemma's own says; an evaluation is greedy
    rows = [Row("q" * n, "CREATE TABLE t (a INT);", "SELECT 1") for n in (30, 1, 60, 7)]
    device, settings = torch.device("cpu"), EvaluationConfig(batch_size=3, max_new_tokens=6)
    options = {"data": data_config(), "evaluation": settings, "device": device}
    together = evaluate.generate(tiny, tokenizer, rows, **options)
    alone = [evaluate.generate(tiny, tokenizer, [row], **options)[0] for row in rows]
    assert together == alone
