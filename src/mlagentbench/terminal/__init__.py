"""Output for people: live displays, tables, traces and verdicts."""
