"""Single-bit faults, injected after the start into one of lockstep's two engines: none leads to a wrong result."""

from collections.abc import Callable
from pathlib import Path

import pytest
import safety_case as case
import small_models

from compiler_kernels.targets.registry import runner

pytestmark = pytest.mark.skipif(runner(case.X86) != (), reason="no x86-64 engine runs natively here")

SILENT = {"masked", "weights_bits"}  # what a harmless fault may leave
MODELS: dict[str, Callable[[], bytes]] = {
    "residual": small_models.residual,
    "chain": lambda: small_models.long_chain(8),
    "attention": small_models.moves,
}
OTHERS: dict[str, Callable[[], bytes]] = {
    "blocks": small_models.blocks,
    "lines": small_models.lines,
    "recurrent": small_models.recurrent,
    "classifier": small_models.classifier,
}
Hosts = Callable[[str], case.FaultHost]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """``hosts(name)``: the injecting program of a model, built once."""
    folder = tmp_path_factory.mktemp("hosts")
    built: dict[str, case.FaultHost] = {}

    def get(name: str) -> case.FaultHost:
        if name not in built:
            built[name] = case.fault_host({**MODELS, **OTHERS}[name](), folder / name)
        return built[name]

    return get


def isas() -> list[str]:
    flags = Path("/proc/cpuinfo").read_text()
    return ["avx512", "avx2"] if "avx512dq" in flags else ["avx2"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_every_fault_in_the_weights_is_reported(hosts: Hosts, name: str, side: str) -> None:
    for isa in isas():
        found = hosts(name).inject("sample", side, isa, count=1500)
        assert found.get("value", 0) + found.get("output", 0) + found["weights"] == 1500, found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_every_fault_in_a_live_value_is_reported(hosts: Hosts, name: str, side: str) -> None:
    for isa in isas():
        assert hosts(name).inject("live", side, isa, count=2000).get("value") == 2000


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("mode", ["arena", "within"])
def test_no_fault_in_memory_is_missed(hosts: Hosts, name: str, side: str, mode: str) -> None:
    """Anywhere in the arena, dead parts included, and in the middle of steps: outputs, scratch and the input too."""
    found = hosts(name).inject(mode, side, isas()[0], count=2000)
    assert "missed" not in found and found["value"] > 0 and found["masked"] > 0, found
    assert mode == "arena" or found["input"] > 0


@pytest.mark.parametrize("mode", ["vector", "general", "stack"])
def test_no_fault_in_a_register_or_on_the_stack_is_missed(hosts: Hosts, mode: str) -> None:
    found = hosts("chain").inject(mode, "a", isas()[0], first=400, count=60)
    assert "missed" not in found, found
    assert mode == "stack" or found.get("value", 0) + found.get("output", 0) > 0, found


@pytest.mark.parametrize("name", MODELS)
def test_leftovers_in_memory_raise_no_alarm(hosts: Hosts, name: str) -> None:
    """Every byte that is compared is written in every inference, by every kernel."""
    for isa in isas():
        assert set(hosts(name).inject("poison", "a", isa, count=100)) == SILENT


@pytest.mark.parametrize("mode", ["sample", "live"])
def test_without_the_comparison_wrong_results_come_out(mode: str, tmp_path: Path) -> None:
    """Control: the same faults, with a lockstep that never reports."""

    def silence(sources: dict[str, bytes]) -> None:
        verdict = b"found ? sentence : NULL"
        assert sources["cuvil_lockstep.c"].count(verdict) == 1
        sources["cuvil_lockstep.c"] = sources["cuvil_lockstep.c"].replace(verdict, b"NULL")

    host = case.fault_host(small_models.long_chain(8), tmp_path / "host", silence)
    found = host.inject(mode, "a", isas()[0], count=500)
    assert set(found) <= {"missed", *SILENT} and found["missed"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
@pytest.mark.parametrize("side", ["a", "b"])
def test_every_single_bit_of_the_weights(hosts: Hosts, name: str, side: str) -> None:
    bits = hosts(name).inject("sample", side, isas()[0], count=1)["weights_bits"]
    found = hosts(name).inject("weights", side, isas()[0], count=bits)
    assert set(found) <= {"value", "output", "weights", "weights_bits"}, found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
@pytest.mark.parametrize("side", ["a", "b"])
def test_many_faults_in_memory(hosts: Hosts, name: str, side: str) -> None:
    for isa in isas():
        for mode in ("live", "arena", "within"):
            found = hosts(name).inject(mode, side, isa, seed=7, count=20000)
            assert "missed" not in found, (mode, found)
            assert mode != "live" or found["value"] == 20000, found
        assert set(hosts(name).inject("poison", side, isa, seed=7, count=1000)) == SILENT


@pytest.mark.slow
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("mode", ["vector", "general", "stack"])
@pytest.mark.parametrize("name", ["residual", "chain"])
def test_many_faults_in_registers(hosts: Hosts, name: str, mode: str, side: str) -> None:
    found = hosts(name).inject(mode, side, isas()[0], seed=7, first=2000, count=300)
    assert "missed" not in found, found
