"""A child process that runs llama.cpp's converter on a staged checkpoint.

python -m edgespec.convert.checkpoint_to_gguf CONVERTER STAGED OUT TYPE NAME
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from edgespec.models.child import Report, work_as_child
from edgespec.models.errors import ModelFileError, reason

_UNKNOWN_TOKENIZER = "BPE pre-tokenizer was not recognized"


def _convert(_report: Report) -> None:
    converter, staged, out, outtype, name = sys.argv[1:]
    sys.path.insert(0, converter)
    sys.argv = ["convert_hf_to_gguf", staged, "--outfile", out, "--outtype", outtype.lower(), "--model-name", name]
    try:
        runpy.run_path(str(Path(converter, "convert_hf_to_gguf.py")), run_name="__main__")
    except SystemExit as error:
        if error.code:  # its one use: an architecture that it doesn't know, logged
            raise ModelFileError(f"{name}: llama.cpp's converter doesn't know this architecture") from None
    except Exception as error:
        if _UNKNOWN_TOKENIZER in str(error):
            raise ModelFileError(
                f"{name}: its tokenizer splits text in a way that llama.cpp doesn't know, so it can't be converted; "
                "was tokenizer.json changed?"
            ) from None
        raise ModelFileError(
            f"{name}: llama.cpp's converter failed: {type(error).__name__}: {reason(error, 300)}"
        ) from error


if __name__ == "__main__":
    sys.exit(work_as_child(_convert))
