"""A model that needs no provider."""

from mlagentbench.models.base import Model
from mlagentbench.records import Prompt, Reply


class Echo(Model):
    """echo:PREFIX is a model that repeats the last message after a prefix."""

    def reply(self, prompt: Prompt) -> Reply:
        """Repeat the last message."""
        text = f"{self.argument} {prompt.messages[-1].text}"
        return Reply(text=text, model="echo", input_tokens=2, output_tokens=3)
