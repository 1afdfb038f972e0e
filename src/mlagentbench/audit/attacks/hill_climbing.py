"""Attack: hill climbing."""

from mlagentbench.audit.attacks.base import Aftermath, Attack
from mlagentbench.audit.scene import text
from mlagentbench.environment import Environment
from mlagentbench.task import Task


class HillClimbing(Attack):
    """Asks every action, with a valid submission in place, for anything that depends on its hidden score."""

    lines = (5,)

    @classmethod
    def fits(cls, task: Task) -> bool:
        """Whether a table is submitted."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """The same calls with a worthless submission and with the answers: what they say must not differ."""
        heard = []
        for table in (self.scene.clueless, self.scene.clueless, self.scene.answers):  # the first changes files
            self.write(env, text(table))
            heard.append([self._said(env, action) for action in env.actions if action != "Final Answer"])
        self.differing = [one for one, other in zip(*heard[1:], strict=True) if one != other]
        self.leave_clueless(env)

    def _said(self, env: Environment, name: str) -> str:
        fields = env.actions[name].arguments.model_fields
        args = {field: 1 if info.annotation is int else "grade" for field, info in fields.items()}
        return self.act(env, name, **args)

    def gained(self, end: Aftermath) -> str:
        """Whether an action told one from the other."""
        return f"an action says more of a better submission: {self.differing[0][:100]}" if self.differing else ""
