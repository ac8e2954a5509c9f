"""Turns a GGUF back into a Hugging Face checkpoint folder, so that conversion can be tried on a real model.

transformers gets the weights right, but the tokenizer of a byte-level vocabulary wrong (its class, its BOS rule), so
that is rebuilt from the GGUF's own tokens, merges and pre-tokenizer.

    python -m scripts.gguf_to_checkpoint MODEL.gguf FOLDER
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from edgespec.models.gguf import GGUFHeader, read_header

_CONTROL, _USER_DEFINED = 3, 4  # llama_token_type
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def rebuilt_tokenizer(header: GGUFHeader) -> Tokenizer:
    """The tokenizer of a byte-level GGUF; its ids are llama.cpp's.

    Raises:
        click.ClickException: a kind that isn't known here.
    """
    metadata = header.metadata
    texts, kinds = list(metadata["tokenizer.ggml.tokens"]), metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    pre = metadata.get("tokenizer.ggml.pre")
    if pre == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_QWEN2_WORDS), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        raise click.ClickException(f"the pre-tokenizer {pre!r} isn't known to this script")
    tokenizer.decoder = decoders.ByteLevel()
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        chosen = [text for text, number in zip(texts, kinds, strict=True) if number == kind]
        tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text in chosen])
    return tokenizer


def write_tokenizer(header: GGUFHeader, folder: Path, template_file: bool = False) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    Args:
        template_file: put the chat template into `chat_template.jinja`, as newer checkpoints do.
    """
    metadata, texts = header.metadata, header.metadata["tokenizer.ggml.tokens"]
    rebuilt_tokenizer(header).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "clean_up_tokenization_spaces": False,
    }
    for role in ("bos", "eos"):
        token = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if token is not None:
            config[f"{role}_token"] = texts[token]
    template = metadata.get("tokenizer.chat_template")
    if template and template_file:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    elif template:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")


def write_checkpoint(model: Path, folder: Path, template_file: bool = False) -> None:
    """Write config, weights (float32 safetensors) and tokenizer of a GGUF."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name, dtype=torch.float32)
    loaded.save_pretrained(folder)
    write_tokenizer(read_header(model), folder, template_file)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--template-file", is_flag=True, help="Write the chat template into chat_template.jinja.")
def main(model: Path, folder: Path, template_file: bool) -> None:
    write_checkpoint(model, folder, template_file)


if __name__ == "__main__":
    main()
