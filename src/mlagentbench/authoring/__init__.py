"""For authors of tasks and agents: skeletons, and the contract that every task must keep."""
