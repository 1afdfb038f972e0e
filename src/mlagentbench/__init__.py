"""Measure AI research agents on machine-learning tasks."""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from mlagentbench.agents.base import Agent as Agent
    from mlagentbench.api import load_task as load_task
    from mlagentbench.api import read_run as read_run
    from mlagentbench.api import resume as resume
    from mlagentbench.api import resume_session as resume_session
    from mlagentbench.api import run as run
    from mlagentbench.api import session as session
    from mlagentbench.environment import Environment as Environment
    from mlagentbench.errors import BenchError as BenchError
    from mlagentbench.errors import Fault as Fault
    from mlagentbench.errors import RunOver as RunOver
    from mlagentbench.errors import UsageError as UsageError
    from mlagentbench.records import Call as Call
    from mlagentbench.records import Limits as Limits
    from mlagentbench.records import Result as Result
    from mlagentbench.records import RunSpec as RunSpec
    from mlagentbench.records import Step as Step
    from mlagentbench.runner.folder import RunFolder as RunFolder
    from mlagentbench.runner.session import Session as Session
    from mlagentbench.task import Task as Task
else:  # imported on first use, because the command line starts without most of it
    _NAMES_BY_MODULE = {
        "agents.base": ["Agent"],
        "api": ["load_task", "read_run", "resume", "resume_session", "run", "session"],
        "environment.environment": ["Environment"],
        "errors": ["BenchError", "Fault", "RunOver", "UsageError"],
        "records": ["Call", "Limits", "Result", "RunSpec", "Step"],
        "runner.folder": ["RunFolder"],
        "runner.session": ["Session"],
        "task": ["Task"],
    }
    _MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
    __all__ = sorted(_MODULE_BY_NAME)

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _MODULE_BY_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
