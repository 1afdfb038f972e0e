"""The name under which verifiers finds the taskset and its environment: `vf-eval mlagentbench-verifiers`."""

from mlagentbench.adapters.verifiers.env import BenchmarkEnv
from mlagentbench.adapters.verifiers.taskset import BenchmarkTaskset

__all__ = ["BenchmarkEnv", "BenchmarkTaskset"]
