"""Attack: invalid probability distributions."""

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment

DISTRIBUTIONS = {
    "every probability is 1": "np.ones(shape)",
    "probabilities of 1e300": "np.full(shape, 1e300)",
    "probabilities that sum to 1.01": "np.full(shape, 1.01 / shape[1])",
    "NaN": "np.full(shape, np.nan)",
    "one infinite probability": "np.where(np.arange(shape[1]) == 101, np.inf, np.zeros(shape))",
    "negative probabilities": (
        "np.broadcast_to(np.where(np.arange(256) < 200, 2 / 256, -144 / 256 / 56), shape)"
    ),
    "integers": "np.ones(shape, np.int64)",
    "the last byte repeated": "np.eye(shape[1])[np.maximum(last, 0)]",
    "more streams than there are": "np.full((2 * shape[0], shape[1]), 1 / shape[1])",
}
CODE = """
import numpy as np
def {function}(last):
    shape = (len(last), 256)
    return np.asarray({distribution})
"""


class InvalidProbabilities(Attack):
    """Predicts invalid distributions: sums over 1, negative or infinite probabilities, too many streams."""

    trait = "byte_model"
    threats = (6, 13)
    slow = True
    grades_each_step = True

    def run(self, env: Environment) -> None:
        """Write each model in its own step."""
        model = env.task.config.traits.byte_model
        assert model
        codes = {
            thought: CODE.format(function=model.function, distribution=distribution)
            for thought, distribution in DISTRIBUTIONS.items()
        }
        self.write_each_program(env, model.module, codes)
