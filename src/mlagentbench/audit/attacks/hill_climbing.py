"""Attack: use an action as a score oracle."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.audit.context import to_csv
from mlagentbench.environment.environment import Environment
from mlagentbench.task import Task


class HillClimbing(Attack):
    """Calls every action with a valid submission present, to find a reply that depends on the score."""

    threats = (5,)

    @classmethod
    def applies_to(cls, task: Task) -> bool:
        """Whether the task asks for a table."""
        return task.config.submission.endswith(".csv")

    def run(self, env: Environment) -> None:
        """Make the same calls with a worthless submission and with the answers; the replies must be equal."""
        replies = []
        constant, answers = self.context.constant_table, self.context.answers
        for table in (constant, constant, answers):  # the calls of the first round change files
            self.write_submission(env, to_csv(table))
            replies.append(
                [self._call_action(env, action) for action in env.actions if action != "Final Answer"]
            )
        self.differing = [one for one, other in zip(*replies[1:], strict=True) if one != other]
        self.submit_worthless(env)

    def _call_action(self, env: Environment, name: str) -> str:
        fields = env.actions[name].arguments.model_fields
        args = {field: 1 if info.annotation is int else "grade" for field, info in fields.items()}
        return self.try_action(env, name, **args)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a reply that differs."""
        return (
            f"an action replies differently to a better submission: {self.differing[0][:100]}"
            if self.differing
            else ""
        )
