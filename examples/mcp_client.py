"""An agent that connects over the Model Context Protocol: pip install 'mlagentbench[mcp]'."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

from mlagentbench import UsageError, load_task


async def main(*args: str) -> None:
    """Start the server, list its tools, run the starter, and submit."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "mlagentbench", "mcp", *args], env=dict(os.environ)
    )
    async with Client(server) as client:
        print(client.instructions)
        print([tool.name for tool in (await client.list_tools()).tools])
        for name, arguments in (
            ("execute_script", {"script_name": "train.py"}),
            ("final_answer", {"final_answer": "the starter"}),
        ):
            result = await client.call_tool(name, arguments)
            print(*(part.text for part in result.content if part.type == "text"), sep="\n")


if __name__ == "__main__":
    args = sys.argv[1:] or ["house-price"]
    try:
        load_task(args[0])
    except UsageError as error:
        sys.exit(str(error))
    asyncio.run(main(*args))
