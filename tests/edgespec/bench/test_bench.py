from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgespec.bench import run as bench_run
from edgespec.bench.prompts import CATEGORIES, prompts
from edgespec.bench.report import acceptance_by_depth, draw, to_json
from edgespec.bench.run import Plan, Results, run_bench
from edgespec.events import Stats

from ..command import Run, one_line_error, run

__all__ = ["run"]


def plan(**changed: object) -> Plan:
    values: dict[str, object] = {
        "model": "m.gguf", "draft": None, "strategies": ("lookup",), "runtimes": ("llamacpp",), "categories": ("chat",),
        "load": {"ctx": 512, "threads": None}, "limit": 2, "tokens": 8, "rounds": 2,
    }  # fmt: skip
    return Plan(**(values | changed))  # type: ignore[arg-type]


def stats(speed: float, drafted: tuple[int, ...] = (), accepted: tuple[int, ...] = ()) -> Stats:
    return Stats("lookup", "llamacpp", 5, 0, 8, 4, sum(drafted), sum(accepted), speed, 0.5, 1000, drafted, accepted)


def test_there_are_six_prompts_a_category_of_realistic_lengths(smollm: Path) -> None:
    from edgespec.convert.agreement import encoded

    assert len(CATEGORIES) == 8
    for category in CATEGORIES:
        assert len(set(prompts(category))) == 6
        assert not any("{" in prompt.split("```")[0].replace("{id,", "") for prompt in prompts(category))
    for category in ("rag", "summarisation"):
        counts = [len(ids) for ids in encoded(smollm, list(prompts(category)))[0]]
        assert min(counts) > 800
        assert max(counts) < 1900
    for prompt in prompts("edit"):
        assert prompt.split("```")[1].count("\n") > 90


def test_depths_are_added_up_over_answers() -> None:
    answers = [stats(1, (4, 2), (3, 1)), stats(1, (6,), (3,)), stats(1)]
    assert acceptance_by_depth(answers) == [0.6, 0.5]
    assert acceptance_by_depth([stats(1)]) == []


def test_a_ratio_compares_the_same_prompt_in_the_same_round() -> None:
    results = Results()
    results.rounds["chat", "plain", "llamacpp"] = [[stats(10), stats(20)], [stats(8), stats(20)]]
    results.rounds["chat", "lookup", "llamacpp"] = [[stats(15), stats(20)], [stats(16), stats(50)]]
    results.noise["chat", "llamacpp"] = 0.01
    results.curves["llamacpp"] = {1: 0.1, 2: 0.15}
    found = to_json(plan(), results, {"summary": "a machine"})
    plain, lookup = found["rows"]
    assert (plain["ratio_to_plain"], lookup["ratio_to_plain"]) == (1.0, 1.75)  # of 1.5, 1, 2 and 2.5
    assert (lookup["ratio_low"], lookup["ratio_high"], lookup["tokens_per_second"]) == (1.0, 2.5, 18.0)
    assert lookup["tokens_per_pass"] == 2.0
    assert found["curve"] == {"llamacpp": {"1": 100.0, "2": 150.0}}
    assert plain["ratio_to_stock"] is None


def test_without_our_kernels_plain_decoding_alone_runs_and_all_is_compared_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = {("plain", "llamacpp"): 12, ("lookup", "llamacpp"): 24, ("plain", "llamacpp-stock"): 8}
    seen: list[tuple[str, str]] = []

    def answers(_plan: Plan, runtime: str, strategy: str, _category: str) -> list[Stats]:
        seen.append((strategy, runtime))
        return [stats(speeds[strategy, runtime])]

    monkeypatch.setattr(bench_run, "_answers", answers)
    monkeypatch.setattr(bench_run, "_curve", lambda *_: {1: 1.0})
    both, results = plan(runtimes=("llamacpp", "llamacpp-stock"), limit=1), Results()
    run_bench(both, results, lambda _title: None, lambda _note: None)
    assert seen == [*speeds, *reversed(speeds)]  # interleaved, there and back again
    rows = to_json(both, results, {"summary": "a machine"})["rows"]
    assert [(row["ratio_to_plain"], row["ratio_to_stock"]) for row in rows] == [(1, 1.5), (2, 3), (1, 1)]
    assert plan(runtimes=("llamacpp-stock",)).series == [("plain", "llamacpp-stock"), ("lookup", "llamacpp-stock")]


@pytest.mark.parametrize(
    ("speeds", "rounds", "told"),
    [([10, 10.2], 2, 0), ([10, 12, 12.1], 3, 1), ([10, 12, 15, 19], 4, 3), ([10, 12, 15, 10.1], 4, 2)],
)
def test_noise_is_told_and_repeated(
    monkeypatch: pytest.MonkeyPatch, speeds: list[float], rounds: int, told: int
) -> None:
    left, seen, notes = list(speeds), [], []

    def answers(_plan: Plan, _runtime: str, strategy: str, _category: str) -> list[Stats]:
        seen.append(strategy)
        return [stats(left.pop(0) if strategy == "plain" else 10)] * 2

    monkeypatch.setattr(bench_run, "_answers", answers)
    monkeypatch.setattr(bench_run, "_curve", lambda *_: {1: 1.0})
    results = Results()
    run_bench(plan(), results, lambda _title: None, notes.append)
    assert seen == (["plain", "lookup", "lookup", "plain"] * 2)[: 2 * rounds]
    assert len(results.rounds["chat", "plain", "llamacpp"]) == rounds
    assert len(notes) == told


def test_an_interrupted_bench_shows_what_was_finished(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(_plan: Plan, _runtime: str, _strategy: str, category: str) -> list[Stats]:
        if category == "code":
            raise KeyboardInterrupt
        return [stats(10)]

    monkeypatch.setattr(bench_run, "_answers", answers)
    monkeypatch.setattr(bench_run, "_curve", lambda *_: {1: 1.0})
    result = run("bench", tiny, "--categories", "qa,code", "--json")
    assert result.code == 130
    assert {row["category"] for row in json.loads(result.out)["rows"]} == {"qa"}
    assert run("bench", tiny, "--categories", "code,qa").out == ""


def test_a_bench_from_end_to_end(run: Run, tiny: Path, tiny_draft: Path, tmp_path: Path) -> None:
    picture = tmp_path / "bench.svg"
    result = run("bench", tiny, "--draft", tiny_draft, "--limit", 1, "--rounds", 1, "-n", 6, "--categories", "qa,chat",
                 "--ctx", 512, "--json", "--plot", picture)  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert list(found["curve"]["llamacpp"]) == ["1", "2", "4", "8", "16", "32"]
    assert {(row["category"], row["strategy"]) for row in found["rows"]} == {
        (category, strategy) for category in ("qa", "chat") for strategy in ("plain", "lookup", "draft", "auto")
    }
    for row in found["rows"]:
        assert row["tokens_per_second"] > 0
        assert row["peak_memory_bytes"] > 1 << 20
        assert (row["ratio_to_plain"] == 1.0) or row["strategy"] != "plain"
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    draw(found, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    table = run("bench", tiny, "--limit", 1, "--rounds", 1, "-n", 3, "--categories", "qa", "--strategies", "lookup")
    assert "x plain" in table.out
    assert "x stock" not in table.out
    table = run("bench", tiny, "--limit", 1, "--rounds", 1, "-n", 3, "--categories", "qa", "--strategies", "lookup",
                "--runtimes", "llamacpp,llamacpp-stock")  # fmt: skip
    assert "x stock" in table.out
    assert "a pass over n tokens" in table.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--categories", "poetry"], ["poetry", "chat"]), (["--strategies", "best"], ["best", "lookup"]),
        (["--plot", "x.jpg"], ["--plot", ".png"]), (["--plot", "/nowhere/x.png"], ["--plot", "folder"]),
        (["--strategies", "draft"], ["--draft"]), (["--limit", "0"], ["--limit"]),
        (["--ctx", "999999999999"], ["ctx"]), (["--threads", "999999"], ["threads"]),
    ],
)  # fmt: skip
def test_wrong_usage_is_named(run: Run, tiny: Path, arguments: list[str], words: list[str]) -> None:
    one_line_error(run("bench", tiny, *arguments), 2, *words)
