"""The bench's prompts through other runtimes, interleaved with ours, each compared with its own plain decoding.

    pip install xllamacpp
    python -m scripts.bench_peers MODEL --draft FILE [--categories a,b] [--limit 2] [--rounds 2] [--tokens 64]

Peers: llama-cpp-python (plain, and its prompt lookup) and xllamacpp, which is llama.cpp's own server code (plain, a
draft model, n-grams). The xllamacpp wheel for CPUs is built without the machine's own instruction set, so its tokens a
second say little; how its speculation compares with its own plain decoding does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click

from edgespec.bench.machine import machine_facts
from edgespec.bench.prompts import CATEGORIES, prompts

Answer = dict[str, float]
CONTEXT = 2048


def _ours(strategy: str) -> Callable[[dict[str, Any]], list[Answer]]:
    def run(job: dict[str, Any]) -> list[Answer]:
        from edgespec.loading import load

        with load(job["model"], draft=job["draft"], strategy=strategy, ctx=CONTEXT) as model:
            found = []
            for prompt in job["prompts"]:
                stats = model.complete(prompt, max_tokens=job["tokens"]).stats
                found.append({"speed": stats.tokens_per_second, "tokens": stats.completion_tokens,
                              "drafted": stats.drafted_tokens, "accepted": stats.accepted_tokens})  # fmt: skip
            return found

    return run


def _llama_cpp_python(lookup: bool) -> Callable[[dict[str, Any]], list[Answer]]:
    def run(job: dict[str, Any]) -> list[Answer]:
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        # its prompt lookup fails without the logits of all tokens
        extra = {"draft_model": LlamaPromptLookupDecoding(), "logits_all": True} if lookup else {}
        model = Llama(job["model"], n_ctx=CONTEXT, verbose=False, **extra)
        found = []
        for prompt in job["prompts"]:
            messages = [{"role": "user", "content": prompt}]
            times = []
            for chunk in model.create_chat_completion(messages, max_tokens=job["tokens"], temperature=0, stream=True):
                if chunk["choices"][0]["delta"].get("content"):
                    times.append(time.perf_counter())
            found.append({"speed": (len(times) - 1) / (times[-1] - times[0]), "tokens": len(times)})
        return found

    return run


def _xllamacpp(kind: str | None) -> Callable[[dict[str, Any]], list[Answer]]:
    def run(job: dict[str, Any]) -> list[Answer]:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel = job["model"], CONTEXT, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = job["threads"]
        params.verbosity, params.warmup = -1, True
        if kind is not None:
            params.speculative.types = [getattr(xllamacpp.common_speculative_type, kind)]
        if kind == "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE":
            params.speculative.draft.mparams.path = job["draft"]
        server = xllamacpp.Server(params)
        found = []
        for prompt in job["prompts"]:
            body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": job["tokens"], "temperature": 0}
            said = server.handle_chat_completions(body)
            timings = (said if isinstance(said, dict) else json.loads(said))["timings"]
            drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
            speed, count = timings["predicted_per_second"], timings["predicted_n"]
            found.append({"speed": speed, "tokens": count, "drafted": drafted, "accepted": accepted})
        return found

    return run


RUNNERS: dict[str, dict[str, Callable[[dict[str, Any]], list[Answer]]]] = {
    "edgespec": {name: _ours(name) for name in ("plain", "lookup", "draft", "auto")},
    "llama-cpp-python": {"plain": _llama_cpp_python(False), "prompt lookup": _llama_cpp_python(True)},
    "xllamacpp": {
        "plain": _xllamacpp(None),
        "draft model": _xllamacpp("COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE"),
        "n-gram": _xllamacpp("COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE"),
    },
}
"""Runtime -> mode -> what answers a job's prompts. A ratio compares with the same runtime's `plain`."""


def _run(runtime: str, mode: str, job: dict[str, Any]) -> list[Answer]:
    """In a process of its own, so that none of them shares memory or threads."""
    command = [sys.executable, "-m", "scripts.bench_peers", "--child", runtime, mode, "-"]
    result = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"}
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith('{"answers"')]
    if result.returncode or not lines:
        raise click.ClickException(f"{runtime}, {mode}: {(result.stderr.strip().splitlines() or ['no answer'])[-1]}")
    return list(json.loads(lines[-1])["answers"])


@click.command(help=__doc__)
@click.argument("model")
@click.option("--child", nargs=2, hidden=True)
@click.option("--draft", type=click.Path(exists=True))
@click.option("--categories", default=",".join(CATEGORIES))
@click.option("--limit", default=2, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--tokens", default=64, show_default=True)
@click.option("--skip", default="", help="Modes to leave out, like 'llama-cpp-python:prompt lookup'.")
@click.option("--json", "as_json", is_flag=True)
def main(model: str, child: tuple[str, str] | None, draft: str | None, categories: str,
         limit: int, rounds: int, tokens: int, skip: str, as_json: bool) -> None:  # fmt: skip
    if child is not None:
        answers = RUNNERS[child[0]][child[1]](json.loads(sys.stdin.read()))
        print("\n" + json.dumps({"answers": answers}), flush=True)
        os._exit(0)  # without the destructors of three different libraries
    modes = [(runtime, mode) for runtime, found in RUNNERS.items() for mode in found]
    modes = [pair for pair in modes if ":".join(pair) not in skip.split(",") and (draft or "draft" not in pair[1])]
    threads = machine_facts()["threads"]
    speeds: dict[tuple[str, str, str], list[Answer]] = {}
    for category in categories.split(","):
        job = {"model": str(Path(model).absolute()), "draft": str(Path(draft).absolute()) if draft else None,
               "prompts": prompts(category)[:limit], "tokens": tokens, "threads": threads}  # fmt: skip
        for round_ in range(rounds):
            for runtime, mode in modes if round_ % 2 == 0 else modes[::-1]:
                click.echo(f"{category}, round {round_ + 1}: {runtime}, {mode}", err=True)
                speeds.setdefault((category, runtime, mode), []).extend(_run(runtime, mode, job))
    rows = [_row(key, speeds) for key in speeds]
    if as_json:
        click.echo(json.dumps({"machine": machine_facts(), "model": Path(model).name, "rows": rows}))
        return
    click.echo(f"{Path(model).name}; {machine_facts()['summary']}\n")
    click.echo("| category | runtime | mode | tokens/s | of its own plain | accepted |\n|---|---|---|---|---|---|")
    for row in rows:
        click.echo("| {category} | {runtime} | {mode} | {speed:.1f} | {ratio:.2f} | {acceptance} |".format(**row))


def _row(key: tuple[str, str, str], speeds: dict[tuple[str, str, str], list[Answer]]) -> dict[str, Any]:
    category, runtime, mode = key
    answers, plain = speeds[key], speeds[category, runtime, "plain"]
    # rounds there and back again hold the prompts in the same order
    ratios = [one["speed"] / other["speed"] for one, other in zip(answers, plain, strict=True)]
    drafted = sum(answer.get("drafted", 0) for answer in answers)
    return {
        "category": category, "runtime": runtime, "mode": mode,
        "speed": median(answer["speed"] for answer in answers), "ratio": median(ratios),
        "acceptance": f"{sum(a.get('accepted', 0) for a in answers) / drafted:.0%}" if drafted else "",
    }  # fmt: skip


if __name__ == "__main__":
    main()
