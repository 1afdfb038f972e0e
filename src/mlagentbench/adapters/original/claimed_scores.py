"""What the original's own evaluation said of its runs, and what its trivial agent scored: claims, marked as such."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mlagentbench.adapters.original.original_run import OriginalRun
from mlagentbench.errors import UsageError
from mlagentbench.grading.verdict import summarize_scores
from mlagentbench.records import Baseline

NO_SCORE = -1  # the original's word for no score
MAX_SCORE = 1e300  # which no score is, but a number in JSON may be larger than any float


class ClaimedScores:
    """The results of `python -m MLAgentBench.eval`, found by the log folder that each is of."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._scores: dict[tuple[str, ...], float | None] = {}
        for file in files:
            for path, result in _read_results(file).items():
                self._scores[_log_path_parts(path)] = _parse_score(result)

    def __contains__(self, run: OriginalRun) -> bool:
        return self._find_key(run) is not None

    def score(self, run: OriginalRun) -> float | None:
        """What was claimed for a run; none for one without a valid submission, or without any claim."""
        key = self._find_key(run)
        return None if key is None else self._scores[key]

    def _find_key(self, run: OriginalRun) -> tuple[str, ...] | None:
        """The one whose path ends most like the run's; two that are alike are worth nothing."""
        alike = {key: _common_suffix_length(key, run.logs.root.parts) for key in self._scores}
        most = max(alike.values(), default=0)
        best = [key for key, count in alike.items() if count == most]
        return best[0] if most and len(best) == 1 else None

    def baselines_by_task(self, runs: Iterable[OriginalRun]) -> dict[str, Baseline]:
        """For each task the scores of the trivial agent among these runs."""
        found: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            score = self.score(run) if run.is_baseline else None
            if score is not None:
                found[run.task].append(score)
        return {task: summarize_scores(scores) for task, scores in found.items()}


def _read_results(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{file} is no result of MLAgentBench.eval: it must be an object by paths of trace.json"
        )
    return found


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
