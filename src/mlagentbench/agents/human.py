"""Human: a person at the terminal, with the same actions and the same clock."""

from mlagentbench.agents.base import Agent
from mlagentbench.environment import Environment
from mlagentbench.errors import UsageError
from mlagentbench.records import Call

HELP = "Type the number or name of an action; then its arguments, one by one. End a long text with a line: ."


class Human(Agent):
    """Asks for an action, does it, shows what came of it."""

    interactive = True

    def run(self, env: Environment) -> None:
        """Read and act until it is over; what a person did before a resume is not asked for again."""
        print(f"{env.task.description}\n\n{HELP}")
        while not env.done:
            call = env.replaying or self._ask(env)
            if call:
                print(env.step(call))

    def _ask(self, env: Environment) -> Call | None:
        names = list(env.actions)
        menu = "   ".join(f"{number} {name}" for number, name in enumerate(names, 1))
        left = f"{env.spec.limits.steps - len(env.steps)} steps, {env.seconds_left / 60:.0f} minutes left"
        chosen = _line(f"\n{menu}\n[{left}] action> ")
        if chosen.isdigit() and 1 <= int(chosen) <= len(names):
            chosen = names[int(chosen) - 1]
        action = env.actions.get(chosen)
        if action is None:
            print(f"There is no action {chosen!r}. {HELP}")
            return None
        args = {}
        for name, field in action.arguments.model_fields.items():
            given = _text(name) if name == "content" else _line(f"{name} ({field.description})> ")
            if given or field.is_required():
                args[name] = int(given) if field.annotation is int and given.isdigit() else given
        return Call(action=chosen, args=args)


def _line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        raise UsageError("the terminal was closed; go on later with: mlagentbench resume FOLDER") from None


def _text(name: str) -> str:
    lines: list[str] = []
    print(f"{name}, up to a line with a single dot:")
    while (line := _line("")) != ".":
        lines.append(line)
    return "\n".join(lines) + "\n"
