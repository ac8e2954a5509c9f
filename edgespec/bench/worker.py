"""A child process that loads a model once and reports statistics, so that peak memory is of this strategy alone.

python -m edgespec.bench.worker JOB: a JSON object, {"model", "draft", "load"} and either {"category", "limit",
"tokens"}, answered by the `Stats` of each answer, or {"curve", "context"}, answered by t(n).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from edgespec.models.child import Report, work_as_child

from .prompts import prompts


def _work(report: Report) -> None:
    from edgespec.costs import measure
    from edgespec.loading import load

    job: dict[str, Any] = json.loads(sys.argv[1])
    with load(job["model"], draft=job["draft"], **job["load"]) as model:
        if "curve" in job:
            seconds = measure(model.runtime, tuple(job["curve"]), rounds=7, context=job["context"])
            report(seconds=seconds)
            return
        for prompt in prompts(job["category"])[: job["limit"]]:
            report(stats=model.complete(prompt, max_tokens=job["tokens"]).stats.to_json())


if __name__ == "__main__":
    sys.exit(work_as_child(_work))
