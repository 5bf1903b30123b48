"""`dragoman completion`: scripts that complete commands, options and names in a shell.

The parser of the commands writes them. A script has the commands and their options; for names it
runs `dragoman __complete`, which answers with `completers`.
"""

from __future__ import annotations

from typing import Literal

from cyclopts import App

app = App(name="completion", help="Print a script that completes commands in a shell.")


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands, options, and names of topics, groups and contexts.

    Write it to a file that the shell reads; making it takes seconds.

    Parameters
    ----------
    shell
        Shell to complete in.

    Examples
    --------
    dragoman completion bash > dragoman.bash
    dragoman completion zsh > _cyclopts_dragoman
    dragoman completion fish > dragoman.fish
    """
    from dragoman.cli.main import build

    print(build().generate_completion(shell=shell))
