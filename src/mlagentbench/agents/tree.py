"""Tree: searches a tree of whole scripts. Drafts, debugs failures, improves the best, restarts when stuck."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import NonNegativeInt, PositiveInt

from mlagentbench.agents.base import Agent
from mlagentbench.agents.tuner import parse_validation_score
from mlagentbench.environment import Environment
from mlagentbench.environment.dialogue import MAX_HISTORY_CHARS, MIN_HISTORY_CHARS, truncate_middle
from mlagentbench.errors import ActionError, PromptTooLong
from mlagentbench.language.prompts import fill_prompt
from mlagentbench.language.replies import extract_code
from mlagentbench.records import Call, Message

SCRIPT = "train.py"
STEPS_PER_NODE = 2
RESERVED_STEPS = 3  # to run the best script again and submit it
MAX_OUTPUT_CHARS = 4_000  # of a script's output in a prompt

BuildQuestion = Callable[[int], str]  # a question within a number of characters


@dataclass
class Node:
    """A script that was tried: its plan, its output, and its validation score, which is NaN if it failed."""

    script: str
    plan: str
    output: str
    score: float
    debug_depth: int = 0  # how many failed scripts in a row it tries to fix
    debuggable: bool = True  # whether a failed script is still worth fixing


class Tree(Agent):
    """Searches a tree of scripts; submits the one with the best validation score."""

    needs_model = True
    option_aliases = MappingProxyType({"mends": "debug_attempts"})

    def __init__(
        self,
        seed: int = 0,
        drafts: NonNegativeInt = 3,
        debug_attempts: NonNegativeInt = 3,
        patience: PositiveInt = 5,
    ) -> None:
        """Create the agent.

        Args:
            seed: The seed.
            drafts: How many scripts are written from scratch before the best one is improved.
            debug_attempts: How many times in a row a failing script is debugged.
            patience: After how many nodes without improvement a new draft is written.
        """
        super().__init__(seed)
        self.drafts, self.debug_attempts, self.patience = drafts, debug_attempts, patience
        self.nodes: list[Node] = []
        self.nodes_since_best = 0

    def run(self, env: Environment) -> None:
        """Grow the tree while steps are left, then submit the best node."""
        self.env, self.better = env, env.task.config.better
        files = env.step(Call(action="List Files", args={"dir_path": "."}))
        self.current_script = starter = env.step(Call(action="Read File", args={"file_name": SCRIPT}))
        self.instructions = fill_prompt(
            "tree",
            task=env.problem_statement,
            files=files,
            starter=starter,
            direction=f"A {self.better} figure",
        )
        self._try_script(starter, "the script as it was given")
        while env.spec.limits.steps - len(env.steps) >= STEPS_PER_NODE + RESERVED_STEPS and not env.done:
            self._add_node()
        self._submit_best()

    def _add_node(self) -> None:
        """Debug the latest failure, write a new draft, or improve the best node."""
        failed = [
            node
            for node in self.nodes
            if math.isnan(node.score) and node.debuggable and node.debug_depth < self.debug_attempts
        ]
        drafted = sum(node.debug_depth == 0 for node in self.nodes) - 1
        best = self._best_node()
        if failed:
            node = failed[-1]
            node.debuggable = False
            values = {"script": node.script, "output": truncate_middle(node.output, MAX_OUTPUT_CHARS)}
            self._ask_and_try(lambda max_chars: fill_prompt("tree_debug", **values), node.debug_depth + 1)
        elif drafted < self.drafts or best is None or self.nodes_since_best >= self.patience:
            self.nodes_since_best = 0
            self._ask_and_try(
                lambda max_chars: fill_prompt("tree_draft", attempts=self._summarize_nodes(max_chars))
            )
        else:
            values = {
                "script": best.script,
                "output": truncate_middle(best.output, MAX_OUTPUT_CHARS),
                "figure": f"{best.score:g}",
            }
            self._ask_and_try(
                lambda max_chars: fill_prompt(
                    "tree_improve", **values, attempts=self._summarize_nodes(max_chars)
                )
            )

    def _ask_and_try(self, build_question: BuildQuestion, debug_depth: int = 0) -> None:
        """Ask the model for a script and try it; a reply without one is a failed node."""
        reply = self._ask(build_question)
        try:
            script, plan = extract_code(reply), reply.partition("```")[0].strip()
        except ActionError as error:
            script, plan = "", f"the reply has no script: {error}"
        if script:
            self._try_script(script, plan, debug_depth)
        else:
            self.nodes.append(Node("", plan, plan, math.nan, self.debug_attempts))

    def _ask(self, build_question: BuildQuestion) -> str:
        max_chars = MAX_HISTORY_CHARS
        while True:
            question = build_question(max_chars)
            messages = [Message(role="system", text=self.instructions), Message(role="user", text=question)]
            try:
                return self.env.ask(messages, "edit").text
            except PromptTooLong:
                max_chars //= 2
                if max_chars < MIN_HISTORY_CHARS:
                    raise

    def _try_script(self, script: str, plan: str, debug_depth: int = 0) -> None:
        """Run a script and add it to the tree."""
        if script != self.current_script:
            self.env.step(
                Call(action="Write File", args={"file_name": SCRIPT, "content": script}, thought=plan)
            )
            self.current_script = script
        if self.env.done:
            return
        output = self.env.step(Call(action="Execute Script", args={"script_name": SCRIPT}))
        execution = self.env.steps[-1].execution
        succeeded = execution is not None and execution.exit_code == 0
        score = parse_validation_score(output) if succeeded else math.nan
        best = self._best_node()
        self.nodes.append(Node(script, plan, output, score, debug_depth))
        self.nodes_since_best = 0 if self._best_node() is not best else self.nodes_since_best + 1

    def _best_node(self) -> Node | None:
        scored = [node for node in self.nodes if math.isfinite(node.score)]
        sign = 1 if self.better == "higher" else -1
        return max(scored, key=lambda node: sign * node.score, default=None)

    def _summarize_nodes(self, max_chars: int) -> str:
        lines = [f"- {truncate_middle(node.plan, 500)} → {_format_score(node)}" for node in self.nodes]
        return truncate_middle("\n".join(lines), max_chars // 2)

    def _submit_best(self) -> None:
        best = self._best_node()
        if best and not self.env.done and best is not self.nodes[-1]:
            self._try_script(best.script, "back to the best script")
        if not self.env.done:
            answer = f"best validation score: {best.score:g}" if best else "no script worked"
            self.env.step(Call(action="Final Answer", args={"final_answer": answer}))


def _format_score(node: Node) -> str:
    return "failed" if math.isnan(node.score) else f"{node.score:g}"
