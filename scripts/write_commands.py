"""Writes `docs/commands.md`, the reference of all commands, from their own help.

python -m scripts.write_commands
"""

from __future__ import annotations

from pathlib import Path

import click

from edgespec.cli.main import COMMANDS, cli

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
_WIDTH = 110


def reference() -> str:
    """The page: for each command what `--help` says."""
    parts = ["# Commands\n\nWhat `edgespec COMMAND --help` says. Written by `python -m scripts.write_commands`.\n"]
    top = click.Context(cli, info_name="edgespec", **cli.context_settings)
    for name in sorted(COMMANDS):
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top, terminal_width=_WIDTH, max_content_width=_WIDTH)
        parts.append(f"## {name}\n\n```\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
