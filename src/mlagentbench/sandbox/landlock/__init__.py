"""A sandbox without namespaces: Landlock, seccomp, and a supervisor for what these leave open."""
