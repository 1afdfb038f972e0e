"""Prepares a task's data: public files for the agent, and private answers for the grader."""
