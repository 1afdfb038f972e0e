"""Harbor: tasks as Harbor task folders, and an environment for them that needs no containers."""
