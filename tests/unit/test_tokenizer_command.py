"""`lockstep tokenize` and `lockstep detokenize`, on a tokenizer of a few tokens."""
import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizer"))
from tokenizer_command import command  # noqa: E402

VOCAB = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab"]
TOKENIZER = {
    "added_tokens": [{"id": i, "content": VOCAB[i], "special": True} for i in range(3)],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {
        "type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}},
                       "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "merges": [["a", "b"], ["▁", "ab"]],
              "vocab": {**{t: i for i, t in enumerate(VOCAB)}, **{f"<0x{b:02X}>": 8 + b for b in range(256)}}},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return str(folder)


def call(word, *arguments, text=b""):
    done = subprocess.run([*command(), word, *arguments], input=text, capture_output=True, timeout=30)
    return done.returncode, done.stdout, done.stderr.decode()


def test_text_from_arguments_and_from_standard_input(model):
    assert call("tokenize", "--model", model, "ab", "ab") == (0, b"[1, 7, 7]\n", "")
    assert call("tokenize", "--model", model, text=b"ab ab") == (0, b"[1, 7, 7]\n", "")
    assert call("tokenize", "--model", model + "/tokenizer.json", "ab") == (0, b"[1, 7]\n", "")
    assert call("tokenize", "--model", model, "--no-special", text=b"") == (0, b"[]\n", "")


def test_special_tokens(model):
    assert call("tokenize", "--model", model, "ab</s>")[1] == b"[1, 7, 2]\n"
    assert call("tokenize", "--model", model, "--no-special", "ab</s>")[1] == b"[7, 2]\n"
    plain = json.loads(call("tokenize", "--model", model, "--no-special", "--no-parse-special", "ab</s>")[1])
    assert plain[0] == 7 and 2 not in plain
    assert call("detokenize", "--model", model, "1", "7", "2")[1] == b"<s> ab</s>"
    assert call("detokenize", "--model", model, "--no-special", "1", "7", "2")[1] == b"ab"


def test_json_lines(model):
    text = b'"ab"\n\n"ab \\u00e9\\n"\n""\n'
    assert call("tokenize", "--model", model, "--json", text=text) == \
        (0, b"[1, 7]\n[1, 7, 3, 203, 177, 18]\n[1]\n", "")
    assert call("detokenize", "--model", model, "--json", text=b"[7, 3, 203, 177]\n[]\n[203]\n") == \
        (0, '"ab é"\n""\n"\ufffd"\n'.encode(), "")


def test_lists_of_values(model):
    assert call("tokenize", "--model", model, "--json", text=b'["ab", "a"]\n[]\n') == (0, b"[1, 7]\n[1, 3, 4]\n", "")
    assert call("detokenize", "--model", model, "--json", text=b"[[7], [3, 4]]\n") == (0, b'"ab"\n"a"\n', "")


def test_bytes_that_are_not_text(model):
    code, out, _ = call("tokenize", "--model", model, "--no-special", text=b"a\xff\xc3 b")
    assert (code, json.loads(out)) == (0, [3, 4, 263, 203, 3, 5])
    assert call("detokenize", "--model", model, text=out) == (0, b"a\xff\xc3 b", "")


@pytest.mark.parametrize("arguments, text, status, words", [
    ([], b"", 64, "--model FILE is missing"),
    (["--model"], b"", 64, "--model"),
    (["--model", "M", "--what"], b"", 64, "--what"),
    (["--model", "M", "--json"], b"'ab'\n", 64, "line 1"),
    (["--model", "M", "--json"], b'"ab"\n{"a": "b"}\n', 64, "line 2: not a JSON string"),
    (["--model", "M", "--json"], b'["ab", 7]\n', 64, "line 1: not a JSON string"),
    (["--model", "M", "--json"], b'"\\ud83d"\n', 64, "line 1"),
    (["--model", "/nonexistent"], b"", 74, "/nonexistent: cannot open"),
    (["--model", "/dev/null"], b"", 78, "/dev/null"),
])
def test_errors_of_tokenize(model, arguments, text, status, words):
    code, _, said = call("tokenize", *[model if a == "M" else a for a in arguments], text=text)
    assert code == status and words in said


@pytest.mark.parametrize("arguments, text, words", [
    (["264"], b"", "token id 264; the vocabulary has 264 tokens"),
    (["-1"], b"", "-1"),
    (["seven"], b"", "'seven' is not a token id"),
    (["--json"], b"[1, 7.5]\n", "line 1"),
    (["--json"], b"[99999999999999999999]\n", "line 1"),
    (["--json"], b'"ab"\n', "not a JSON list"),
])
def test_errors_of_detokenize(model, arguments, text, words):
    code, _, said = call("detokenize", "--model", model, *arguments, text=text)
    assert code != 0 and words in said


def test_lines_before_a_bad_one_are_answered(model):
    code, out, said = call("tokenize", "--model", model, "--json", text=b'"ab"\nnot json\n')
    assert code == 64 and out == b"[1, 7]\n" and "line 2" in said


def test_help():
    code, out, _ = call("tokenize", "--help")
    assert code == 0 and b"--no-special" in out
