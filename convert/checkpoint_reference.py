"""A child process that asks transformers what a staged checkpoint says: the measure of its conversion.

python -m edgespec.convert.checkpoint_reference STAGED DTYPE LENGTH OUT TEXTS

TEXTS is a JSON file with a list of texts, of which the last one is scored. OUT.json gets these and more texts, their
token ids, the BOS that the tokenizer puts before a text and the EOS that it knows (null: none), OUT.npy the logits
after each of the first LENGTH tokens of the last one, float32 (LENGTH, vocabulary).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.child import Report, work_as_child
from edgespec.models.errors import ModelFileError, reason

_MOST_SPECIAL = 32


def _reference(report: Report) -> None:
    staged, dtype, length, out, texts_path = sys.argv[1:]
    texts = json.loads(Path(texts_path).read_text("utf-8"))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(staged, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelFileError(f"its tokenizer can't be loaded: {reason(error, 300)}") from error
    texts = [*_around_special_tokens(tokenizer), *texts]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    begun = tokenizer("a")["input_ids"]
    adds_bos = bool(begun) and tokenizer.bos_token_id is not None and begun[0] == tokenizer.bos_token_id
    said = {"texts": texts, "ids": ids, "bos": begun[0] if adds_bos else None, "eos": tokenizer.eos_token_id}
    Path(f"{out}.json").write_text(json.dumps(said), "utf-8")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            staged,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            low_cpu_mem_usage=True,
        )
        passage = [*([tokenizer.bos_token_id] if adds_bos else []), *ids[-1]][: int(length)]
        with torch.inference_mode():
            logits = model(torch.tensor([passage])).logits[0].float().numpy()
    except Exception as error:  # an architecture that this version doesn't know, or one that needs code of its own
        report(unscored=f"transformers can't run it ({reason(error)})")
        return
    np.save(f"{out}.npy", logits)


def _around_special_tokens(tokenizer: Any) -> list[str]:
    """Texts with the tokens that the chat template writes, since some swallow the blanks beside them."""
    template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
    used = [token for token in tokenizer.get_added_vocab() if token and token in template]
    return [f"Hello.  \n {token} next {token}\n\n{token}end" for token in sorted(used)[:_MOST_SPECIAL]]


if __name__ == "__main__":
    sys.exit(work_as_child(_reference))
