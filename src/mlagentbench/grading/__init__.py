"""Scores of what agents leave, computed where no agent can reach."""
