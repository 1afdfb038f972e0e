"""scripted:FILE says what a file tells it to, reply by reply: for tests and demonstrations."""

from pathlib import Path

from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import Prompt, Reply

REPLY_SEPARATOR = "\n=====\n"


class Scripted(Model):
    """Replies one after another; a line of five equals signs stands between two."""

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        try:
            text = Path(argument).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"scripted:{argument} cannot be read: {error}") from error
        self.replies = text.removesuffix("\n").split(REPLY_SEPARATOR)
        self.position = 0

    def reply(self, prompt: Prompt) -> Reply:
        """The next one; its stop sequences hold for it as for any model."""
        if self.position == len(self.replies):
            raise ModelFault(f"the script {self.argument} has only {self.position} replies")
        text = self.replies[self.position]
        self.position += 1
        for stop in prompt.stop:
            text = text.partition(stop)[0]
        size = sum(len(message.text) for message in prompt.messages)
        return Reply(text=text, model="scripted", input_tokens=size // 4, output_tokens=len(text) // 4 + 1)

    def skip_replayed(self, reply: Reply) -> None:
        """It goes on after what it said before a resume."""
        self.position += 1
