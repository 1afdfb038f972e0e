"""recorded:RUN answers as the models of another run did, as long as it is asked the same."""

from pathlib import Path

from mlagentbench.errors import ModelFault, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import ModelCall, Prompt, Reply
from mlagentbench.system.journal import Journal


class Recorded(Model):
    """Finds each question in the record of the run, in order; what was paid for once costs nothing again."""

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        path = Path(argument, "model_calls.jsonl")
        if not path.is_file():
            raise UsageError(f"recorded:{argument}: there is no {path}")
        self._recorded_lines = Journal(path).lines()

    def reply(self, prompt: Prompt) -> Reply:
        """The recorded reply to this very question; questions that this run does not ask are passed over."""
        for line, _ in self._recorded_lines:
            call = ModelCall.model_validate_json(line)
            if call.reply and call.prompt == prompt:
                return call.reply.replace(dollars=0.0)
        raise ModelFault(f"the run {self.argument} has no reply to what is asked now")

    def skip_replayed(self, reply: Reply) -> None:
        """It goes on after what it said before a resume."""
        for line, _ in self._recorded_lines:
            call = ModelCall.model_validate_json(line)
            if call.reply and call.reply.text == reply.text:
                return
