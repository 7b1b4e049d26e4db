"""What a restart cannot mend ends the run: what the libraries say of their arguments too."""

import pytest
from trl.trainer.sft_config import SFTConfig

from training.common.config import ConfigError, Problem
from training.gemma3_vision.failures import Hopeless, named, refused
from training.gemma3_vision.rowcheck import BadRow

pytestmark = pytest.mark.usefixtures("scratch")


def test_arguments_that_do_not_fit_each_other_name_their_section(tmp_path):
    arguments = {"dataloader_num_workers": 0, "dataloader_prefetch_factor": 2, "use_cpu": True}
    with pytest.raises(Hopeless, match=r"trainer\.sft: .*dataloader_num_workers"), refused("sft"):
        SFTConfig(output_dir=str(tmp_path), bf16=False, **arguments)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"lora": {"target_modules": r".*\.no_such_layer"}}, "no_such_layer"),
        ({"sft": {"eos_token": "<nothing>"}}, "<nothing>"),
    ],
)
def test_a_trainer_that_cannot_be_made_is_not_tried_again(make_trainer, sections, said):
    with pytest.raises(Hopeless, match=said), refused("sft and trainer.lora"):
        make_trainer(**sections)


def test_a_package_that_the_image_lacks_is_not_waited_for(make_trainer):
    trainer, *_ = make_trainer(sft={"optim": "galore_adamw"})
    with pytest.raises(Hopeless, match="galore_torch"), named():
        trainer.train()


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (BadRow("row 3"), BadRow),
        (ConfigError([Problem("trainer.sft", 1, "2")]), ConfigError),
        (RuntimeError("a machine that fails"), RuntimeError),
        (OSError("No space left on device"), OSError),
    ],
)
def test_other_errors_stay_what_they_are(error, kept):
    with pytest.raises(kept) as caught, refused("sft"):
        raise error
    assert caught.value is error
