"""Makes the small models of `tests/data`: random Llamas with the first 1,024 tokens of SmolLM2's vocabulary.

`tiny.gguf` is the target. `tiny-draft.gguf` is its first layer alone, so that it agrees now and then.
`tiny-other.gguf` has the vocabulary in another order. Same bytes each time.

    python -m scripts.make_fixtures [FOLDER]
"""

from __future__ import annotations

from pathlib import Path

import click
import gguf
import numpy as np

from edgespec.models.gguf import GGUFHeader, read_header
from edgespec.models.registry import default_model_path

VOCABULARY, SPECIAL, BYTES = 1024, 17, 256
WIDTH, HEADS, KV_HEADS, FEED_FORWARD, LAYERS = 64, 4, 2, 128, 3
_HEAD = WIDTH // HEADS


def weights() -> dict[str, np.ndarray]:
    """Random weights, scaled so that the next token's distribution is neither flat nor one-hot."""
    rng = np.random.default_rng(20261202)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        return np.asarray(rng.standard_normal((rows, columns)) * scale / np.sqrt(columns), np.float16)

    embedding = (rng.standard_normal((VOCABULARY, WIDTH)) * 0.35).astype(np.float16)
    # each token's likeliest successor is another one, as if the language were one long cycle
    output = embedding.copy()
    output[SPECIAL:] = embedding[SPECIAL:][rng.permutation(VOCABULARY - SPECIAL)]
    tensors: dict[str, np.ndarray] = {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    for layer in range(LAYERS):
        scale = 1.0 if layer == 0 else 0.5
        tensors |= {
            f"blk.{layer}.attn_norm.weight": np.ones(WIDTH, np.float32),
            f"blk.{layer}.ffn_norm.weight": np.ones(WIDTH, np.float32),
            f"blk.{layer}.attn_q.weight": matrix(WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": matrix(KV_HEADS * _HEAD, WIDTH),
            f"blk.{layer}.attn_v.weight": matrix(KV_HEADS * _HEAD, WIDTH),
            f"blk.{layer}.attn_output.weight": matrix(WIDTH, WIDTH, scale),
            f"blk.{layer}.ffn_gate.weight": matrix(FEED_FORWARD, WIDTH),
            f"blk.{layer}.ffn_up.weight": matrix(FEED_FORWARD, WIDTH),
            f"blk.{layer}.ffn_down.weight": matrix(WIDTH, FEED_FORWARD, scale),
        }
    return tensors


def write(path: Path, source: GGUFHeader, layers: int, reverse: bool = False) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    order = list(range(VOCABULARY))
    if reverse:
        order[SPECIAL:] = order[: SPECIAL - 1 : -1]
    metadata = source.metadata
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(metadata["tokenizer.ggml.pre"])
    writer.add_token_list([tokens[i] for i in order])
    writer.add_token_types([int(types[i]) for i in order])
    writer.add_token_merges(metadata["tokenizer.ggml.merges"][: VOCABULARY - SPECIAL - BYTES])
    for name in ("bos", "eos"):
        getattr(writer, f"add_{name}_token_id")(metadata[f"tokenizer.ggml.{name}_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(metadata["tokenizer.chat_template"])
    for name, tensor in weights().items():
        if not name.startswith("blk.") or int(name.split(".")[1]) < layers:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path), default=Path("tests/data"))
def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = read_header(default_model_path())
    write(folder / "tiny.gguf", source, LAYERS)
    write(folder / "tiny-draft.gguf", source, 1)
    write(folder / "tiny-other.gguf", source, 1, reverse=True)


if __name__ == "__main__":
    main()
