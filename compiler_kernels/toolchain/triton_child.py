"""Run by toolchain/triton.py in a process of its own: Triton functions to PTX for a named chip, without a GPU.

    python triton_child.py FILE CHIP PTX_VERSION PACKAGES     # writes NAME.ptx and kernels.json beside FILE

FILE is kernels_triton.py, PACKAGES the folder that holds Triton, which may be the user's.

The stages are those of Triton's NVIDIA backend up to PTX. Its own ptxas, of another version than nvcc's, is not called.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path


def main(file: str, chip: str, ptx_version: str, packages: str) -> None:
    sys.path.append(packages)
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    spec = importlib.util.spec_from_file_location("kernels_triton", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = GPUTarget("cuda", int(chip), 32)
    backend = make_backend(target)
    facts = {}
    for name, (pointers, warps, stages) in module.KERNELS.items():
        options = backend.parse_options(
            {
                "num_warps": warps,
                "num_stages": stages,
                "enable_fp_fusion": False,
                "enable_reflect_ftz": False,
                "ptx_version": int(ptx_version),
            }
        )
        function = getattr(module, name)
        names = function.arg_names
        assert len(names) == pointers, name
        source = ASTSource(
            function,
            dict.fromkeys(names, "*fp32"),
            {},
            {(place,): [["tt.divisibility", 16]] for place in range(pointers)},
        )
        steps: dict[str, object] = {}
        backend.add_stages(steps, options, source.language)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        made = source.make_ir(
            target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        metadata = {"target": target, **options.__dict__}
        for step in ("ttir", "ttgir", "llir", "ptx"):
            made = steps[step](made, metadata)  # type: ignore[operator]
        Path(file).with_name(f"{name}.ptx").write_text(made, "utf-8")
        scratch = metadata["global_scratch_size"] + metadata["profile_scratch_size"]
        facts[name] = {"shared": metadata["shared"], "warps": metadata["num_warps"], "scratch": scratch}
    Path(file).with_name("kernels.json").write_text(json.dumps(facts), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
