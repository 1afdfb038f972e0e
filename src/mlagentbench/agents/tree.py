"""Tree: searches among whole scripts. Drafts some, mends those that fail, improves the best, begins anew when stuck."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.environment.dialogue import MAX_HISTORY_CHARS, MIN_HISTORY_CHARS, truncate_middle
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import ActionError, PromptTooLong
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.records import Call, Message

SCRIPT = "train.py"
STEPS_PER_NODE, RESERVED_STEPS = 2, 3  # steps for an attempt, and for making the best again and submitting it
MAX_OUTPUT_CHARS = 4_000  # characters of what a script printed

BuildQuestion = Callable[[int], str]  # a question, within so many characters


@dataclass
class Node:
    """One script that was tried: why, what it printed, and how good it is; not a number if it failed."""

    script: str
    plan: str
    output: str
    validation_score: float
    debug_depth: int = 0  # how many attempts before it this one is to mend
    debuggable: bool = True  # whether a failed one is still worth mending


class Tree(Agent):
    """Every node is a script and a snapshot; the best by validation figure is submitted."""

    needs_model = True

    def __init__(
        self, seed: int = 0, drafts: NonNegativeInt = 3, mends: NonNegativeInt = 3, patience: PositiveInt = 5
    ) -> None:
        super().__init__(seed)
        self.drafts, self.mends, self.patience = drafts, mends, patience
        self.nodes: list[Node] = []
        self.nodes_since_best = 0  # attempts since the best was found

    def run(self, env: Environment) -> None:
        """Grow the tree while steps are left, then submit the best node."""
        self.env, self.better = env, env.task.config.better
        files = env.step(Call(action="List Files", args={"dir_path": "."}))
        self.latest = starter = env.step(Call(action="Read File", args={"file_name": SCRIPT}))
        direction = f"A {self.better} figure"
        self.instructions = fill_prompt(
            "tree", task=env.task.description, files=files, starter=starter, direction=direction
        )
        self._try_script(starter, "the script as it was given")
        while env.spec.limits.steps - len(env.steps) >= STEPS_PER_NODE + RESERVED_STEPS and not env.done:
            self._add_node()
        self._submit_best()

    def _add_node(self) -> None:
        """One more node, below the one where it promises most."""
        broken = [
            node
            for node in self.nodes
            if math.isnan(node.validation_score) and node.debuggable and node.debug_depth < self.mends
        ]
        drafted = sum(node.debug_depth == 0 for node in self.nodes) - 1
        best = self._best_node()
        if broken:
            broken[-1].debuggable = False
            told = {
                "script": broken[-1].script,
                "output": truncate_middle(broken[-1].output, MAX_OUTPUT_CHARS),
            }
            self._ask_and_try(lambda room: fill_prompt("tree_debug", **told), broken[-1].debug_depth + 1)
        elif drafted < self.drafts or best is None or self.nodes_since_best >= self.patience:
            self.nodes_since_best = 0
            self._ask_and_try(lambda room: fill_prompt("tree_draft", attempts=self._summarize_nodes(room)))
        else:
            told = {
                "script": best.script,
                "output": truncate_middle(best.output, MAX_OUTPUT_CHARS),
                "figure": f"{best.validation_score:g}",
            }
            self._ask_and_try(
                lambda room: fill_prompt("tree_improve", **told, attempts=self._summarize_nodes(room))
            )

    def _ask_and_try(self, ask: BuildQuestion, mended: int = 0) -> None:
        said = self._ask(ask)
        try:
            script, plan = extract_code(said), said.partition("```")[0].strip()
        except ActionError as error:
            script, plan = "", f"no script came: {error}"
        if script:
            self._try_script(script, plan, mended)
        else:
            self.nodes.append(Node("", plan, plan, math.nan, self.mends))

    def _ask(self, ask: BuildQuestion) -> str:
        room = MAX_HISTORY_CHARS
        while True:
            talk = [Message(role="system", text=self.instructions), Message(role="user", text=ask(room))]
            try:
                return self.env.ask(talk, "edit").text
            except PromptTooLong:
                room //= 2
                if room < MIN_HISTORY_CHARS:
                    raise

    def _try_script(self, script: str, plan: str, mended: int = 0) -> None:
        """Run a script, and put down what came of it."""
        if script != self.latest:
            self.env.step(
                Call(action="Write File", args={"file_name": SCRIPT, "content": script}, thought=plan)
            )
            self.latest = script
        if self.env.done:
            return
        output = self.env.step(Call(action="Execute Script", args={"script_name": SCRIPT}))
        execution = self.env.steps[-1].execution
        worked = execution is not None and execution.exit_code == 0
        best = self._best_node()
        self.nodes.append(
            Node(script, plan, output, parse_validation_score(output) if worked else math.nan, mended)
        )
        self.nodes_since_best = 0 if self._best_node() is not best else self.nodes_since_best + 1

    def _best_node(self) -> Node | None:
        good = [node for node in self.nodes if math.isfinite(node.validation_score)]
        sign = 1 if self.better == "higher" else -1
        return max(good, key=lambda node: sign * node.validation_score, default=None)

    def _summarize_nodes(self, room: int) -> str:
        lines = [
            f"- {truncate_middle(node.plan, 500)} → {node.validation_score:g}".replace("nan", "failed")
            for node in self.nodes
        ]
        return truncate_middle("\n".join(lines), room // 2)

    def _submit_best(self) -> None:
        best = self._best_node()
        if best and not self.env.done and best is not self.nodes[-1]:
            self._try_script(best.script, "back to the best")
        if not self.env.done:
            said = f"best validation figure: {best.validation_score:g}" if best else "nothing worked"
            self.env.step(Call(action="Final Answer", args={"final_answer": said}))
