"""Tree: searches among whole scripts. Drafts some, mends those that fail, improves the best, begins anew when stuck."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.agents.tuner import figure
from mlagentbench.dialogue import LEAST, ROOM, cut
from mlagentbench.environment import Environment
from mlagentbench.errors import ActionError, PromptTooLong
from mlagentbench.language.prompts import fill
from mlagentbench.language.replies import code
from mlagentbench.records import Call, Message

SCRIPT = "train.py"
NODE, KEPT_BACK = 2, 3  # steps for an attempt, and for making the best again and submitting it
SHOWN = 4_000  # characters of what a script printed

Ask = Callable[[int], str]  # a question, within so many characters


@dataclass
class Node:
    """One script that was tried: why, what it printed, and how good it is; not a number if it failed."""

    script: str
    plan: str
    output: str
    figure: float
    mended: int = 0  # how many attempts before it this one is to mend
    open: bool = True  # whether a failed one is still worth mending


class Tree(Agent):
    """Every node is a script and a snapshot; the best by validation figure is submitted."""

    needs_model = True

    def __init__(
        self, seed: int = 0, drafts: NonNegativeInt = 3, mends: NonNegativeInt = 3, patience: PositiveInt = 5
    ) -> None:
        super().__init__(seed)
        self.drafts, self.mends, self.patience = drafts, mends, patience
        self.nodes: list[Node] = []
        self.idle = 0  # attempts since the best was found

    def run(self, env: Environment) -> None:
        """Grow the tree while steps are left, then submit the best node."""
        self.env, self.better = env, env.task.config.better
        files = env.step(Call(action="List Files", args={"dir_path": "."}))
        self.latest = starter = env.step(Call(action="Read File", args={"file_name": SCRIPT}))
        direction = f"A {self.better} figure"
        self.instructions = fill("tree", task=env.task.description, files=files, starter=starter, direction=direction)
        self._try(starter, "the script as it was given")
        while env.spec.limits.steps - len(env.steps) >= NODE + KEPT_BACK and not env.done:
            self._grow()
        self._submit()

    def _grow(self) -> None:
        """One more node, below the one where it promises most."""
        broken = [node for node in self.nodes if math.isnan(node.figure) and node.open and node.mended < self.mends]
        drafted = sum(node.mended == 0 for node in self.nodes) - 1
        best = self._best()
        if broken:
            broken[-1].open = False
            told = {"script": broken[-1].script, "output": cut(broken[-1].output, SHOWN)}
            self._write(lambda room: fill("tree_debug", **told), broken[-1].mended + 1)
        elif drafted < self.drafts or best is None or self.idle >= self.patience:
            self.idle = 0
            self._write(lambda room: fill("tree_draft", attempts=self._attempts(room)))
        else:
            told = {"script": best.script, "output": cut(best.output, SHOWN), "figure": f"{best.figure:g}"}
            self._write(lambda room: fill("tree_improve", **told, attempts=self._attempts(room)))

    def _write(self, ask: Ask, mended: int = 0) -> None:
        said = self._ask(ask)
        try:
            script, plan = code(said), said.partition("```")[0].strip()
        except ActionError as error:
            script, plan = "", f"no script came: {error}"
        if script:
            self._try(script, plan, mended)
        else:
            self.nodes.append(Node("", plan, plan, math.nan, self.mends))

    def _ask(self, ask: Ask) -> str:
        room = ROOM
        while True:
            talk = [Message(role="system", text=self.instructions), Message(role="user", text=ask(room))]
            try:
                return self.env.ask(talk, "edit").text
            except PromptTooLong:
                room //= 2
                if room < LEAST:
                    raise

    def _try(self, script: str, plan: str, mended: int = 0) -> None:
        """Run a script, and put down what came of it."""
        if script != self.latest:
            self.env.step(Call(action="Write File", args={"file_name": SCRIPT, "content": script}, thought=plan))
            self.latest = script
        if self.env.done:
            return
        output = self.env.step(Call(action="Execute Script", args={"script_name": SCRIPT}))
        execution = self.env.steps[-1].execution
        worked = execution is not None and execution.exit_code == 0
        best = self._best()
        self.nodes.append(Node(script, plan, output, figure(output) if worked else math.nan, mended))
        self.idle = 0 if self._best() is not best else self.idle + 1

    def _best(self) -> Node | None:
        good = [node for node in self.nodes if math.isfinite(node.figure)]
        sign = 1 if self.better == "higher" else -1
        return max(good, key=lambda node: sign * node.figure, default=None)

    def _attempts(self, room: int) -> str:
        lines = [f"- {cut(node.plan, 500)} → {node.figure:g}".replace("nan", "failed") for node in self.nodes]
        return cut("\n".join(lines), room // 2)

    def _submit(self) -> None:
        best = self._best()
        if best and not self.env.done and best is not self.nodes[-1]:
            self._try(best.script, "back to the best")
        if not self.env.done:
            said = f"best validation figure: {best.figure:g}" if best else "nothing worked"
            self.env.step(Call(action="Final Answer", args={"final_answer": said}))
