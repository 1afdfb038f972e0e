"""scripted:FILE returns the replies in a file, one after another; for tests and demonstrations."""

from pathlib import Path

from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import Prompt, Reply

REPLY_SEPARATOR = "\n=====\n"


class Scripted(Model):
    """Returns fixed replies in order. In the file, a line of five equals signs separates them."""

    supports_tools = False
    replies_at_once = True

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        if not argument:
            raise UsageError("The model scripted needs a file of replies. Pass --model scripted:FILE.")
        try:
            text = Path(argument).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"scripted:{argument} cannot be read: {error}") from error
        self.replies = text.removesuffix("\n").split(REPLY_SEPARATOR)
        self.position = 0

    def reply(self, prompt: Prompt) -> Reply:
        """Return the next reply, cut at the prompt's stop sequences."""
        if self.position == len(self.replies):
            raise ModelFault(f"The script {self.argument} has only {self.position} replies.")
        text = self.replies[self.position]
        self.position += 1
        for stop in prompt.stop:
            text = text.partition(stop)[0]
        prompt_chars = sum(len(message.text) for message in prompt.messages)
        return Reply(
            text=text,
            not_applied=tuple(prompt.sampling.model_dump(exclude_defaults=True)),
            model="scripted",
            input_tokens=prompt_chars // 4,
            output_tokens=len(text) // 4 + 1,
        )

    def skip_replayed(self, reply: Reply) -> None:
        """Continue after the replies given before a resume."""
        self.position += 1
