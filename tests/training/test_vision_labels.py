"""What a batch of the vision trainer says: the label of every token, and the order of the rows."""

import pytest
import torch

from tests.training.vision_trainers import settings
from training.gemma3_vision import data, evaluate, model
from training.gemma3_vision.trainer import EpochOrder, RowCollator

pytestmark = pytest.mark.usefixtures("scratch")


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
