"""Commands of the agent, run with limits and without secrets."""
