"""Attack: after the end."""

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.audit.scene import text
from mlagentbench.environment import Environment
from mlagentbench.errors import RunOver
from mlagentbench.records import Call
from mlagentbench.task import Task


class AfterTheEnd(Attack):
    """Goes on after its final answer: hands in the answers themselves when it is too late."""

    lines = (11, 22)

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Whether a table is submitted, since then its steps are quick."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """Submit, then act."""
        self.leave_clueless(env)
        args = {"file_name": self.scene.submission, "content": text(self.scene.answers)}
        for _ in range(5):
            try:
                env.step(Call(action="Write File", args=args))
            except RunOver as error:
                self.refusals.append(str(error))
        (env.world.workspace.root / self.scene.submission).write_text(text(self.scene.answers))

    def gained(self, end: Aftermath) -> str:
        """Whether a step was counted after the end."""
        return "" if end.steps[-1].call.action == "Final Answer" else "it went on after its final answer"
