"""Tell Dagster that something was released: the asset ``release_proof`` is materialised by people, not by a run."""

from __future__ import annotations

from pathlib import Path

from cuvil_assets.builder import open_instance
from cuvil_assets.chain import RELEASE_PROOF
from cuvil_assets.home import Home


def report_release(home: Home, model_version: str, target: str, digest: str, folder: Path, files: int) -> None:
    """Record the release with the SHA3-512 ``digest`` as a materialisation of its partition.

    The partition is made where this home never built the model version: a release may be signed on another machine.
    """
    import dagster as dg

    from cuvil_assets.assets import MODEL_VERSIONS

    with open_instance(home) as instance:
        instance.add_dynamic_partitions(str(MODEL_VERSIONS.name), [model_version])
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                asset_key=RELEASE_PROOF,
                partition=dg.MultiPartitionKey({"model_version": model_version, "target": target}),
                metadata={"digest": f"sha3-512:{digest}", "folder": folder.name, "files": files},
                tags={"dagster/data_version": f"sha3-512:{digest}"},
            )
        )
