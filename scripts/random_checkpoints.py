"""Random small checkpoints of the families that people convert, with real tokenizers.

    python -m scripts.random_checkpoints FAMILY FOLDER [--untied]

Byte-level families get SmolLM2's tokenizer, the others a SentencePiece model trained here on the check's own passage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from edgespec.convert.texts import PASSAGE, snippets
from edgespec.models.gguf import read_header
from edgespec.models.registry import default_model_path

from .gguf_to_checkpoint import write_tokenizer

_COMMON: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "initializer_range": 0.15, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_scaling": _LLAMA3_ROPE}),
    "mistral": ("MistralConfig", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma3": (
        "Gemma3TextConfig",
        {"head_dim": 32, "sliding_window": 64, "query_pre_attn_scalar": 32, "bos_token_id": 2, "eos_token_id": 1},
    ),
    "phi3": ("Phi3Config", {"hidden_size": 96, "partial_rotary_factor": 1.0}),
}
_SENTENCEPIECE = {"gemma3": "GemmaTokenizer", "phi3": "LlamaTokenizer"}


def write_random(family: str, folder: Path, tied: bool = True, seed: int = 0) -> None:
    """Write a checkpoint whose weights are drawn, norms and biases too, so that a wrong one shows."""
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    size = _write_sentencepiece(family, folder) if family in _SENTENCEPIECE else _write_byte_level(folder)
    name, extra = FAMILIES[family]
    config = getattr(transformers, name)(**(_COMMON | extra | {"vocab_size": size, "tie_word_embeddings": tied}))
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)


def _write_byte_level(folder: Path) -> int:
    header = read_header(default_model_path())
    write_tokenizer(header, folder)
    return len(header.metadata["tokenizer.ggml.tokens"])


def _write_sentencepiece(family: str, folder: Path) -> int:
    import sentencepiece

    corpus = folder / "corpus.tmp"
    corpus.write_text("\n".join([PASSAGE, *snippets()]), "utf-8")
    ids: dict[str, Any] = (
        {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
        if family == "gemma3"
        else {"unk_id": 0, "bos_id": 1, "eos_id": 2}
    )
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "tokenizer"), vocab_size=900, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=family != "gemma3", hard_vocab_limit=False, minloglevel=2,
        control_symbols=["<|endoftext|>"],  # which llama.cpp looks for in everything called phi3
        **ids,
    )  # fmt: skip
    corpus.unlink()
    (folder / "tokenizer.vocab").unlink()
    config = {
        "tokenizer_class": _SENTENCEPIECE[family], "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
        "eos_token": "</s>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}",
    }  # fmt: skip
    if family == "gemma3":
        config["pad_token"] = "<pad>"
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    return int(processor.vocab_size())


@click.command(help=__doc__)
@click.argument("family", type=click.Choice(sorted(FAMILIES)))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--untied", is_flag=True, help="An output matrix of its own.")
def main(family: str, folder: Path, untied: bool) -> None:
    write_random(family, folder, not untied)


if __name__ == "__main__":
    main()
