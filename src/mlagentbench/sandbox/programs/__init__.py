"""Programs of the harness that run inside a sandbox, one file each.

Each file is mounted alone into the sandbox, where agents can read and change the running program. So it
imports nothing of this project, contains nothing secret, and starts fast. Each has its own message format:
agents share the process of some of them, and a common module would have to be mounted and imported as well.
"""
