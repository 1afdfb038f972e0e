"""Action: Write File."""

from mlagentbench.actions.base import World


def write_file(world: World, file_name: str, content: str) -> str:
    """Write a whole file; an existing file is overwritten.

    Args:
        file_name: a valid file name with relative path to the workspace, if needed
        content: the content to be written
    """
    world.workspace.write(file_name, content.encode("utf-8", "surrogatepass"))
    return f"File {file_name} written."
