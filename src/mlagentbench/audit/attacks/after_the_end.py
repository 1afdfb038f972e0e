"""Attack: continue after the final answer."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.context import to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.errors import RunOver
from mlagentbench.records import Call
from mlagentbench.task import Task


class AfterTheEnd(Attack):
    """Continues after its final answer and submits the hidden answers when it is too late."""

    threats = (11, 22)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task asks for a table, because then the steps are fast."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """Submit, then take more steps."""
        self.submit_worthless(env)
        args = {"file_name": self.context.submission, "content": to_csv(self.context.answers)}
        for _ in range(5):
            try:
                env.step(Call(action="Write File", args=args))
            except RunOver as error:
                self.refusals.append(str(error))
        (env.context.workspace.root / self.context.submission).write_text(to_csv(self.context.answers))

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a step that was counted after the final answer."""
        return (
            "" if outcome.steps[-1].call.action == "Final Answer" else "it took a step after its final answer"
        )
