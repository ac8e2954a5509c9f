"""Does conversion keep what a model says, and its disk tidy?

python -m scripts.check_conversion families             every family of random checkpoints, tied and untied, at F32
python -m scripts.check_conversion texts CHECKPOINT     token ids of 1,000 texts against its GGUF's
python -m scripts.check_conversion kill CHECKPOINT      kill -9 at ten moments, then once to the end
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from edgespec.convert.agreement import encoded
from edgespec.models.manifest import open_pack

from .random_checkpoints import FAMILIES, write_random


@click.group(help=__doc__)
def main() -> None:
    pass


def _command(source: Path, quants: str, out: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "edgespec.cli.main",
        "convert",
        str(source),
        "--quant",
        quants,
        "-o",
        str(out),
        "--json",
    ]


def _converted(source: Path, quant: str, out: Path) -> dict:  # type: ignore[type-arg]
    result = subprocess.run(_command(source, quant, out), capture_output=True, text=True, check=False)
    if result.returncode:
        raise click.ClickException(result.stderr.strip().splitlines()[-1])
    return dict(json.loads(result.stdout.splitlines()[0])["made"])


@main.command()
def families() -> None:
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in FAMILIES:
            for tied in (True, False):
                name = f"{family}-{'tied' if tied else 'untied'}"
                write_random(family, Path(scratch, name), tied)
                figures = _converted(Path(scratch, name), "F32", Path(scratch, "pack", name))["checked"]["target"]
                failed += figures["worst_share"] > 0.01
                click.echo(
                    f"{name:<16} worst logit {figures['worst_share']:.4%} of the range, same top "
                    f"{figures['same_top']:.1%} of {figures['positions']}, ids equal on {figures['texts']} texts"
                )
    click.echo("all within 1 %" if not failed else f"{failed} beyond 1 %")
    sys.exit(failed > 0)


def hard_texts(count: int, seed: int = 20261202) -> list[str]:
    """Texts of what tokenizers get wrong: code, emoji, CJK, control characters, long runs of spaces, and all mixed."""
    rng = random.Random(seed)
    words = [
        "the",
        "for",
        "return",
        "naïve",
        "façade",
        "İstanbul",
        "x1",
        "don't",
        "WE'LL",
        "3.14",
        "0xFF",
        "__init__",
        "www.",
        "@me",
        "#tag",
        "½",
        "ﬁ",
        "ß",
    ]
    code = [
        "{",
        "}",
        "();",
        "\n\t",
        "    ",
        "==",
        "->",
        "//",
        "/*",
        "*/",
        "'",
        '"',
        "\\n",
        "$",
        "%d",
        "<div>",
        "&&",
        "[]",
        "\r\n",
    ]

    def emoji() -> str:
        return rng.choice(["👍🏽", "👩‍👩‍👧‍👦", "🇨🇭", "❤️", chr(rng.randrange(0x1F300, 0x1FAFF)), "🏴󠁧󠁢󠁳󠁣󠁴󠁿"])

    def cjk() -> str:
        return chr(
            rng.choice([rng.randrange(0x4E00, 0x9FFF), rng.randrange(0x3041, 0x30FF), rng.randrange(0xAC00, 0xD7A3)])
        )

    kinds: list[Callable[[], str]] = [
        lambda: rng.choice(words), lambda: rng.choice(code), emoji, cjk,
        lambda: chr(rng.choice([*range(1, 32), *range(127, 160), 0x200B, 0x200D, 0x2028, 0x3000, 0xFEFF, 0xAD])),
        lambda: " " * rng.randrange(1, 200 if rng.random() < 0.1 else 9), lambda: "\n" * rng.randrange(1, 5),
        lambda: str(rng.randrange(10 ** rng.randrange(1, 15))), lambda: chr(rng.randrange(0xA1, 0x2FFF)), lambda: " ",
    ]  # fmt: skip
    texts = []
    for number in range(count):
        one_kind = [kinds[number % len(kinds)], kinds[-1]]
        chosen = kinds if number % 2 else one_kind
        texts.append("".join(rng.choice(chosen)() for _ in range(rng.randrange(1, 60))))
    return texts


def _byte_tokens() -> dict[int, str]:
    """How byte-level vocabularies write each byte (GPT-2's table, by its rule)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.option("--count", default=1000, show_default=True)
def texts(checkpoint: Path, count: int) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    lacking = {byte for byte, text in _byte_tokens().items() if text not in tokenizer.get_vocab()}
    # a byte without a token is dropped by both, but transformers then merges its neighbours and llama.cpp doesn't
    chosen = ["".join(c for c in text if not lacking & set(c.encode())) for text in hard_texts(count)]
    if lacking:
        click.echo(
            f"left out: characters with the bytes {bytes(sorted(lacking))!r}, for which this vocabulary has no token"
        )
    with tempfile.TemporaryDirectory() as scratch:
        _converted(checkpoint, "F16", Path(scratch, "pack"))
        found, _ = encoded(open_pack(Path(scratch, "pack")).target, chosen)
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in chosen]
    wrong = [text for text, one, other in zip(chosen, found, expected, strict=True) if one != other]
    for text in wrong[:10]:
        click.echo(f"differs: {text!r}")
    click.echo(f"{count - len(wrong)} of {count} texts get the same token ids ({sum(map(len, expected))} tokens)")
    sys.exit(bool(wrong))


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.option("--moments", default=10, show_default=True)
def kill(checkpoint: Path, moments: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "packs", "model")
        begun = time.monotonic()
        _converted(checkpoint, "Q8_0", Path(scratch, "whole", "model"))
        whole = time.monotonic() - begun
        for moment in range(moments):
            # each run goes on where the last one was killed, so the same wait meets later and later work
            after = whole * (moment + 0.5) / moments if moment % 2 else whole * 0.3
            process = subprocess.Popen(
                _command(checkpoint, "Q8_0", out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            ended = True
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                ended = False
                process.send_signal(signal.SIGKILL)
                process.wait()
            time.sleep(1)
            orphans = _running(str(out.parent))
            left = sorted(str(p.relative_to(out.parent)) for p in out.parent.rglob("*")) if out.parent.exists() else []
            click.echo(
                f"{'ended' if ended else 'killed'} after {after:.1f} s: {len(orphans)} orphans; {', '.join(left)}"
            )
            if orphans:
                raise click.ClickException(f"still running: {orphans}")
            if out.exists():
                open_pack(out)  # whole, with the right hashes, or an error
        figures = _converted(checkpoint, "Q8_0", out)
        left = [p.name for p in out.parent.iterdir() if p != out]
        click.echo(
            f"at the end: {figures['checked']['target']['same_top']:.1%} same top; left over: {left or 'nothing'}"
        )
        sys.exit(bool(left))


def _running(word: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
    return found


if __name__ == "__main__":
    main()
