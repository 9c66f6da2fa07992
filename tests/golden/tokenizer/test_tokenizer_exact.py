"""The ids of real tokenizers, against Hugging Face `tokenizers` (tokenizer_oracles.py says which), on 10,000 strings each."""
import pytest

import tokenizer_oracles as oracles
from tokenizer_command import detokenize, tokenize
from tokenizer_strings import strings

SEED, COUNT = 20240, 10_000
NAMES = [*oracles.NPM, *oracles.GGUF]
LOSSLESS = ["llama3_1", "qwen3", "gptoss", "deepseek_v3", "qwen2.5"]  # a token for every byte, and no other decoder


class Case:
    def __init__(self, name):
        self.name = name
        self.oracle, self.model = oracles.load(name)
        # The tokenizer.json of the Gemma 3 family has one token more than the GGUF file of its smallest model.
        self.added = [t for i, t in self.oracle.get_added_tokens_decoder().items()
                      if name != "gemma3-270m" or i < 262144]
        self.texts = strings(SEED, COUNT, [token.content for token in self.added])


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    return Case(request.param)


def assert_same(texts, ours, theirs):
    assert len(ours) == len(theirs)
    wrong = [i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]]
    first = wrong and f"{texts[wrong[0]]!r}: {ours[wrong[0]]!r} instead of {theirs[wrong[0]]!r}"
    assert not wrong, f"{len(wrong)} of {len(texts)}, the first {first}"


def test_ids(case):
    assert_same(case.texts, tokenize(case.model, case.texts), [e.ids for e in case.oracle.encode_batch(case.texts)])


def test_ids_without_tokens_around(case):
    texts = case.texts[:1000]
    theirs = [e.ids for e in case.oracle.encode_batch(texts, add_special_tokens=False)]
    assert_same(texts, tokenize(case.model, texts, "--no-special"), theirs)


def looks_like_control(content):
    return (content[:2] == "<|" and content[-2:] == "|>") or (content[:2] == "<｜" and content[-2:] == "｜>") or \
        content in ("<start_of_turn>", "<end_of_turn>")


def test_control_tokens_in_text_stay_text(case):
    """As `tokenizers` with encode_special_tokens, but for tokens that a file calls ordinary and that steer the model."""
    ours_only = [t.content for t in case.added if not t.special and looks_like_control(t.content)]
    # A GGUF file calls the unused tokens control tokens, the tokenizer.json of the same model doesn't.
    texts = [t for t in case.texts if not any(c in t for c in ours_only) and "<unused" not in t
             and "multimodal" not in t][:3000]
    case.oracle.encode_special_tokens = True
    try:
        theirs = [e.ids for e in case.oracle.encode_batch(texts, add_special_tokens=False)]
    finally:
        case.oracle.encode_special_tokens = False
    ours = tokenize(case.model, texts, "--no-special", "--no-parse-special")
    assert_same(texts, ours, theirs)
    control = {i for i, t in case.oracle.get_added_tokens_decoder().items() if t.special}
    unknown = case.oracle.token_to_id("<unk>")
    assert not {i for ids in ours for i in ids} & (control - {unknown})


def test_decoding(case):
    """decode(encode(x)) is x where the tokenizer can do that at all, and Hugging Face's text everywhere."""
    ids = [e.ids for e in case.oracle.encode_batch(case.texts, add_special_tokens=False)]
    ours = detokenize(case.model, ids)
    assert_same(ids, ours, case.oracle.decode_batch(ids, skip_special_tokens=False))
    if case.name in LOSSLESS:
        normal = case.oracle.normalizer.normalize_str if case.oracle.normalizer else str
        assert_same(case.texts, ours, [normal(text) for text in case.texts])



@pytest.mark.parametrize("name", oracles.GGUF)
def test_vocabulary_without_tensors(name, tmp_path):
    model, texts = oracles.MODELS / oracles.GGUF[name], strings(SEED, 600, ["<|im_end|>", "<eos>"])
    oracles.vocabulary_only(model, tmp_path / "vocabulary.gguf")
    assert_same(texts, tokenize(str(tmp_path / "vocabulary.gguf"), texts), tokenize(str(model), texts))
