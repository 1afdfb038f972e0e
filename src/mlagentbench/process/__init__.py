"""How a run went: error modes by rules that can be explained, and a model's judgement beside them."""
