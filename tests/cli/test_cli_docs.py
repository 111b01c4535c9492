"""docs/cli.md and ``--help`` say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

import cuvil_assets
from compiler_kernels import errors
from cuvil_assets.cli.app import app
from cuvil_assets.cli.outcome import INTERNAL, INTERRUPTED

TEXT = (Path(cuvil_assets.__file__).parents[1] / "docs" / "cli.md").read_text()
README = (Path(cuvil_assets.__file__).parents[1] / "README.md").read_text()


def commands() -> dict[str, set[str]]:
    """Every command with its options, as typer knows them."""
    found: dict[str, set[str]] = {}

    def walk(command: object, words: list[str]) -> None:
        for name, child in getattr(command, "commands", {}).items():
            if hasattr(child, "commands"):
                walk(child, [*words, name])
            else:
                options = {o for p in child.params for o in p.opts if o.startswith("--")}
                found[" ".join([*words, name])] = options - {"--help"}

    walk(get_command(app), [])
    return found


def sections() -> dict[str, str]:
    parts = re.split(r"^### `cuvil ([^`]*)`\n", TEXT.split("## Exit codes")[0], flags=re.MULTILINE)
    words = r"( [A-Z][A-Z.]*)+$"
    return {re.sub(words, "", title): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_command_has_a_section_and_no_section_is_without_command() -> None:
    assert set(commands()) | {"--version"} == set(sections())


@pytest.mark.parametrize("name", sorted(commands()))
def test_options_in_the_section_are_those_of_the_command(name: str) -> None:
    body = re.sub(r"`cuvil[^`]*`", "", sections()[name])
    written = set(re.findall(r"`(--[a-z-]+)", body))
    # --trust-root is also mentioned in prose; a mention of another command's option would fail here.
    assert written == commands()[name]


def test_exit_codes_are_those_of_the_errors() -> None:
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, flags=re.MULTILINE)}
    classes = {c.exit_code for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.CuvilError)}
    assert table == classes | {0, INTERNAL, INTERRUPTED}


def test_help_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        get_command(app)(["build", "--help"])
    out = capsys.readouterr().out
    assert "--equivalence-inputs" in out
    assert "╭" not in out


def test_readme_shows_only_commands_and_options_that_exist() -> None:
    known = commands()
    for words in re.findall(r"^cuvil (.*)$", README, flags=re.MULTILINE):
        name = words.split()[0]
        assert name in known, words
        assert set(re.findall(r"--[a-z-]+", words)) <= known[name], words
    assert isinstance(app, typer.Typer)
