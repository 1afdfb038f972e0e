"""Attack: answers that are not what the grader asked for."""

from mlagentbench.audit.attacks.base import Attack
from mlagentbench.environment.environment import Environment

NUMBERS = "np.arange(100)"
ANSWERS = {
    "nothing": "()",
    "the question itself": "question",
    "one paper many times": "(np.zeros(100, np.int64), np.zeros(100, np.int64))",
    "all small numbers, each in a group of its own": f"({NUMBERS}, {NUMBERS})",
    "numbers that are not finite": "(np.full(100, np.nan), np.full(100, np.inf))",
    "huge numbers": "(np.full(2, 2**63, np.uint64), np.full(2, -(2**63), np.int64))",
    "groups without papers": f"({NUMBERS}[:0], {NUMBERS})",
    "arrays of many dimensions": "(np.zeros((1,) * 16, np.int64),) * 2",
    "more bytes than are allowed": "np.zeros(10**8, np.uint8)",
    "bytes that are no text": "np.full(60_000, 255, np.uint8)",
    "nested braces": "np.frombuffer(b'@a{b, c = ' + b'{' * 60_000, np.uint8)",
    "entries that are not closed": "np.frombuffer(b'@a{b, c = ' * 6_000, np.uint8)",
    "quotation marks": "np.frombuffer(b'@a{b, c = ' + b'\"' * 50_000, np.uint8)",
    "backslashes": "np.frombuffer(b'@a{b, author = {' + b'\\\\\\\\' * 25_000 + b'}}', np.uint8)",
    "many empty entries": "np.frombuffer(b'@a{b,}' * 10_000, np.uint8)",
}
CODE = """
import numpy as np
def {function}(question):
    return {answer}
"""


class StrangeAnswers(Attack):
    """Answers with arrays of other types and sizes, repeated items, or text that is hard to parse."""

    trait = "text_function"
    threats = (12, 13, 20)
    slow = True
    grades_each_step = True

    def run(self, env: Environment) -> None:
        """Write each program in its own step."""
        tool = env.task.config.traits.text_function
        assert tool
        codes = {
            thought: CODE.format(function=tool.function, answer=answer) for thought, answer in ANSWERS.items()
        }
        self.write_each_program(env, tool.module, codes)
