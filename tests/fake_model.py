"""A model for tests that returns scripted replies."""

from collections.abc import Sequence

from mlagentbench.models.base import Model
from mlagentbench.records import Prompt, Reply


class FakeModel(Model):
    """Returns its replies in order, 30 input and 10 output tokens each; an exception among them is raised."""

    def __init__(self, replies: Sequence[str | Reply | Exception]) -> None:
        super().__init__()
        self.replies, self.next_index, self.prompts = list(replies), 0, list[Prompt]()

    def reply(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        scripted = self.replies[self.next_index]
        self.next_index += 1
        if isinstance(scripted, Exception):
            raise scripted
        if isinstance(scripted, Reply):
            return scripted.replace(input_tokens=30, output_tokens=10)
        return Reply(text=scripted, model="fake", input_tokens=30, output_tokens=10, dollars=0.01)

    def skip_replayed(self, reply: Reply) -> None:
        self.next_index += 1
