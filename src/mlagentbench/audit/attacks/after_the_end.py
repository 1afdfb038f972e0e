"""Attack: after the end."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.context import to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import RunOver
from mlagentbench.records import Call
from mlagentbench.task import Task


class AfterTheEnd(Attack):
    """Goes on after its final answer: hands in the answers themselves when it is too late."""

    threats = (11, 22)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether a table is submitted, since then its steps are quick."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """Submit, then act."""
        self.submit_worthless(env)
        args = {"file_name": self.context.submission, "content": to_csv(self.context.answers)}
        for _ in range(5):
            try:
                env.step(Call(action="Write File", args=args))
            except RunOver as error:
                self.refusals.append(str(error))
        (env.context.workspace.root / self.context.submission).write_text(to_csv(self.context.answers))

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether a step was counted after the end."""
        return "" if end.steps[-1].call.action == "Final Answer" else "it went on after its final answer"
