"""What the engine writes: the format, the digests, the chain, and that nothing else changes."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_case import PARENT, Engine, Maker, image, lines_of, picture

from compiler_kernels.targets.registry import TARGETS
from evidence.sessions.archive import Archive
from evidence.sessions.record import encode_record, leaf_of, read_record
from evidence.sessions.tensor import tensor_digest
from evidence.verifier.canonical import MalformedError

DOCS = Path(__file__).parents[2] / "docs"
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("triple", sorted(TARGETS))
def test_records_are_canonical_and_follow_each_other(maker: Maker, triple: str, tmp_path: Path) -> None:
    engine, folder = maker("digest", triple), tmp_path / "s"
    first = engine.infer(folder, image(tmp_path, 1))
    second = engine.infer(
        folder, image(tmp_path, 2), "--threads", "2", env={"TRACEPARENT": PARENT, "TRACESTATE": "a=b"}
    )
    records = Archive(folder).records()
    assert [item.index for item in records] == [0, 1] == [first["session"]["index"], second["session"]["index"]]
    assert records[0].previous == "00" * 64 and records[1].previous == records[0].leaf == first["session"]["record"]
    assert records[0].fields["trace"] is None and records[0].fields["run"]["threads"] == 1
    assert records[1].fields["trace"] == {"parent": PARENT, "state": "a=b"}
    described = json.loads(engine.run("--version", "--json").stdout)
    assert described["sessions"] == {"inputs": "digest", "required": True, "sync": True}
    for key, value in records[1].fields["engine"].items():
        assert value == described[key].removeprefix("sha3-512:")
    for number, item in enumerate(records, 1):
        x = picture(number)
        assert item.inputs[0].digest == tensor_digest("float32", x.shape, x.tobytes())
        assert (item.inputs[0].name, item.inputs[0].dtype, item.inputs[0].shape) == ("image", "float32", x.shape)
    y = np.load(tmp_path / "out" / "prob.npy")
    assert records[1].outputs[0].digest == tensor_digest("float32", y.shape, y.tobytes())


def test_a_salt_changes_every_digest_and_is_not_recorded(maker: Maker, tmp_path: Path) -> None:
    engine, folder, salt = maker(), tmp_path / "s", "5a" * 32
    engine.infer(folder, image(tmp_path, 1), "--subject", TOKEN, env={"CUVIL_SESSION_SALT": salt})
    engine.infer(folder, image(tmp_path, 1), "--subject", TOKEN)
    salted, bare = Archive(folder).records()
    assert salted.fields["salted"] is True and bare.fields["salted"] is False and salted.subject == TOKEN
    x = picture(1)
    assert salted.inputs[0].digest == tensor_digest("float32", x.shape, x.tobytes(), bytes.fromhex(salt))
    assert salted.outputs[0].digest != bare.outputs[0].digest
    assert salt.encode() not in (folder / "session.jsonl").read_bytes()


def test_bits_are_the_same_with_and_without_the_hook(maker: Maker, tmp_path: Path) -> None:
    for seed in range(5):
        outputs = []
        for inputs, more in (("", []), ("digest", ["--network-only"]), ("digest", ["--session", tmp_path / "s"])):
            out = tmp_path / f"out-{len(outputs)}"
            done = maker(inputs).run("--input", image(tmp_path, seed), "--output-dir", out, *more)
            assert done.returncode == 0, done.stderr
            outputs.append((out / "prob.npy").read_bytes())
        assert len(set(outputs)) == 1


def test_the_hook_is_not_in_an_engine_without_the_section(maker: Maker, tmp_path: Path) -> None:
    assert b"cuvil-session/1" in maker("digest").path.read_bytes()
    plain = maker("")
    assert b"cuvil-session/1" not in plain.path.read_bytes()
    assert json.loads(plain.run("--version", "--json").stdout)["sessions"] is None
    done = plain.run("--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", tmp_path / "s")
    assert done.returncode == 2 and "audit.sessions" in done.stderr and not (tmp_path / "s").exists()


def test_a_refused_inference_is_recorded_and_wrong_usage_is_not(maker: Maker, tmp_path: Path) -> None:
    engine, folder = maker(), tmp_path / "s"
    np.save(tmp_path / "bright.npy", np.full((1, 1, 8, 8), 2, np.float32))
    answer = engine.infer(folder, tmp_path / "bright.npy")
    assert answer["exit"] == 3 and answer["session"]["index"] == 0
    record = Archive(folder).records()[0]
    assert record.fields["status"] == "refused" and record.fields["failure"]["kind"] == "input_guard"
    assert record.outputs == () and len(record.inputs) == 1
    np.save(tmp_path / "small.npy", np.zeros((1, 1, 4, 4), np.float32))
    done = engine.run("--input", tmp_path / "small.npy", "--output-dir", tmp_path / "out", "--session", folder)
    assert done.returncode == 2 and len(lines_of(folder)) == 1


def test_without_record_no_output_appears(maker: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    for content, words in ((b"no record\n", "no record"), (b"{}\n", "no record"), (b"x" * 200_000, "longer than any")):
        (folder / "session.jsonl").write_bytes(content)
        done = maker().run("--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", folder)
        assert done.returncode == 2 and words in done.stderr and not (tmp_path / "out").exists()
        assert (folder / "session.jsonl").read_bytes() == content
    (folder / "session.jsonl").unlink()
    (folder / "session.jsonl").symlink_to("/dev/null")
    done = maker().run("--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", folder)
    assert done.returncode == 2 and not (tmp_path / "out").exists()


def test_a_full_disk_leaves_the_archive_as_it_was(maker: Maker, tmp_path: Path) -> None:
    """A file size limit stands for it: the record does not fit behind those that are there."""
    engine, folder = maker(), tmp_path / "s"
    engine.infer(folder, image(tmp_path, 1))
    before = (folder / "session.jsonl").read_bytes()
    words = [*engine.prefix, str(engine.path), "--input", str(image(tmp_path, 2)), "--output-dir", str(tmp_path / "o2")]
    limit = len(before) + 100
    script = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run(
        ["python3", "-c", script, *words, "--session", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "cannot write the session archive" in done.stderr
    assert (folder / "session.jsonl").read_bytes() == before and not (tmp_path / "o2").exists()


def test_a_torn_record_is_repaired_and_said(maker: Maker, tmp_path: Path) -> None:
    engine, folder = maker(), tmp_path / "s"
    engine.infer(folder, image(tmp_path, 1))
    engine.infer(folder, image(tmp_path, 2))
    whole = (folder / "session.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    for cut in (first + 1, len(whole) - 1, first + 700):
        (folder / "session.jsonl").write_bytes(whole[:cut])
        engine.infer(folder, image(tmp_path, 3))
        kept, repair, new = Archive(folder).records()
        assert repair.kind == "repair" and repair.fields["dropped_bytes"] == cut - first
        assert repair.previous == kept.leaf and new.previous == repair.leaf and new.index == 2


def test_two_engines_at_once_write_one_chain(maker: Maker, tmp_path: Path) -> None:
    engine, folder, file = maker(), tmp_path / "s", image(tmp_path, 1)
    words = [*engine.prefix, str(engine.path), "--input", str(file), "--session", str(folder), "--output-dir"]
    running = [subprocess.Popen([*words, str(tmp_path / f"o{n}")]) for n in range(12)]
    assert [item.wait() for item in running] == [0] * 12
    records = Archive(folder).records()
    assert [item.index for item in records] == list(range(12))
    assert all(b.previous == a.leaf for a, b in pairwise(records))


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--traceparent", PARENT.upper()], {}, "no traceparent"),
        (["--traceparent", "01" + PARENT[2:]], {}, "no traceparent"),
        (["--traceparent", "00-" + "0" * 32 + PARENT[35:]], {}, "no traceparent"),
        (["--traceparent", PARENT + "-x"], {}, "no traceparent"),
        ([], {"TRACEPARENT": "hello"}, "no traceparent"),
        (["--tracestate", "a=b"], {}, "without a traceparent"),
        (["--traceparent", PARENT, "--tracestate", "A=b"], {}, "no tracestate"),
        (["--traceparent", PARENT, "--tracestate", "a=b,"], {}, "no tracestate"),
        (["--traceparent", PARENT, "--tracestate", "a=é"], {}, "no tracestate"),
        (["--subject", "Jane Doe"], {}, "token of 32"),
        (["--subject", TOKEN], {"CUVIL_SESSION_SALT": "00"}, "CUVIL_SESSION_SALT"),
        (["--session", "again"], {}, "given twice"),
    ],
)
def test_wrong_options(maker: Maker, tmp_path: Path, words: list[str], env: dict[str, str], said: str) -> None:
    common = ["--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", tmp_path / "s"]
    done = maker().run(*common, *words, env=env)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists() and not (tmp_path / "s").exists()


def test_an_unrecorded_inference_is_refused(maker: Maker, tmp_path: Path) -> None:
    done = maker().run("--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--json")
    assert done.returncode == 3 and json.loads(done.stdout)["check"] == "session" and not (tmp_path / "out").exists()
    assert maker().run("--bench", "1").returncode == 0


def test_options_that_need_a_session(maker: Maker, tmp_path: Path) -> None:
    done = maker().run("--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--kept")
    assert done.returncode == 2 and "--kept needs --session" in done.stderr
    done = maker().run("--bench", "1", "--session", tmp_path / "s")
    assert done.returncode == 2 and "--bench" in done.stderr


_DIGEST_MAIN = """
#include "cuvil_runtime.h"
#include <unistd.h>
static unsigned char data[1 << 18] __attribute__((aligned(64)));
_Noreturn void cuvil_fail(int code, const char *check, const char *format, ...) {
    (void)check, (void)format, _exit(code);
}
static size_t fill(void *bytes, size_t size) { /* a pipe gives what is there */
    size_t got = 0;
    ssize_t part;
    while (got < size && (part = read(0, (char *)bytes + got, size - got)) > 0) got += (size_t)part;
    return got;
}
int main(void) {
    uint64_t head[2];
    char hex[130];
    while (fill(head, sizeof head) == sizeof head) {
        if (fill(data, head[0]) != head[0]) return 1;
        cuvil_tensor tensor = {"x", (int)head[1], 1, {(long)head[0]}, (long)head[0], 0, 0, 0, 0, 0, 0, 0};
        cuvil_tensor_digest(&tensor, data, NULL, hex);
        hex[128] = '\\n';
        if (write(1, hex, 129) != 129) return 1;
    }
    return 0;
}
"""


@pytest.fixture(scope="session", params=sorted(TARGETS))
def digests(request: pytest.FixtureRequest, maker: Maker, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The runtime's digest as a filter, for every target."""
    from compiler_kernels.toolchain.sources import runtime_sources
    from compiler_kernels.toolchain.zig import ZigDriver

    prefix = maker("digest", request.param).prefix
    wanted = ("cuvil_digest.c", "cuvil_sha3.c", "cuvil_types.c")
    sources = {n: d for n, d in runtime_sources().items() if n in wanted or n.endswith(".h")}
    decimal = re.search(r"int cuvil_decimal\(.*?\n}\n", runtime_sources()["cuvil_text.c"].decode(), re.DOTALL)
    assert decimal
    text = _DIGEST_MAIN.replace("int main", f"#include <string.h>\n{decimal[0]}int main")
    data = ZigDriver().build({**sources, "main.c": text.encode()}, TARGETS[request.param]).data
    path = tmp_path_factory.mktemp("digest") / "digest"
    path.write_bytes(data)
    path.chmod(0o755)
    return Engine(path, prefix)


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(
        st.integers(0, 1 << 17) | st.sampled_from([8191, 8192, 8193, 32768, 65536, 65537]), min_size=1, max_size=6
    ),
    seed=st.integers(0, 99),
)
def test_the_runtimes_digest_is_that_of_hashlib(digests: Engine, sizes: list[int], seed: int) -> None:
    """One piece, several side by side in a vector, and the rest behind them."""
    rng = np.random.default_rng(seed)
    pieces = [rng.integers(0, 256, size, np.uint8).tobytes() for size in sizes]
    given = b"".join(np.array([len(p), 2], "<u8").tobytes() + p for p in pieces)
    done = subprocess.run([*digests.prefix, digests.path], input=given, capture_output=True, check=True)
    assert done.stdout.decode().split() == [tensor_digest("uint8", [len(p)], p) for p in pieces]


def test_reading_is_strict() -> None:
    line = encode_record(3, "erasure", "ab" * 64, {"subject": TOKEN})
    assert read_record(line).index == 3 and read_record(line).leaf == leaf_of(line)
    for wrong in (
        line.replace(b'"index":3', b'"index": 3'),
        line.replace(b'"index":3', b'"index":-1'),
        line.replace(b'"index":3', b'"index":true'),
        line.replace(b'"kind":"erasure"', b'"kind":"other"'),
        line.replace(b"cuvil-session/1", b"cuvil-session/2"),
        line.replace(b'"subject"', b'"subjects"'),
        line[:-1],
        b"[]",
    ):
        with pytest.raises(MalformedError):
            read_record(wrong)


def test_the_vector_in_the_document() -> None:
    """docs/sessions.md carries two records; what it says of them holds, by the few lines of Python it gives."""
    text = (DOCS / "sessions.md").read_text(encoding="utf-8")
    lines = [line.encode() for line in re.findall(r"^(\{\"decisions\".*\})$", text, re.MULTILINE)]
    assert len(lines) == 2
    first, second = map(read_record, lines)
    assert first.index == 0 and second.index == 1 and second.previous == first.leaf
    assert first.leaf in text and second.leaf in text
    x = np.arange(64, dtype="<f4").reshape(1, 1, 8, 8) / 64
    assert first.inputs[0].digest == tensor_digest("float32", x.shape, x.tobytes())
    assert second.inputs[0].digest == tensor_digest("float32", x.shape, x.tobytes(), bytes(range(32)))
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code
    names: dict[str, object] = {"line": lines[0], "previous_line": None, "x": x}
    exec(code[1], names)
    assert names["leaf"] == first.leaf and names["digest"] == first.inputs[0].digest
