"""recorded:RUN replays the model replies of an earlier run, as long as the prompts are identical."""

from pathlib import Path

from mlagentbench.errors import ModelFault, PromptRejected, UsageError
from mlagentbench.models.base import Model
from mlagentbench.records import ModelCall, Prompt, Reply
from mlagentbench.system.journal import Journal


class Recorded(Model):
    """Searches the recorded calls of a run in order. Replayed replies cost nothing."""

    replies_at_once = True

    def __init__(self, argument: str = "") -> None:
        super().__init__(argument)
        path = Path(argument, "model_calls.jsonl")
        if not path.is_file():
            raise UsageError(f"recorded:{argument}: no such file: {path}")
        self._recorded_lines = Journal(path).lines()

    def reply(self, prompt: Prompt) -> Reply:
        """Return the recorded reply to this prompt; recorded calls with other prompts are skipped."""
        for line, _ in self._recorded_lines:
            call = ModelCall.model_validate_json(line)
            if call.prompt != prompt:
                continue
            if call.rejected:
                raise PromptRejected(call.rejected)
            if call.reply:
                return call.reply.replace(dollars=0.0)
        raise ModelFault(f"The run {self.argument} has no recorded reply to this prompt.")

    def skip_replayed(self, reply: Reply) -> None:
        """Continue after the replies given before a resume."""
        for line, _ in self._recorded_lines:
            call = ModelCall.model_validate_json(line)
            if call.reply and call.reply.text == reply.text:
                return
