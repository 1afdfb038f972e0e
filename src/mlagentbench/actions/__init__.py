"""What an agent may do: one file an action, one function, named as its file."""
