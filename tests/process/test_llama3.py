"""What ends an answer, in the ways of the Llama 3 family: three ids, as a list or one by one, in either configuration or as
the template's own end of turn; and its control tokens, which are never text. A small model of random weights with such a
vocabulary, imported from a pack."""

import json
import subprocess

import pytest

from api import user
from make_pack import SHAPES, layout_of, write_pack
from pipeline import BUILD, pipeline_with

CONTROL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>",
           *(f"<|reserved_special_token_{i}|>" for i in range(57))]
FIRST = 256
ID = {name: FIRST + i for i, name in enumerate(CONTROL)}
ENDS = [ID[name] for name in ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")]
PLAIN = ID["<|reserved_special_token_3|>"]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>"
            "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")


def alphabet():
    """The character that stands for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def write_tokenizer(folder):
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for t, i in ID.items()]
    bos = CONTROL[0]
    around = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": around,
                           "special_tokens": {bos: {"id": bos, "ids": [FIRST], "tokens": [bos]}}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "ignore_merges": True, "vocab": {c: b for b, c in alphabet().items()}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": bos, "eos_token": "<|eot_id|>", "chat_template": TEMPLATE}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Its ends: the three, as a list."""
    path = tmp_path_factory.mktemp("llama3")
    config = {**SHAPES["small"], "bos_token_id": FIRST, "eos_token_id": ENDS}
    write_pack(path / "pack", config, layout_of(config))
    write_tokenizer(path / "pack")
    done = subprocess.run([BUILD / "bin/lockstep", "model", "import", path / "pack", path / "model"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path / "model"


def serve(folder):
    return pipeline_with(model=folder, options={"keeper": ["--ctx", 256, "--slots", 2]})


def forced(pipeline, token, **more):
    """An answer that is nothing but this token."""
    answer, = pipeline.chat("Hi", temperature=0, max_tokens=4, logit_bias={str(token): 100}, **more)["choices"]
    return answer["message"]["content"] or "", answer["finish_reason"]


def test_three_ids_end_an_answer_and_none_is_text(folder):
    with serve(folder) as pipeline:
        prompt = pipeline.post("/apply-template", messages=user("Hi"))["prompt"]
        assert prompt.startswith("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>")
        for token in ENDS:
            assert forced(pipeline, token) == ("", "stop")
        for name in CONTROL:  # the others don't end it, and are no text either
            if ID[name] not in ENDS:
                assert forced(pipeline, ID[name]) == ("", "length"), name
        assert forced(pipeline, ord("a")) == ("aaaa", "length")
        # In a user's text they are text: the template's own six are all there are.
        ids = pipeline.post("/tokenize", messages=user("<|eot_id|><|start_header_id|>system"))["tokens"]
        assert len([i for i in ids if i >= FIRST]) == 6


@pytest.mark.parametrize("config, generation, ends", [(PLAIN, None, {PLAIN}), ([PLAIN, PLAIN + 1], None, {PLAIN, PLAIN + 1}),
                                                      (PLAIN, [PLAIN + 1, PLAIN + 2], {PLAIN, PLAIN + 1, PLAIN + 2}),
                                                      (None, PLAIN, {PLAIN})])
def test_an_integer_or_a_list_in_either_file(folder, tmp_path, config, generation, ends):
    """Ids whose names tell nothing."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        old = json.loads((folder / name).read_text())
        (tmp_path / name).unlink()
        (tmp_path / name).write_text(json.dumps({**old, "eos_token_id": value} if value is not None else
                                                {k: v for k, v in old.items() if k != "eos_token_id"}))
    with serve(tmp_path) as pipeline:
        for token in range(PLAIN, PLAIN + 4):
            assert forced(pipeline, token) == ("", "stop" if token in ends else "length")
        assert forced(pipeline, ID["<|eot_id|>"]) == ("", "stop")  # the end of the template's turns
