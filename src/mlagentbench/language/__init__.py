"""The text exchanged with models: prompts, reply formats, parsing."""
