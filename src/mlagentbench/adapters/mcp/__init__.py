"""A task behind the Model Context Protocol, so that any client of it becomes a contestant."""
