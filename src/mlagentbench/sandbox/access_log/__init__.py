"""The access log: which files and sockets the agent's commands tried to open, per step."""
