"""The tiny Gemma 3: labels of every token, what is quantised, adapted and trained."""

import copy
import json
import math
import resource
import shutil

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from training.common.metrics import DivergedError
from training.gemma3_vision import data, evaluate, export, model, throughput, verify
from training.gemma3_vision.config import typed
from training.gemma3_vision.trainer import EpochOrder, Guard, RowCollator, VisionTrainer
from training.samples import products, vision_model

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    place = tmp_path_factory.mktemp("samples")
    vision_model.write(place / "model")
    products.write(place / "products")
    return place


@pytest.fixture(scope="module")
def processor(samples):
    return model.load_processor(samples / "model")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def settings(samples, output="x", **sections):
    sft = {
        "bf16": False,
        "activation_checkpointing": False,
        "dataloader_num_workers": 0,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 4e-3,
        "report_to": "none",
        "logging_steps": 1,
        "max_steps": 4,
        "eval_strategy": "no",
        "eval_on_start": False,
    }
    return typed(
        {
            "model": {"model_name_or_path": str(samples / "model")},
            "data": {"dataset_name": str(samples / "products")},
            "evaluation": {"max_new_tokens": 8, "rows": 2},
            "run": {"output_dir": str(output), "device": "cpu"},
            **{name: keys for name, keys in sections.items() if name != "sft"},
            "sft": {**sft, **sections.get("sft", {})},
        }
    )


@pytest.fixture
def make_trainer(samples, processor, tmp_path):
    from trl.trainer.sft_config import SFTConfig

    from training.gemma3_vision.train import arguments, quiet

    def make(save=False, **sections):
        quiet()
        config = settings(samples, tmp_path / "run", **sections)
        split = data.prepare(config.data, samples / "products", multiple=4)
        guard = Guard()
        args = arguments(config, tmp_path / "scratch")
        args["save_strategy"] = "steps" if save else "no"
        base = model.load_base(config, samples / "model")
        trainer = VisionTrainer(
            model=base,
            args=SFTConfig(**args),
            train_dataset=split.train,
            eval_dataset=split.held_out,
            processing_class=processor,
            peft_config=model.adapter_config(config),
            callbacks=[guard],
            lengths=split.lengths,
            throughput=throughput.Throughput(base.config),
        )
        guard.trainer = trainer
        model.keep_full_precision(trainer.model)
        return trainer, split, config

    return make


def test_the_checkpoint_is_small_and_the_same_each_time(samples, tmp_path):
    again = vision_model.write(tmp_path / "again")
    for path in sorted((samples / "model").iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    loaded = model.load_base(settings(samples, quantization={"load_in_4bit": False}), again)
    assert sum(p.numel() for p in loaded.parameters()) < 3_000_000
    assert loaded.lm_head.weight is loaded.model.language_model.embed_tokens.weight


def test_the_label_of_every_token(samples, processor):
    config = settings(samples)
    split = data.prepare(config.data, samples / "products")
    rows = [split.train[i] for i in (0, 40)]
    batch = RowCollator(processor)(rows)
    tokens = processor.tokenizer
    for index, row in enumerate(rows):
        system, user = (message["content"] for message in row["prompt"])
        answer = row["completion"][0]["content"]
        picture = "\n\n<start_of_image>" + "<image_soft_token>" * 16 + "<end_of_image>\n\n"
        # Written by hand from Gemma's documented turn format.
        prompt = f"<bos><start_of_turn>user\n{system}\n\n{picture}{user}<end_of_turn>\n"
        masked = prompt + "<start_of_turn>model\n"
        trained = answer + "<end_of_turn>\n"
        expected = [(t, -100) for t in tokens(masked, add_special_tokens=False).input_ids]
        expected += [(t, t) for t in tokens(trained, add_special_tokens=False).input_ids]
        ids, labels = batch["input_ids"][index].tolist(), batch["labels"][index].tolist()
        for token, label in zip(ids, labels, strict=True):
            print(f"{tokens.convert_ids_to_tokens(token)!r:28} {label}")
        assert list(zip(ids, labels, strict=True))[: len(expected)] == expected
        assert {*zip(ids[len(expected) :], labels[len(expected) :], strict=True)} <= {(0, -100)}
        soft = [t == tokens.image_token_id for t in ids]
        assert batch["token_type_ids"][index].bool().tolist() == soft  # the two-way mask
    assert batch["rows"].tolist() == [row["row"] for row in rows]


def test_fillers_carry_no_loss(samples, processor):
    split = data.prepare(settings(samples).data, samples / "products", multiple=37)
    assert split.fillers
    batch = RowCollator(processor)([split.train[0], split.train[len(split.train) - 1]])
    assert (batch["labels"][0] != -100).any()
    assert (batch["labels"][1] == -100).all()


def test_generation_starts_from_the_prompt_that_was_trained(samples, processor):
    config = settings(samples)
    row = data.prepare(config.data, samples / "products").train[0]
    seen = {}

    class Recorder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = model.load_base(config, samples / "model").config
            self.device = torch.device("cpu")

        def generate(self, input_ids, **_):
            seen["ids"] = input_ids[0].tolist()
            return input_ids

    evaluate.describe(Recorder(), processor, [row], [0], config.evaluation)
    batch = RowCollator(processor)([row])
    prompt = [
        t for t, kept in zip(batch["input_ids"][0], batch["labels"][0], strict=True) if kept == -100
    ]
    assert seen["ids"] == [int(token) for token in prompt]


@pytest.mark.parametrize("family", ["gemma3", "gemma4"])
def test_the_pattern_finds_the_language_model_of_the_real_models(samples, family):
    """Module names of the full-size classes, on the meta device."""
    from peft import get_peft_model

    if family == "gemma3":
        config = transformers.Gemma3Config(text_config={"num_hidden_layers": 34})
        kind = transformers.Gemma3ForConditionalGeneration
    else:
        config = transformers.Gemma4Config()
        kind = transformers.Gemma4ForConditionalGeneration
    with torch.device("meta"):
        full = kind(config)
        layers = config.get_text_config().num_hidden_layers
        adapted = model.adapted_modules(
            get_peft_model(full, model.adapter_config(settings(samples)))
        )
    assert all(".language_model.layers." in name for name in adapted)
    kinds = {name.rsplit(".", 1)[1] for name in adapted}
    assert kinds == set(TARGETS)
    if family == "gemma3":
        assert len(adapted) == 7 * layers


@pytest.mark.parametrize("tower", [False, True])
def test_what_is_quantised(samples, tower):
    chosen = {"quantization": {"llm_int8_skip_modules": ["lm_head"]}} if tower else {}
    config = settings(samples, **chosen)
    base = model.load_base(config, samples / "model")
    kinds = {
        name: type(module).__name__
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    language = [k for name, k in kinds.items() if "language_model" in name]
    vision = [k for name, k in kinds.items() if "vision_tower" in name]
    assert set(language) == {"Linear4bit"}
    assert len(language) == 28
    assert set(vision) == {"Linear4bit" if tower else "Linear"}
    assert kinds["lm_head"] == "Linear"
    assert base.lm_head.weight is base.model.language_model.embed_tokens.weight


def test_training_moves_every_adapter_and_nothing_else(make_trainer):
    trainer, _, _ = make_trainer()
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()

    def same(left, right):  # as bytes: packed 4-bit values read as bf16 may be NaN
        return torch.equal(left.detach().view(torch.uint8), right.view(torch.uint8))

    moved = {n for n, p in trainer.model.named_parameters() if not same(p, before[n])}
    adapters = {n for n in before if "lora_" in n}
    assert len(adapters) == 56
    assert moved == adapters
    assert all(before[n].dtype == torch.float32 for n in adapters)
    log = [line for line in trainer.state.log_history if "loss" in line]
    assert log[-1]["loss"] < log[0]["loss"]
    assert log[-1]["samples_per_second"] > 0
    assert log[-1]["memory_gib"] > 0.1


def test_tied_head_and_embeddings_may_be_trained(make_trainer):
    saved = ["lm_head", "embed_tokens"]
    trainer, _, _ = make_trainer(lora={"modules_to_save": saved, "ensure_weight_tying": True})
    trainer.train()
    inner = trainer.model.get_base_model()
    assert torch.equal(inner.lm_head.weight, inner.model.language_model.embed_tokens.weight)


def test_the_held_out_loss_is_followed_and_changes_nothing(make_trainer, processor):
    followed, split, _ = make_trainer(
        sft={"eval_strategy": "steps", "eval_steps": 0.5, "eval_on_start": True}
    )
    untuned = evaluate.held_out_loss(followed.model, processor, split.held_out, 1)
    followed.train()
    tuned = evaluate.held_out_loss(followed.model, processor, split.held_out, 1)
    curve = [(m["step"], m["eval_loss"]) for m in followed.state.log_history if "eval_loss" in m]
    assert [step for step, _ in curve] == [0, 2, 4]
    # Batches of one row; the trainer's are of four, padded.
    assert curve[0][1] == pytest.approx(untuned, abs=2e-3)
    assert curve[-1][1] == pytest.approx(tuned, abs=2e-3)
    assert tuned < untuned
    plain, *_ = make_trainer()
    plain.train()
    for log in (followed.state.log_history, plain.state.log_history):
        log[:] = [m["loss"] for m in log if "loss" in m]
    assert followed.state.log_history == plain.state.log_history


def test_a_run_whose_steps_are_done_trains_no_further(make_trainer, tmp_path):
    sft = {"max_steps": 2, "save_steps": 2}
    first, *_ = make_trainer(sft=sft, save=True)
    first.train()
    second, *_ = make_trainer(sft=sft)
    second.train(resume_from_checkpoint=str(tmp_path / "scratch" / "trainer" / "checkpoint-2"))
    assert second.state.global_step == 2
    trained = dict(first.model.named_parameters())
    for name, parameter in second.model.named_parameters():
        if "lora_" in name:
            assert torch.equal(parameter, trained[name]), name


def test_a_full_disk_stops_before_a_torn_checkpoint_is_handed_over(make_trainer):
    """The kernel refuses to make a file larger than 200 kB; the optimizer's is."""
    trainer, *_ = make_trainer(sft={"max_steps": 1, "save_steps": 1}, save=True)
    handed: list[int] = []

    class Saver(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            handed.append(state.global_step)

    trainer.add_callback(Saver())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises((OSError, RuntimeError, SafetensorError)):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert trainer.state.global_step == 1
    assert not handed


def test_a_loss_that_is_no_number_stops_with_its_rows(make_trainer):
    trainer, split, _ = make_trainer()
    order = list(trainer._get_train_sampler())
    expected = [split.train[i]["row"] for i in order[4:8]]
    step = trainer.training_step

    def poisoned(*arguments, **named):
        if trainer.state.global_step == 1:
            weights = next(p for n, p in trainer.model.named_parameters() if "lora_B" in n)
            weights.data.fill_(math.nan)
        return step(*arguments, **named)

    trainer.training_step = poisoned
    with pytest.raises(DivergedError) as caught:
        trainer.train()
    assert "step 2" in str(caught.value)
    assert str(expected) in str(caught.value)


def test_held_out_loss_does_not_depend_on_batches_or_workers(samples, processor, monkeypatch):
    config = settings(samples)
    rows = [data.prepare(config.data, samples / "products").held_out[i] for i in range(6)]
    base = model.load_base(config, samples / "model")
    one = evaluate.held_out_loss(base, processor, rows, 1)
    assert evaluate.held_out_loss(base, processor, rows, 4) == pytest.approx(one, abs=2e-3)
    shares = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda sums: shares.append(sums.clone()))
    for rank in range(2):
        evaluate.held_out_loss(base, processor, rows, 1, rank=rank, world=2)
    total = sum(shares)
    assert (total[0] / total[1]).item() == pytest.approx(one, abs=1e-9)


def test_a_reloaded_adapter_is_told_from_another(make_trainer, samples, processor, tmp_path):
    trainer, split, config = make_trainer()
    trainer.train()
    tuned = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    tuned.save_pretrained(tmp_path / "run" / "adapter")
    processor.save_pretrained(tmp_path / "run" / "adapter")
    expected = evaluate.probe(tuned, processor, split.held_out, config)
    request = tmp_path / "request.json"
    sections = copy.deepcopy(vars(config))
    asked = {
        name: value if isinstance(value, dict) else vars(value) for name, value in sections.items()
    }
    request.write_text(json.dumps({"config": asked, "expected": expected}))
    assert verify.main(request) == 0
    for scale in (0.0, 1.5):  # does nothing; is another one
        with torch.no_grad():
            for name, parameter in tuned.named_parameters():
                if "lora_B" in name:
                    parameter.mul_(scale) if scale else parameter.zero_()
        tuned.save_pretrained(tmp_path / "run" / "adapter")
        assert verify.main(request) == 1


def test_a_model_merged_in_bf16_says_what_base_and_adapter_say(
    make_trainer, samples, processor, tmp_path
):
    """In the default dtype; tests/training/test_vision_run.py does the same in fp32, exactly."""
    trainer, split, config = make_trainer()
    trainer.train()
    tuned = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    tuned.save_pretrained(tmp_path / "adapter")
    weights = tmp_path / "weights"
    shutil.copytree(samples / "model", weights)
    (weights / "tokenizer.model").write_bytes(b"pieces")
    file = weights / "model.safetensors"
    tower, real = "vision_tower.", "vision_tower.vision_model."  # as in the files on the Hub
    tensors = {name.replace(tower, real): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    export.save_merged(config, weights, tmp_path / "adapter", tmp_path / "merged", processor)
    assert (tmp_path / "run" / "merged" / "tokenizer.model").read_bytes() == b"pieces"
    saved = load_file(tmp_path / "run" / "merged" / "model.safetensors")
    assert saved.keys() == tensors.keys()  # llama.cpp's converter knows no others
    merged = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "run" / "merged")
    assert merged.dtype == torch.bfloat16
    assert merged.config.tie_word_embeddings
    assert merged.lm_head.weight is merged.get_input_embeddings().weight
    assert not hasattr(merged.config, "quantization_config")
    base = model.load_base(config, weights, quantized=False)
    rows = [split.held_out[i] for i in range(4)]
    untuned = evaluate.held_out_loss(base, processor, rows, 1)
    expected = evaluate.held_out_loss(
        PeftModel.from_pretrained(base, tmp_path / "adapter"), processor, rows, 1
    )
    found = evaluate.held_out_loss(merged, processor, rows, 1)
    assert found == pytest.approx(expected, abs=0.02)
    assert abs(found - untuned) > 0.2


def test_order_is_a_permutation_that_seed_and_epoch_decide():
    order = EpochOrder(50, seed=3)
    first = list(order)
    assert sorted(first) == list(range(50))
    assert first == list(EpochOrder(50, seed=3)) != list(EpochOrder(50, seed=4))
    order.set_epoch(1)
    assert sorted(order) == list(range(50))
    assert list(order) != first
    lengths = [(i * 37) % 100 for i in range(64)]
    grouped = list(EpochOrder(64, seed=3, lengths=lengths, batch=8))
    assert sorted(grouped) == list(range(64))

    def spread(rows):
        parts = [[lengths[i] for i in rows[s : s + 8]] for s in range(0, 64, 8)]
        return sum(max(part) - min(part) for part in parts)

    assert spread(grouped) < spread(list(range(64))) / 2


def test_flops_agree_with_those_that_torch_counts(samples, processor):
    """Forward and backward of the adapted model, counted by torch, without the adapter's own."""
    from peft import get_peft_model
    from torch.utils.flop_counter import FlopCounterMode

    config = settings(
        samples,
        quantization={"load_in_4bit": False},
        model={
            "model_name_or_path": str(samples / "model"),
            "dtype": "float32",
            "attn_implementation": "eager",
        },
        lora={"r": 1},
    )
    tuned = get_peft_model(model.load_base(config, samples / "model"), model.adapter_config(config))
    row = data.prepare(config.data, samples / "products").train[0]
    inputs = RowCollator(processor)([row])
    inputs.pop("rows")
    length, answers = inputs["input_ids"].shape[1], int((inputs["labels"] != -100).sum())
    with FlopCounterMode(display=False) as counter:
        tuned(**inputs).loss.backward()
    vocabulary = 4.0 * tuned.config.text_config.vocab_size * 128  # of one token, both ways
    # transformers' own loss multiplies the head with every token, TRL's with answers only.
    expected = throughput.step_flops(tuned.config, [length], answers, 1)
    expected += vocabulary * (length - answers)
    assert expected == pytest.approx(counter.get_total_flops(), rel=0.05)
