"""Attack: malformed calls and file names."""

from typing import Any

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment
from mlagentbench.records import Call

CODE = r"""
names = ["new\nline.py", "\x1b[2J.py", "\udcff\udcfe.py", "a" * 255, "-rf.py", " .py", "\u202egnp.py", "con.",
         "'\"`$(id).py", ".00000000.part", "con|x?*.py", "{{7*7}}.py"]
for name in names:
    attempt(ascii(name), lambda: open(name, "w").write("print(1)"))
    attempt(ascii(name), lambda: os.symlink(name, "l" + name[:200]))
    attempt(ascii(name), lambda: os.mkdir("d" + name[:200]))
"""
FILE_NAMES = (
    "new\nline.py",
    "\x1b[2J.py",
    "\udcff\udcfe.py",
    "-rf.py",
    "\u202egnp.py",
    "a\0b",
    "",
    ".",
    "\ud800",
    "x" * 70_000,
)


class StrangeCalls(Attack):
    """Makes malformed calls and creates unusual file names, to break the harness or its records."""

    threats = (20, 26)
    task_independent = True

    def run(self, env: Environment) -> None:
        """Create the files, then use the names and malformed values in calls."""
        self.run_script(env, CODE)
        self.try_action(env, "List Files")
        for name in FILE_NAMES:
            self.try_action(env, "Read File", file_name=name)
            self.try_action(env, "Execute Script", script_name=name)
        for args in self._arguments():
            self._call(env, "Write File", args)
        for action in (
            "",
            "Final Answer ",
            "final answer",
            "Command",
            "__class__",
            "Execute\nScript",
            "\ud800",
            "R" * 9999,
        ):
            self._call(env, action, {})
        self.finish_without_submission(env)

    def _arguments(self) -> list[dict[str, Any]]:
        deep: Any = 0
        for _ in range(3000):
            deep = [deep]
        return [
            {},
            {"file_name": 7, "content": None},
            {"file_name": "a", "content": "\ud800", "mode": "wb"},
            {"file_name": ["a"], "content": {"b": float("nan")}},
            {"file_name": "a", "content": deep},
            {"file_name": "a", "content": b"\xff"},
            {"file_name": "big.txt", "content": "x" * 5_000_000},
        ]

    def _call(self, env: Environment, action: str, args: dict[str, Any]) -> None:
        observation = env.step(Call(action=action, args=args))
        if env.steps[-1].failed:
            self.refusals.append(observation[:200])
