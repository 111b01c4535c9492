"""How a command ends: exit code, one sentence on standard error, or one JSON object on standard output."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

import typer
from typer._click.exceptions import ClickException  # typer is pinned exactly; its own class, not that of click
from typer.main import get_command

from compiler_kernels.errors import CuvilError
from compiler_kernels.stage import Json
from evidence.verifier.errors import VerifierError

INTERRUPTED = 130
INTERNAL = 70
"""EX_SOFTWARE of sysexits.h: a defect of Cuvil."""


def run_command(app: typer.Typer, arguments: list[str]) -> int:
    """Run ``app`` on ``arguments`` and turn every error into its exit code and sentence."""
    as_json = "--json" in arguments
    try:
        code = get_command(app)(args=arguments, prog_name="cuvil", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (CuvilError, VerifierError) as error:
        return report(error.details(), error.exit_code, as_json)
    except ClickException as error:
        sentence = " ".join(error.format_message().split()) or "a command is needed"
        remedy = "" if "--help" in sentence else "; see `cuvil --help`"
        return report({"error": "UsageError", "message": sentence.rstrip(".") + remedy}, 2, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return report({"error": "Interrupted", "message": "interrupted, nothing was delivered"}, INTERRUPTED, as_json)
    except BrokenPipeError:
        # Whoever read standard output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return report(_internal(error), INTERNAL, as_json)


def report(details: dict[str, str], code: int, as_json: bool) -> int:
    """Print ``details`` and return ``code``."""
    if as_json:
        print_json({**details, "exit_code": code})
    else:
        check = f" [{details['check']}]" if "check" in details else ""
        print(f"cuvil: {' '.join(details['message'].split())}{check}", file=sys.stderr)
    return code


def print_json(value: dict[str, Json]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)


def note(text: str) -> None:
    """A remark for people, on standard error."""
    print(f"cuvil: note: {text}", file=sys.stderr, flush=True)


def _internal(error: Exception) -> dict[str, str]:
    text = "".join(traceback.format_exception(error))
    first = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    try:
        from cuvil_assets.home import current_home

        home = current_home()
        descriptor, name = tempfile.mkstemp(prefix="internal-error-", suffix=".txt", dir=home.ensure(home.log))
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        where = f"the traceback is in {name}"
    except (OSError, CuvilError, VerifierError):
        where = "the traceback could not be written under CUVIL_HOME"
    return {"error": "InternalError", "message": f"internal error ({first}); this is a defect of Cuvil; {where}"}
