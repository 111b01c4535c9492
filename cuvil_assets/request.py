"""A build request: everything a build depends on, as one small file that names its inputs by digest.

The request's digest is the build's id. The request made last for a partition is kept under
$CUVIL_HOME/requests/<model version>/<target>.json, so that an asset can be materialised again from the user interface.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, sha3_512_hex
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home

FORMAT = "cuvil-request/1"


@dataclass(frozen=True)
class BuildRequest:
    """``sources`` maps a role (``model.onnx``, ``policy.yaml``) to the SHA3-512 of a file in the content store.

    ``config`` holds the configuration values the stages choose from; ``epoch`` is SOURCE_DATE_EPOCH or ``None``. No
    path of the machine is part of a request: file names are base names.
    """

    model_version: str
    target: str
    engine_name: str
    sources: Mapping[str, str]
    config: Mapping[str, Json]
    epoch: str | None

    def to_json(self) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "model_version": self.model_version,
            "target": self.target,
            "engine_name": self.engine_name,
            "sources": dict(self.sources),
            "config": dict(self.config),
            "source_date_epoch": self.epoch,
        }

    @property
    def build_id(self) -> str:
        """The first 32 hex digits of the SHA3-512 of the request."""
        return sha3_512_hex(json.dumps(self.to_json(), sort_keys=True).encode())[:32]

    @property
    def partition(self) -> str:
        """Key of the partition, as Dagster writes it: dimensions in alphabetical order."""
        return f"{self.model_version}|{self.target}"


def save_request(home: Home, request: BuildRequest) -> None:
    """Keep ``request`` under its build id and as the latest of its partition."""
    data = (json.dumps(request.to_json(), indent=1, sort_keys=True) + "\n").encode()
    for path in (home.builds / request.build_id / "request.json", _latest(home, request.partition)):
        try:
            home.ensure(path.parent)
            write_atomic(path, data)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); free space or set CUVIL_HOME elsewhere"
            ) from error


def load_request(home: Home, partition: str, build_id: str | None) -> BuildRequest:
    """The request of ``build_id``, or without one the latest of ``partition``; ``UsageError`` when there is none."""
    path = home.builds / build_id / "request.json" if build_id else _latest(home, partition)
    try:
        document = json.loads(path.read_bytes())
        request = _decode(document)
    except FileNotFoundError:
        raise UsageError(
            f"nothing was built yet for {partition.replace('|', ' on ')}: run `cuvil build` for this model and target"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: the build request cannot be read ({error.strerror}); build again") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: the build request is damaged; run `cuvil build` again") from None
    if request.partition != partition:
        raise UsageError(f"the build {build_id} belongs to {request.partition}, not to {partition}")
    return request


def _latest(home: Home, partition: str) -> Path:
    model_version, _, target = partition.rpartition("|")
    for part in (model_version, target):
        if not part or part.startswith(".") or os.sep in part:
            raise UsageError(f"{partition!r} is not a partition of a model version and a target")
    return home.requests / model_version / f"{target}.json"


def _decode(document: dict[str, Json]) -> BuildRequest:
    sources, config, epoch = document["sources"], document["config"], document["source_date_epoch"]
    if document["format"] != FORMAT or not isinstance(sources, dict) or not isinstance(config, dict):
        raise ValueError("not a build request")
    return BuildRequest(
        str(document["model_version"]),
        str(document["target"]),
        str(document["engine_name"]),
        {role: str(digest) for role, digest in sources.items()},
        config,
        None if epoch is None else str(epoch),
    )
