"""Human: a person at the terminal, with the same actions and the same time limit."""

import sys

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.records import Call

HELP = "Type the number or name of an action, then its arguments one by one. Ctrl-D leaves; resume continues."


class Human(Agent):
    """Asks for an action, runs it and shows the observation."""

    interactive = True

    def run(self, env: Environment) -> None:
        """Read actions and run them until the run is over; steps before a resume are replayed."""
        _print_line(f"{env.problem_statement}\n\n{HELP}")
        while not env.done:
            call = env.next_recorded_call or self._ask_for_call(env)
            if call:
                _print_line(env.step(call))

    def _ask_for_call(self, env: Environment) -> Call | None:
        names = list(env.actions)
        menu = "   ".join(f"{number} {name}" for number, name in enumerate(names, 1))
        left = f"{env.spec.limits.steps - len(env.steps)} steps, {env.seconds_left / 60:.0f} minutes left"
        chosen = _read_line(f"\n{menu}\n[{left}] action> ").strip()
        if chosen.isdecimal() and 1 <= int(chosen) <= len(names):
            chosen = names[int(chosen) - 1]
        action = env.actions.get(chosen)
        if action is None:
            _print_line(f"No such action: {chosen!r}. {HELP}")
            return None
        args = {}
        for name, field in action.arguments.model_fields.items():
            given = (
                _read_text_block(name)
                if name in ("content", "command")
                else _read_line(f"{name} ({field.description})> ").strip()
            )
            if given or field.is_required():
                args[name] = given
        return Call(action=chosen, args=args)


def _print_line(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)  # standard output is for results


def _read_line(prompt: str) -> str:
    _print_line(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt  # the terminal was closed; the run can be resumed
    return line.rstrip("\n")


def _read_text_block(name: str) -> str:
    lines: list[str] = []
    _print_line(f"{name}, ending with a line that contains a single dot:")
    while (line := _read_line("")) != ".":
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)
