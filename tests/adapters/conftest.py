"""Makes evaluations by Inspect faster."""

import importlib.metadata
from functools import cache

# Inspect reads the files of all installed packages at the start of every evaluation, which takes most of the
# time of a short one. It imports this function by name, so it is replaced before Inspect is imported.
importlib.metadata.packages_distributions = cache(importlib.metadata.packages_distributions)
