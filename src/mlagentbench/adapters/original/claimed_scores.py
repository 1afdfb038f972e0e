"""Scores from the original's own evaluation, including its baseline agent's. They are marked as claims."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mlagentbench.adapters.original.original_run import OriginalRun
from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarize_scores
from mlagentbench.records import Baseline

NO_SCORE = -1  # in the original's results
MAX_SCORE = 1e300  # a number in JSON may be larger than any float


class ClaimedScores:
    """The results of `python -m MLAgentBench.eval`, looked up by log folder."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._scores: dict[tuple[str, ...], float | None] = {}
        for file in files:
            for path, result in _read_results(file).items():
                self._scores[_log_path_parts(path)] = _parse_score(result)

    def __contains__(self, run: OriginalRun) -> bool:
        return self._find_key(run) is not None

    def score(self, run: OriginalRun) -> float | None:
        """The claimed score of a run; None without a valid submission or without a claim."""
        key = self._find_key(run)
        return None if key is None else self._scores[key]

    def _find_key(self, run: OriginalRun) -> tuple[str, ...] | None:
        """The key with the longest common path suffix; None if two are equally long."""
        suffix_lengths = {key: _common_suffix_length(key, run.logs.root.parts) for key in self._scores}
        longest = max(suffix_lengths.values(), default=0)
        best = [key for key, length in suffix_lengths.items() if length == longest]
        return best[0] if longest and len(best) == 1 else None

    def baselines_by_task(self, runs: Iterable[OriginalRun]) -> dict[str, Baseline]:
        """The scores of the original's baseline agent among these runs, by task."""
        scores_by_task: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            score = self.score(run) if run.is_baseline else None
            if score is not None:
                scores_by_task[run.task].append(score)
        return {task: summarize_scores(scores) for task, scores in scores_by_task.items()}


def _read_results(file: Path) -> dict[str, Any]:
    try:
        results = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not isinstance(results, dict):
        raise UsageError(
            f"{file} is not a result of MLAgentBench.eval: it must map paths of trace.json to results."
        )
    return results


def _parse_score(result: Any) -> float | None:
    score = result.get("final_score") if isinstance(result, dict) else None
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    return float(score) if abs(score) < MAX_SCORE and score != NO_SCORE else None


def _log_path_parts(path: str) -> tuple[str, ...]:
    parts = Path(path).parts
    return parts[:-2] if parts[-2:] == ("env_log", "trace.json") else parts


def _common_suffix_length(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count
