"""Inspect's own checks of what a sandbox must do, on ours."""

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from mlagentbench.adapters.inspect.sandbox import InspectBubblewrapSandbox

pytestmark = pytest.mark.anyio

UNFIT = {"test_exec_as_user": "there is no root inside, and one user only"}

for name in ("test_exec_timeout_kills_process", "test_exec_timeout_kills_child_processes"):  # they sleep
    globals()[name] = pytest.mark.slow(getattr(self_check, name))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SandboxEnvironment]:
    made = await InspectBubblewrapSandbox.sample_init("check", None, {})
    yield made["default"]
    await InspectBubblewrapSandbox.sample_cleanup("check", None, made, False)


@pytest.fixture
def sandbox_env(request: pytest.FixtureRequest, shared: SandboxEnvironment) -> SandboxEnvironment:
    if why := UNFIT.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))
    return shared
