"""A task as a Model Context Protocol server, so that any MCP client can act as the agent."""
