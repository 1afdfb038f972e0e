"""What an agent can do: one file per action, with one function named as the file."""
