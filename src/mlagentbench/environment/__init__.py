"""What an agent works in: actions, budget, recorded steps and model calls."""
