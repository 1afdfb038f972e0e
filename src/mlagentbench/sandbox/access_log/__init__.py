"""The access ledger: which files and sockets the agent's commands tried, step by step."""
