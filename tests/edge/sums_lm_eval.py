"""lm-eval's own evaluation of the questions in a folder: ``python sums_lm_eval.py FOLDER MODEL``.

It is what ``lm-eval run --model local-chat-completions --tasks sums --include_path FOLDER`` does, but for the seconds
in which that reads the thousands of tasks that lm-eval brings along.
"""

from __future__ import annotations

import json
import os
import sys

import lm_eval
from lm_eval.tasks import TaskManager


def main(folder: str, model: str) -> None:
    """Evaluate, and write each answer and the score as one document."""
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    results = lm_eval.simple_evaluate(
        model="local-chat-completions",
        model_args=f"model={model},base_url={url},num_concurrent=8,max_retries=1,tokenized_requests=False",
        tasks=["sums"],
        task_manager=TaskManager(include_path=folder, include_defaults=False),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    answers = [sample["resps"][0][0] for sample in results["samples"]["sums"]]
    score = float(results["results"]["sums"]["exact_match,none"])
    print(json.dumps({"answers": answers, "score": score}))


if __name__ == "__main__":
    main(*sys.argv[1:])
