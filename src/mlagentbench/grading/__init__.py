"""Grades submissions in processes that agents cannot reach."""
