"""The tokenizer.json that is written for a model from a GGUF file: Hugging Face `tokenizers` and this program read the ids
out of it that the file itself gives."""
import json
import subprocess

import pytest
from tokenizers import Tokenizer

import tokenizer_oracles as oracles
from test_tokenizer_exact import assert_same
from tokenizer_command import REPO, command, detokenize, tokenize
from tokenizer_strings import strings

SEED, COUNT = 977, 3000


@pytest.fixture(scope="module", params=oracles.GGUF)
def written(request, tmp_path_factory):
    folder, source = tmp_path_factory.mktemp(request.param), oracles.MODELS / oracles.GGUF[request.param]
    tool = REPO / (command()[0].rsplit("/bin/", 1)[0] + "/test/lockstep-tok-test")
    done = subprocess.run([tool, "write", source, folder], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder, str(source)


def test_the_same_ids_and_texts(written):
    folder, source = written
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = strings(SEED, COUNT, [t.content for t in theirs.get_added_tokens_decoder().values()])
    ids = tokenize(source, texts)
    assert_same(texts, tokenize(str(folder), texts), ids)
    assert_same(texts, [e.ids for e in theirs.encode_batch(texts)], ids)
    texts_again = detokenize(source, ids)
    assert_same(ids, detokenize(str(folder), ids), texts_again)
    assert_same(ids, theirs.decode_batch(ids, skip_special_tokens=False), texts_again)


def test_the_names_of_its_tokens_and_the_template(written):
    folder, source = written
    config, meta = json.loads((folder / "tokenizer_config.json").read_text()), oracles.gguf_metadata(source)
    tokens = meta["tokenizer.ggml.tokens"]
    for name in ("bos", "eos"):
        assert config[f"{name}_token"] == tokens[meta[f"tokenizer.ggml.{name}_token_id"]]
    assert config.get("chat_template") == meta.get("tokenizer.chat_template")
