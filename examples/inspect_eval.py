"""Evaluates a model on house-price with Inspect: python examples/inspect_eval.py MODEL"""

import sys

from inspect_ai import eval
from inspect_ai._util.error import PrerequisiteError

from mlagentbench.adapters.inspect.tasks import suite_tasks


def main() -> None:
    """Run three epochs, each with its own seed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    house_price = suite_tasks["house-price"](agent="react", steps=30)
    try:
        (log,) = eval(house_price, model=sys.argv[1], epochs=3, display="plain")
    except (PrerequisiteError, ValueError) as error:  # raised for an unknown model
        sys.exit(str(error))
    for sample in log.samples or []:
        verdict = (
            sample.scores["verdict"].explanation if sample.scores else sample.error and sample.error.message
        )
        print(f"{sample.metadata['run_folder']}: {verdict}")


if __name__ == "__main__":
    main()
