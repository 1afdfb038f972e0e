"""Gymnasium's own checker, and whole episodes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from mlagentbench.adapters.gym import MAX_TEXT_CHARS, ResearchEnv
from mlagentbench.errors import Fault, UsageError
from mlagentbench.runner.folder import RunFolder
from mlagentbench.runner.setup import Setup
from mlagentbench.runner.verify import verify_run
from mlagentbench.system.extras import install_command

PERFECT = "id,value\n" + "".join(f"{n},{n}\n" for n in range(10))
EXECUTE = "Thought: how good is it?\nAction: execute script\nAction Input: train.py"
SUBMIT = '{"action": "Final Answer", "args": {"final_answer": "done"}}'
Env = gymnasium.Env[str, str]


def write(name: str, content: str) -> str:
    return json.dumps({"action": "Write File", "args": {"file_name": name, "content": content}})


@pytest.fixture
def toy_env(toy: Path, tmp_path: Path) -> Iterator[Env]:
    env = gymnasium.make("mlagentbench/task-v0", task=str(toy), out=tmp_path)
    yield env
    env.close()


def create_env(toy: Path, out: Path, **limits: Any) -> ResearchEnv:
    return ResearchEnv(str(toy), out=out, limits=limits)


def test_gymnasiums_checker_passes_for_the_toy_task(toy_env: Env) -> None:
    check_env(toy_env.unwrapped)


def test_gymnasiums_checker_passes_for_house_price(tmp_path: Path) -> None:
    env = gymnasium.make("mlagentbench/house-price-v0", out=tmp_path)
    check_env(env.unwrapped)
    observation, _ = env.reset()
    assert "SalePrice" in observation and "Execute Script" in observation
    env.close()


def test_every_task_has_an_id_that_works_without_an_import() -> None:
    name = "mlagentbench.adapters.gym:mlagentbench/house-price-v0"
    code = f"import gymnasium; print(gymnasium.make({name!r}).unwrapped.setup)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "edition='open'" in done.stdout, done.stderr
    assert {"mlagentbench/house-price-v0", "mlagentbench/BabyLM-v0"} <= gymnasium.registry.keys()


def test_an_episode_is_a_run_with_the_reward_at_its_end(toy_env: Env, setup: Setup) -> None:
    observation, info = toy_env.reset(seed=5)
    assert (
        "the id itself" in observation
        and "Action: Write File" in observation
        and "you have 20 steps" in observation
    )
    assert info["step"] == 0
    observation, reward, terminated, truncated, info = toy_env.step(EXECUTE)
    assert "validation mean absolute error: 5.0" in observation
    assert (reward, terminated, truncated, info["step"], info["steps_left"]) == (0.0, False, False, 1, 19)
    _, reward, terminated, truncated, info = toy_env.step(write("submission.csv", PERFECT))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert not {"score", "improvement", "success", "valid"} & info.keys()
    _, reward, terminated, truncated, info = toy_env.step(SUBMIT)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["score"], info["success"], info["ending"]) == (0.0, True, "submitted")
    folder = RunFolder(Path(info["folder"]))
    assert (folder.spec.seed, folder.spec.agent) == (5, "gymnasium")
    assert folder.steps()[0].call.thought == "how good is it?"
    assert [check.what for check in verify_run(folder, setup) if not check.holds] == []
    with pytest.raises(gymnasium.error.ResetNeeded):
        toy_env.step(EXECUTE)
    _, info = toy_env.reset()
    assert info["folder"] != str(folder.path)


def test_the_last_step_truncates_and_is_graded(toy: Path, tmp_path: Path) -> None:
    env = create_env(toy, tmp_path, steps=2)
    env.reset()
    assert env.step(EXECUTE)[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step(write("submission.csv", PERFECT))
    assert (reward, terminated, truncated, info["ending"]) == (1.0, False, True, "steps")
    env.close()


def test_the_time_limit_truncates_even_without_a_step(toy: Path, tmp_path: Path) -> None:
    env = create_env(toy, tmp_path, hours=1e-9)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(EXECUTE)
    assert (observation, reward, terminated, truncated) == ("The run is over.", 0.0, False, True)
    assert (info["ending"], info["step"], info["valid"]) == ("time", 0, False)
    env.close()


def test_an_invalid_submission_is_marked_as_not_valid(toy_env: Env) -> None:
    toy_env.reset()
    _, reward, terminated, _, info = toy_env.step(SUBMIT)
    assert (reward, terminated, info["valid"], info["score"]) == (0.0, True, False, None)
    assert info["note"] == "submission.csv is missing"


@pytest.mark.parametrize(
    "action",
    [
        "",
        "dance",
        "[]",
        '{"action": 3}',
        '{"verb": "x"}',
        "[" * 100_000,
        "Action: Fly",
        "x" * (MAX_TEXT_CHARS + 1),
    ],
)
def test_an_unreadable_action_is_a_failed_step(toy_env: Env, action: str) -> None:
    toy_env.reset()
    observation, reward, terminated, truncated, info = toy_env.step(action)
    assert observation.startswith("Error: No such action: ") and "Execute Script" in observation
    assert (reward, terminated, truncated, info["step"], info["failed"]) == (0.0, False, False, 1, True)


def test_characters_outside_the_space_are_escaped(toy_env: Env) -> None:
    toy_env.reset()
    toy_env.step(write("note.txt", "naïve → \x1b[31m\x00\r1"))
    observation, _, _, _, info = toy_env.step('{"action": "Read File", "args": {"file_name": "note.txt"}}')
    assert observation in toy_env.observation_space and info["text"] == "naïve → \x1b[31m\x00\r1"
    assert observation == r"na\xefve \u2192 \x1b[31m\x00\r1"


def test_the_middle_of_too_long_an_observation_is_cut(variant: Callable[..., Path], tmp_path: Path) -> None:
    long = variant({"description.md": "Begin. " + "é" * MAX_TEXT_CHARS})
    env = ResearchEnv(str(long), out=tmp_path / "runs")
    observation, info = env.reset()
    assert observation in env.observation_space and len(info["text"]) > MAX_TEXT_CHARS
    assert observation.startswith(r"Begin. \xe9") and observation.endswith(info["text"][-100:])
    assert "characters omitted ...]" in observation
    env.close()


def test_a_suspended_run_can_be_resumed(toy_env: Env, toy: Path, tmp_path: Path) -> None:
    _, info = toy_env.reset(seed=1)
    toy_env.step(write("note.txt", "here"))
    toy_env.close()
    toy_env.close()  # twice does no harm
    left = RunFolder(Path(info["folder"]))
    assert left.result is None
    again = create_env(toy, tmp_path)
    observation, resumed = again.reset(options={"resume": left.path})
    assert (resumed["step"], resumed["folder"]) == (1, info["folder"])
    assert observation.endswith("File note.txt written.")
    again.step(SUBMIT)
    assert left.result and left.result.steps == 2
    with pytest.raises(UsageError, match="reset has no option rewind"):
        again.reset(options={"rewind": 1})
    again.close()


def test_seeds_of_later_episodes_follow_from_the_last_seed_given(toy_env: Env) -> None:
    def seeds() -> list[int]:
        first = toy_env.reset(seed=7)[1]["folder"]
        return [RunFolder(Path(place)).spec.seed for place in (first, toy_env.reset()[1]["folder"])]

    assert seeds() == seeds()


def test_several_environments_run_in_separate_processes(toy: Path, tmp_path: Path) -> None:
    several = gymnasium.make_vec(
        "mlagentbench/task-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
        task=str(toy),
        out=tmp_path,
    )
    _, info = several.reset(seed=1)
    assert {Path(place).name for place in info["folder"]} == {"episode-0001", "episode-0002"}
    observations, rewards, terminated, *_ = several.step((EXECUTE, write("submission.csv", PERFECT)))
    assert "5.0" in observations[0] and observations[1] == "File submission.csv written."
    _, rewards, terminated, _, info = several.step((SUBMIT, SUBMIT))
    assert (list(rewards), list(terminated), list(info["score"])) == ([0.0, 1.0], [True, True], [5.0, 0.0])
    several.close()


def test_a_fault_is_raised_and_is_not_a_reward(toy_env: Env) -> None:
    _, info = toy_env.reset()
    (Path(info["folder"]) / "trace.jsonl").mkdir()
    with pytest.raises(Fault):
        toy_env.step(EXECUTE)
    result = RunFolder(Path(info["folder"])).result
    assert result and result.ending == "fault"


def test_without_gymnasium_one_line_shows_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "gymnasium.py").write_text("raise ImportError")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mlagentbench.adapters.gym"
    failed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (
        failed.stderr.splitlines()[-1] == f"ImportError: Gymnasium is not installed: {install_command('gym')}"
    )
