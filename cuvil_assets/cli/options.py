"""Arguments and options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
EngineFile = Annotated[Path, typer.Argument(metavar="ENGINE", help="The engine file.", show_default=False)]
TrustRoot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Whom to trust; this machine's development keys if absent.", show_default=False),
]
KeyFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="The key folder to sign with; this machine's if absent.", show_default=False),
]
StoredModel = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The ONNX model, if this machine's store lacks it.", show_default=False),
]
