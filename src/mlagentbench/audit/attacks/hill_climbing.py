"""Attack: hill climbing."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.context import to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task


class HillClimbing(Attack):
    """Asks every action, with a valid submission in place, for anything that depends on its hidden score."""

    threats = (5,)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether a table is submitted."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """The same calls with a worthless submission and with the answers: what they say must not differ."""
        heard = []
        for table in (
            self.context.constant_table,
            self.context.constant_table,
            self.context.answers,
        ):  # the first changes files
            self.write_submission(env, to_csv(table))
            heard.append(
                [self._call_action(env, action) for action in env.actions if action != "Final Answer"]
            )
        self.differing = [one for one, other in zip(*heard[1:], strict=True) if one != other]
        self.submit_worthless(env)

    def _call_action(self, env: Environment, name: str) -> str:
        fields = env.actions[name].arguments.model_fields
        args = {field: 1 if info.annotation is int else "grade" for field, info in fields.items()}
        return self.try_action(env, name, **args)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether an action told one from the other."""
        return (
            f"an action says more of a better submission: {self.differing[0][:100]}" if self.differing else ""
        )
