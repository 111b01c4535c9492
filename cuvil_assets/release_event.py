"""Tell Dagster what people did: releases and registrations are materialisations that no run makes."""

from __future__ import annotations

from collections.abc import Mapping

from cuvil_assets.builder import open_instance
from cuvil_assets.home import Home


def report(
    home: Home, asset: str, model_version: str, target: str, digest: str, metadata: Mapping[str, str | int]
) -> str:
    """Record that ``asset`` of a partition now has the SHA3-512 ``digest``.

    The partition is made where this home never built the model version: a release may be signed on another machine.
    Returns an empty text, or why Dagster does not show it: what people did is done all the same.
    """
    try:
        _record(home, asset, model_version, target, digest, metadata)
    except Exception as error:  # whatever Dagster's storage raises
        return f"is not shown in Dagster ({type(error).__name__}: {error}); it is complete all the same"
    return ""


def _record(
    home: Home, asset: str, model_version: str, target: str, digest: str, metadata: Mapping[str, str | int]
) -> None:
    import dagster as dg

    from cuvil_assets.assets import MODEL_VERSIONS

    with open_instance(home) as instance:
        instance.add_dynamic_partitions(str(MODEL_VERSIONS.name), [model_version])
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                asset_key=asset,
                partition=dg.MultiPartitionKey({"model_version": model_version, "target": target}),
                metadata={"digest": f"sha3-512:{digest}", **metadata},
                tags={"dagster/data_version": f"sha3-512:{digest}"},
            )
        )
