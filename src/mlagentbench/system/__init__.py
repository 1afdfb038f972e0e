"""Operating-system primitives: files, locks, processes, hardware. Knows nothing of tasks or agents."""
