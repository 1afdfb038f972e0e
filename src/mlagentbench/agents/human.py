"""Human: a person at the terminal, with the same actions and the same clock."""

import sys

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call

HELP = "Type the number or the name of an action, then its arguments one by one. Ctrl-D leaves; resume goes on."


class Human(Agent):
    """Asks for an action, does it, shows what came of it."""

    interactive = True

    def run(self, env: Environment) -> None:
        """Read and act until it is over; what a person did before a resume is not asked for again."""
        _say(f"{env.task.description}\n\n{HELP}")
        while not env.done:
            call = env.replaying or self._ask(env)
            if call:
                _say(env.step(call))

    def _ask(self, env: Environment) -> Call | None:
        names = list(env.actions)
        menu = "   ".join(f"{number} {name}" for number, name in enumerate(names, 1))
        left = f"{env.spec.limits.steps - len(env.steps)} steps, {env.seconds_left / 60:.0f} minutes left"
        chosen = _line(f"\n{menu}\n[{left}] action> ").strip()
        if chosen.isdecimal() and 1 <= int(chosen) <= len(names):
            chosen = names[int(chosen) - 1]
        action = env.actions.get(chosen)
        if action is None:
            _say(f"There is no action {chosen!r}. {HELP}")
            return None
        args = {}
        for name, field in action.arguments.model_fields.items():
            given = _text(name) if name in ("content", "command") else _line(f"{name} ({field.description})> ").strip()
            if given or field.is_required():
                args[name] = given
        return Call(action=chosen, args=args)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)  # standard output is for results


def _line(prompt: str) -> str:
    _say(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt  # the terminal was closed: the person leaves, and may come back
    return line.rstrip("\n")


def _text(name: str) -> str:
    lines: list[str] = []
    _say(f"{name}, up to a line with a single dot:")
    while (line := _line("")) != ".":
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)
