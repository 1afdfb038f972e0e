"""A model for tests: it says its lines."""

from collections.abc import Sequence

from mlagentbench.models.base import Model
from mlagentbench.records import Prompt, Reply


class FakeModel(Model):
    """Says its lines one after another, 30 tokens in and 10 out each; an exception among them is raised."""

    def __init__(self, lines: Sequence[str | Reply | Exception]) -> None:
        super().__init__()
        self.replies, self.next_index, self.prompts = list(lines), 0, list[Prompt]()

    def reply(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        line = self.replies[self.next_index]
        self.next_index += 1
        if isinstance(line, Exception):
            raise line
        if isinstance(line, Reply):
            return line.replace(input_tokens=30, output_tokens=10)
        return Reply(text=line, model="parrot", input_tokens=30, output_tokens=10, dollars=0.01)

    def skip_replayed(self, reply: Reply) -> None:
        self.next_index += 1
