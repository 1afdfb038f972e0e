"""What agents and models say to each other: prompts, reply forms, parsing."""
