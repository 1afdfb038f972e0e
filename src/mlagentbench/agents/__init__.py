"""One file an agent."""
