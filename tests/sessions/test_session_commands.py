"""The commands: run --session, session, erase, replay."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from session_case import PARENT, Maker, image, lines_of, picture

from compiler_kernels.targets.registry import TARGETS
from evidence.keys import init_keys
from evidence.sessions.archive import Archive

Cli = Callable[..., tuple[int, str, str]]
PLANTED = "Jane Planted Doe 19700101"


@pytest.fixture
def kept(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> Path:
    """An archive of three inferences on two subjects whose inputs are kept, sealed."""
    folder = tmp_path / "s"
    for seed, subject in ((1, PLANTED), (2, "other"), (3, PLANTED)):
        words = ["--input", image(tmp_path, seed), "--output-dir", tmp_path / "out", "--session", folder]
        code, out, err = cli("run", maker("keep").path, *words, "--subject", subject)
        assert (code, out, err) == (0, "", "")
    init_keys(home)
    assert cli("session", "seal", folder)[0] == 0
    return folder


def test_list_show_verify_and_export(kept: Path, cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("session", "list", kept)
    assert code == 0 and out.count("computed") == 3 and out.endswith("3 records\n")
    tokens = [item.subject for item in Archive(kept).records()]
    assert tokens[0] == tokens[2] != tokens[1]
    assert cli("session", "list", kept, "--subject", PLANTED)[1].endswith("2 records\n")
    assert cli("session", "list", kept, "--subject", tokens[1])[1].endswith("1 record\n")
    assert cli("session", "list", kept, "--subject", "nobody")[0] == 2
    code, out, _ = cli("session", "show", f"{kept}:1")
    assert code == 0 and "kept, encrypted" in out and tokens[1] in out and PLANTED not in out
    assert json.loads(cli("session", "show", f"{kept}:1", "--json")[1])["index"] == 1
    assert cli("session", "show", f"{kept}:7")[0] == 2 and cli("session", "show", kept)[0] == 2
    code, out, _ = cli("session", "verify", kept)
    assert code == 0 and "3 records, 3 inferences" in out and "sealed: 3" in out and "inputs kept: of 3" in out
    assert cli("session", "export", kept, "--output", tmp_path / "x.csv")[0] == 0
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [row["index"] for row in rows] == ["0", "1", "2"] and rows[0]["model"] == "tiny"
    assert cli("session", "export", kept, "--output", tmp_path / "x.json")[0] == 0
    assert len(json.loads((tmp_path / "x.json").read_text())["records"]) == 3
    assert cli("session", "export", kept, "--output", tmp_path / "x.txt")[0] == 2
    assert cli("session", "list", tmp_path)[0] == 2


def test_a_changed_archive_ends_with_1_and_its_name(kept: Path, cli: Cli) -> None:
    text = (kept / "session.jsonl").read_bytes()
    (kept / "session.jsonl").write_bytes(text.replace(b'"computed"', b'"decided"', 1))
    code, out, _ = cli("session", "verify", kept, "--json")
    assert code == 1 and json.loads(out)["check"] == "session-edited" and json.loads(out)["record"] == 0
    code, _, err = cli("session", "verify", kept)
    assert code == 1 and "[session-edited]" in err
    assert cli("session", "seal", kept)[0] == 1


def test_kept_inputs_cannot_be_changed_or_removed(kept: Path, cli: Cli) -> None:
    path = next((kept / "inputs" / Archive(kept).records()[1].subject).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, out, _ = cli("session", "verify", kept, "--json")
    assert code == 1 and json.loads(out)["check"] == "session-input" and json.loads(out)["record"] == 1
    assert cli("session", "verify", kept, "--without-inputs")[0] == 0
    path.unlink()
    assert json.loads(cli("session", "verify", kept, "--json")[1])["check"] == "session-input"


def test_after_erasure_all_verifies_and_nothing_is_left(
    maker: Maker, kept: Path, cli: Cli, home: Path, tmp_path: Path
) -> None:
    """Looks for the name, the pixels and the key in every file of archive and home."""
    token = Archive(kept).records()[0].subject
    key_file = next(home.rglob(f"{token}.json"))
    assert key_file.stat().st_mode & 0o777 == 0o600
    document = json.loads(key_file.read_text())
    patterns = [PLANTED.encode(), picture(1).tobytes()[:64], picture(3).tobytes()[64:96], token.encode() + b".json"]
    patterns += [document["key"].encode(), document["salt"].encode()]

    def found() -> list[bytes]:
        files = [path for root in (kept, home) for path in root.rglob("*") if path.is_file()]
        names = "\n".join(map(str, files)).encode()
        held = [path.read_bytes() for path in files]
        return [p for p in patterns if p in names or any(p in data for data in held)]

    assert set(found()) == {PLANTED.encode(), *patterns[3:]}  # the pixels never lie there in the clear
    copy = tmp_path / "copy"
    copy.mkdir()
    sealed = {path.name: path.read_bytes() for path in (kept / "inputs" / token).iterdir()}
    code, out, _ = cli("erase", kept, "--subject", PLANTED)
    assert code == 0 and token in out
    assert found() == []
    code, out, _ = cli("session", "verify", kept, "--json")
    report = json.loads(out)
    assert code == 0 and report["erased_subjects"] == 1 and report["kept_inputs"] == 1 and report["sealed_records"] == 3
    assert lines_of(kept)[3].count(b'"kind":"erasure"') == 1
    # a copy of the ciphertexts made before does not help any more
    (kept / "inputs" / token).mkdir()
    for name, data in sealed.items():
        (kept / "inputs" / token / name).write_bytes(data)
    code, _, err = cli("replay", f"{kept}:0", "--engine", maker("keep").path)
    assert code == 1 and "[session-erased]" in err
    given = ["--input", f"image={image(tmp_path, 1)}"]
    code, _, err = cli("replay", f"{kept}:0", "--engine", maker("keep").path, *given)
    assert code == 1 and "[session-erased]" in err
    assert cli("replay", f"{kept}:1", "--engine", maker("keep").path)[0] == 0
    code, out, _ = cli("replay", kept, "--engine", maker("keep").path, "--json")
    assert code == 0 and json.loads(out)["equal"] == 1 and len(json.loads(out)["not_replayed"]) == 2
    assert cli("erase", kept, "--subject", PLANTED)[0] == 2
    # the same person later is another subject
    words = ["--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", kept]
    assert cli("run", maker("keep").path, *words, "--subject", PLANTED)[0] == 0
    assert Archive(kept).records()[-1].subject != token


def test_an_interrupted_erasure_is_finished(kept: Path, cli: Cli, home: Path) -> None:
    token = Archive(kept).records()[0].subject
    key_file = next(home.rglob(f"{token}.json"))
    key_file.rename(key_file.with_suffix(".erasing"))  # a crash after the first step
    code, out, _ = cli("erase", kept, "--subject", "whoever")
    assert code == 0 and token in out
    assert not list(home.rglob(f"{token}*")) and cli("session", "verify", kept)[0] == 0


def test_what_run_refuses(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> None:
    words = ["--input", image(tmp_path, 1), "--output-dir", tmp_path / "out"]
    code, _, err = cli("run", maker("keep").path, *words, "--session", tmp_path / "s")
    assert code == 2 and "--subject" in err and not (tmp_path / "s").exists()
    code, _, err = cli("run", maker("digest").path, *words, "--subject", "x")
    assert code == 2 and "--session" in err
    code, _, err = cli("run", maker("").path, *words, "--session", tmp_path / "s")
    assert code == 2 and "audit.sessions" in err
    code, _, err = cli("run", maker("digest").path, *words, "--session", tmp_path / "s")
    assert code == 0 and not list(home.rglob("keys/*.json"))


def test_replay_names_the_first_difference(maker: Maker, kept: Path, cli: Cli, tmp_path: Path) -> None:
    engine = maker("keep").path
    # an archive that says other output bits, as if the engine had computed them
    lines = lines_of(kept)
    item = json.loads(lines[1])
    item["outputs"][0]["digest"] = "ab" * 64
    lines[1] = json.dumps(item, sort_keys=True, separators=(",", ":")).encode()
    (kept / "session.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    code, _, err = cli("replay", f"{kept}:1", "--engine", engine)
    assert code == 1 and "output 'prob' has other bits" in err and "[replay]" in err
    code, out, _ = cli("replay", kept, "--engine", engine, "--json")
    document = json.loads(out)
    assert code == 1 and document["equal"] == 2 and document["different"][0]["record"] == 1


def test_replay_from_supplied_inputs(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> None:
    folder, engine = tmp_path / "s", maker("digest")
    engine.infer(folder, image(tmp_path, 1), env={"TRACEPARENT": PARENT})
    code, _, err = cli("replay", f"{folder}:0", "--engine", engine.path)
    assert code == 2 and "--input image=X.npy" in err
    code, out, _ = cli("replay", f"{folder}:0", "--engine", engine.path, "--input", f"image={image(tmp_path, 1)}")
    assert code == 0 and "the same bits" in out
    code, _, err = cli("replay", f"{folder}:0", "--engine", engine.path, "--input", f"image={image(tmp_path, 2)}")
    assert code == 1 and "[replay-input]" in err
    other = maker("keep").path  # another policy is another engine
    code, _, err = cli("replay", f"{folder}:0", "--engine", other, "--input", f"image={image(tmp_path, 1)}")
    assert code == 1 and "[replay-engine]" in err
    (tmp_path / "text.npy").write_text("no array")
    for wrong in ("image", f"other={image(tmp_path, 1)}", f"image={tmp_path / 'text.npy'}", "image=/nowhere"):
        code, _, err = cli("replay", f"{folder}:0", "--engine", engine.path, "--input", wrong)
        assert code == 2 and err.count("\n") == 1


def test_replay_knows_the_engine_that_ran(maker: Maker, kept: Path, cli: Cli, home: Path, tmp_path: Path) -> None:
    assert cli("replay", f"{kept}:1")[0] == 0 and cli("replay", kept)[0] == 0
    for note in (home / "sessions" / "engines").iterdir():
        assert note.stat().st_mode & 0o777 == 0o600
        note.write_text(str(tmp_path / "moved"))
    code, _, err = cli("replay", f"{kept}:1")
    assert code == 2 and "--engine" in err
    code, out, _ = cli("replay", kept, "--json")
    assert code == 1 and len(json.loads(out)["not_replayed"]) == 3


def test_refused_inferences_replay_too(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bright.npy", np.full((1, 1, 8, 8), 2, np.float32))
    words = ["--input", tmp_path / "bright.npy", "--output-dir", tmp_path / "out", "--session", tmp_path / "s"]
    code, out, err = cli("run", maker("keep").path, *words, "--subject", "x", "--json")
    assert code == 3 and "guard" in err and json.loads(out)["session"]["index"] == 0
    assert cli("replay", f"{tmp_path / 's'}:0", "--engine", maker("keep").path)[0] == 0


@pytest.mark.parametrize("triple", sorted(TARGETS))
def test_an_archive_replays_on_every_target(maker: Maker, kept: Path, cli: Cli, triple: str) -> None:
    engine = maker("keep", triple)
    code, out, _ = cli("replay", kept, "--engine", engine.path, "--json")
    assert code == 0 and json.loads(out)["equal"] == 3 and json.loads(out)["different"] == []
    described = json.loads(engine.run("--version", "--json").stdout)
    for isa in described["isas"][described["isas"].index(described["isa"]) :]:  # best first: the rest is supported too
        code, out, _ = cli("replay", f"{kept}:0", "--engine", engine.path, "--isa", isa, "--threads", "2")
        assert code == 0 and f"{isa}, threads 2" in out


def test_clinical_answers_are_recorded_and_replayed(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> None:
    """Decided, answered by a fallback, refused; quantities by their digest under the subject's salt."""
    np.save(tmp_path / "blank.npy", np.full((1, 1, 8, 8), 0.25, np.float32))
    np.save(tmp_path / "bright.npy", np.full((1, 1, 8, 8), 2, np.float32))
    folder, engine = tmp_path / "s", maker("clinical-keep").path
    answers = []
    for file, wanted in ((image(tmp_path, 1), 0), (tmp_path / "blank.npy", 0), (tmp_path / "bright.npy", 3)):
        words = ["--input", file, "--output-dir", tmp_path / "out", "--session", folder, "--subject", "x"]
        code, out, _ = cli("run", engine, *words, "--json")
        assert code == wanted
        answers.append(json.loads(out))
    decided, fallback, refused = Archive(folder).records()
    assert [item.fields["status"] for item in (decided, fallback, refused)] == ["decided", "fallback", "refused"]
    for record, answer in ((decided, answers[0]["answer"]), (fallback, answers[1]["answer"])):
        assert record.fields["decisions"] == answer["decisions"] and record.fields["guards"] == answer["guards"]
    assert fallback.fields["failure"] == {"guard": "not_blank", "kind": "safety_guard"} and fallback.outputs == ()
    assert refused.fields["failure"] == {"guard": None, "kind": "input_guard"} and refused.fields["decisions"] == {}
    salt = base64.b64decode(json.loads(next(home.rglob("keys/*.json")).read_text())["salt"])
    named = sorted(answers[0]["answer"]["quantities"].items())
    text = "cuvil-quantities/1\n" + "".join(f"{name}={item['bits'][2:]}\n" for name, item in named)
    assert decided.fields["quantities"] == hashlib.sha3_512(salt + text.encode()).hexdigest()
    code, out, _ = cli("replay", folder, "--engine", engine, "--json")
    assert code == 0 and json.loads(out)["equal"] == 3
    # a decision that was recorded otherwise is named
    path = folder / "session.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"positive":', b'"positive_":', 1))
    code, _, err = cli("replay", f"{folder}:0", "--engine", engine)
    assert code == 1 and "decision 'positive'" in err


def test_people_read_the_engines_answer(maker: Maker, cli: Cli, home: Path, tmp_path: Path) -> None:
    words = [maker("clinical-keep").path, "--input", image(tmp_path, 1), "--output-dir", tmp_path / "out"]
    code, out, _ = cli("run", *words, "--session", tmp_path / "s", "--subject", "x")
    assert code == 0 and "positive" in out


def test_undecided_outputs_are_not_recorded(maker: Maker, tmp_path: Path) -> None:
    common = ["--input", image(tmp_path, 1), "--output-dir", tmp_path / "out", "--session", tmp_path / "s"]
    done = maker("clinical-keep").run(*common, "--network-only")
    assert done.returncode == 2 and "--network-only" in done.stderr and not (tmp_path / "s").exists()
