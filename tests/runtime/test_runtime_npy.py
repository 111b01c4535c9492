"""The .npy reader: everything NumPy writes that fits is read exactly, everything else is refused in one sentence."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUIET = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
GOOD = np.array([1.0, -2.5, 3e-42, 7.0], "<f4")


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version)
    return buffer.getvalue()


def with_header(text: bytes, data: bytes = GOOD.tobytes()) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
def test_every_format_version(single, tmp_path, version):
    (tmp_path / "x.npy").write_bytes(npy(GOOD, version))
    assert single.run("--input", tmp_path / "x.npy", "--output-dir", tmp_path).returncode == 0
    assert (np.load(tmp_path / "p.q.npy") == GOOD * np.float32(0.5)).all()


@pytest.mark.parametrize(
    "text",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n",
        b'{"shape":(4L,),"fortran_order":False,"descr":"<f4"}',
        b"  { 'fortran_order' :False,\t'shape': ( 4 , ) , 'descr':'<f4'}   \n",
    ],
)
def test_other_writers_of_the_same_dictionary(single, tmp_path, text):
    (tmp_path / "x.npy").write_bytes(with_header(text))
    done = single.run("--input", tmp_path / "x.npy", "--output-dir", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\x93NUM", ["ends after a few bytes"]),
        (b"PK\x03\x04 and more", [".npz archive", "numpy.save"]),
        (b"not an array at all", ["not a .npy file"]),
        (npy(GOOD)[:6] + b"\x04\x00" + npy(GOOD)[8:], ["version 4.0"]),
        (npy(GOOD)[:40], ["truncated or corrupt"]),
        (npy(GOOD)[:-1], ["truncated", "15 of the 16 data bytes"]),
        (npy(GOOD) + b"\0", ["bytes after the array"]),
        (npy(GOOD.astype("<f8")), ["float64 ('<f8')", "float32 ('<f4')", ".astype('<f4')"]),
        (npy(GOOD.astype(">f4")), ["big-endian float32 ('>f4')", ".astype('<f4')"]),
        (npy(GOOD.astype("<f2")), ["float16 ('<f2')"]),
        (npy(GOOD.astype("<i8")), ["int64 ('<i8')"]),
        (npy(GOOD.astype("u1")), ["uint8 ('|u1')"]),
        (npy(GOOD.astype("?")), ["bool ('|b1')"]),
        (npy(GOOD.astype("<c8")), ["complex64 ('<c8')"]),
        (npy(np.zeros(4, [("p", "<f4"), ("q", "<f4")])), ["a structured type"]),
        (npy(GOOD.reshape(2, 2)), ["shape (2, 2)", "compiled for (4,)", ".reshape((4,))"]),
        (npy(GOOD[:3]), ["shape (3,)", "compiled for (4,)", "--input-shape"]),
        (npy(np.float32(1)), ["shape ()", "compiled for (4,)"]),
        (
            with_header(b"{'descr': '<f4', 'fortran_order': True, 'shape': (4,), }"),
            ["Fortran order", "ascontiguousarray"],
        ),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4), }"), ["a shape that is no tuple"]),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }"), ["no tuple of sizes"]),
        (
            with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
            ["no tuple of sizes"],
        ),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 65 + b")}"), ["more than 64"]),
        (with_header(b"{'descr': '<f4', 'fortran_order': False}"), ["missing key"]),
        (with_header(b"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}"), ["repeated key"]),
        (with_header(b"{'descr': '<f4' 'fortran_order': False, 'shape': (4,)}"), ["without comma"]),
        (with_header(b"{'descr': [('a', '<f4'), 'fortran_order': False"), ["without end"]),
        (with_header(b"{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}"), ["no boolean"]),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} x"), ["text after"]),
        (with_header(b"()"), ["no dictionary"]),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", ["truncated or corrupt"]),
        (b"\x93NUMPY\x02\x00\xff\xff", ["truncated or corrupt"]),
    ],
)
def test_refusals(single, tmp_path, content, words):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    sentence = single.refused(2, "--input", path, "--output-dir", tmp_path / "o")
    assert str(path) in sentence and all(w in sentence for w in words), sentence
    assert not (tmp_path / "o").exists()


def test_fortran_order_as_numpy_writes_it(engine, arrays, tmp_path):
    np.save(arrays["a"], np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)))
    words = ["--input", f"a={arrays['a']}", "--input", f"b/in={arrays['b']}", "--output-dir", tmp_path / "o"]
    assert "Fortran order" in engine.refused(2, *words)


def test_missing_file_and_directory(single, tmp_path):
    assert "No such file" in single.refused(2, "--input", tmp_path / "none.npy", "--output-dir", tmp_path)
    assert "directory" in single.refused(2, "--input", tmp_path, "--output-dir", tmp_path).lower()


def _accepted(single, tmp_path, content: bytes) -> bool:
    """Run on the bytes: either accepted silently or refused with one sentence and code 2; never anything else."""
    (tmp_path / "x.npy").write_bytes(content)
    done = single.run("--input", tmp_path / "x.npy", "--output-dir", tmp_path / "o")
    assert done.returncode in (0, 2), (done.returncode, done.stderr)
    assert done.stdout == "" and done.stderr.count("\n") == (done.returncode == 2)
    return done.returncode == 0


def _numpy_reads(content: bytes) -> bool:
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:
        return False
    return array.dtype == np.dtype("<f4") and array.shape == (4,)


@QUIET
@given(st.integers(0, len(npy(GOOD)) - 17), st.integers(0, 255))
def test_a_changed_byte_is_never_read_as_something_numpy_would_refuse(single, tmp_path, at, byte):
    content = bytearray(npy(GOOD))
    content[at] = byte
    if _accepted(single, tmp_path, bytes(content)):
        assert _numpy_reads(bytes(content))


@QUIET
@given(st.binary(max_size=300))
def test_arbitrary_header_text(single, tmp_path, text):
    if _accepted(single, tmp_path, with_header(text)):
        assert _numpy_reads(with_header(text))


_PIECES = st.sampled_from(
    [
        "{",
        "}",
        "'descr'",
        ":",
        "'<f4'",
        ",",
        "'fortran_order'",
        "False",
        "True",
        "'shape'",
        "(",
        ")",
        "4",
        "4,",
        " ",
        "[",
    ]
)


@QUIET
@given(st.lists(_PIECES, max_size=24))
def test_header_made_of_its_own_pieces(single, tmp_path, pieces):
    content = with_header("".join(pieces).encode())
    if _accepted(single, tmp_path, content):
        assert _numpy_reads(content)


@QUIET
@given(
    st.permutations(["'descr': '<f4'", "'fortran_order': False", "'shape': (4,)"]), st.integers(0, 40), st.booleans()
)
def test_well_formed_headers_are_accepted(single, tmp_path, entries, spaces, comma):
    text = "{" + ", ".join(entries) + (", " if comma else "") + "}" + " " * spaces + "\n"
    assert _accepted(single, tmp_path, with_header(text.encode()))
