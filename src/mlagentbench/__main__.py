"""python -m mlagentbench."""

from mlagentbench.cli import main

main()
