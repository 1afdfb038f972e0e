"""Log folders of the original MLAgentBench (snap-stanford), made into run folders of ours."""
