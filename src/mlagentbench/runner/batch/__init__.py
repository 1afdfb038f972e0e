"""Many runs: a plan, its jobs, and the folder in which they become results."""
