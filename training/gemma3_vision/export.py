"""What may be made of the adapter: a merged model, and a private repository on the Hub."""

from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.common.storage import Folder
from training.gemma3_vision.config import Config

TOKENS = "https://huggingface.co/settings/tokens"


def claim(config: Config) -> None:
    """Create the repository that sft.hub_model_id names, before anything is trained.

    That it can be created (or is there and ours) is the proof that the token may write. It is
    private unless sft.hub_private_repo is false.

    Raises:
        ConfigError: the token may not write there.
    """
    name = config.sft.get("hub_model_id")
    if not name:
        return
    from huggingface_hub import HfApi, errors

    private = config.sft.get("hub_private_repo") is not False
    try:
        HfApi().create_repo(name, private=private, exist_ok=True)
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        response = getattr(error, "response", None)
        if response is not None and response.status_code >= 500:
            raise
        allowed = f"a repository that the token may write to: open {TOKENS} ({error})"
        raise ConfigError([Problem("trainer.sft.hub_model_id", name, allowed)]) from error


def push(config: Config, adapter: Path) -> str | None:
    """Upload the adapter's folder to the repository of `claim`; return its page, or None."""
    name = config.sft.get("hub_model_id")
    if not name:
        return None
    from huggingface_hub import HfApi

    text = f"Adapter of run {config.run.id}"
    return HfApi().upload_folder(repo_id=name, folder_path=adapter, commit_message=text)


def merge(config: Config, weights: Path, adapter: Path) -> Any:
    """The base in model.dtype, not quantised, with the adapter folded into its weights.

    The adapter was trained against the 4-bit base, so the merged model's numbers lie as near to
    the trained ones as the 4-bit weights lie to the full ones.
    """
    from peft import PeftModel

    from training.gemma3_vision import model

    base = model.load_base(config, weights, quantized=False)
    merged: Any = PeftModel.from_pretrained(base, adapter).merge_and_unload()
    head, embeddings = merged.get_output_embeddings(), merged.get_input_embeddings()
    # Saved untied, a tied model would come back with one of the two at random (transformers#45156).
    merged.config.tie_word_embeddings = head.weight is embeddings.weight
    return merged


def save_merged(config: Config, weights: Path, adapter: Path, local: Path, processor: Any) -> None:
    """Write the merged model and its processor, and copy them to the run's folder."""
    merge(config, weights, adapter).save_pretrained(local, max_shard_size="5GB")
    processor.save_pretrained(local)
    Folder(config.run.output_dir).upload(local, "merged")
