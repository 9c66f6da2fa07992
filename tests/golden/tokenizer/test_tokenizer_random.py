"""Small random tokenizers of every supported kind, saved as tokenizer.json: the ids must be Hugging Face's. What the real
ones don't show: merges in odd orders, flags of added tokens, missing bytes, unknown tokens, unigram ties."""
import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenizer_command import tokenize
from tokenizer_oracles import QWEN_SPLIT

ALPHABET = "abcé▁ ,1<>|\n歪"


def pieces_of(rng, alphabet, count):
    """Tokens that can be made by merging, and the merges, in any order."""
    tokens, merges = list(alphabet), []
    while len(merges) < count:
        left, right = rng.choice(tokens), rng.choice(tokens)
        if len(left + right) > 12:
            continue
        if left + right not in tokens:
            tokens.append(left + right)
        if (left, right) not in merges:
            merges.append((left, right))
    rng.shuffle(merges)
    return tokens, merges


def added_tokens(rng, vocab):
    """A control token is never made of text, which Hugging Face doesn't promise: so none that the model can make."""
    contents = ["<x>", "<x", "<|end|>", "ab", "b▁", "é1", "a a", "|", "▁<x>", "<x><x>", "word"]
    rstrip = rng.random() < 0.5
    if not rstrip:  # a token that begins with a space behind one that swallows spaces: Hugging Face panics
        contents += ["\n", "  "]
    return [AddedToken(content, single_word=rng.random() < 0.3, lstrip=rng.random() < 0.3, rstrip=rstrip and rng.random() < 0.6,
                       normalized=rng.random() < 0.4, special=rng.random() < 0.5 and content not in vocab)
            for content in rng.sample(contents, rng.randint(0, 6))]


def bpe(rng, byte_level):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else ALPHABET
    kept = [c for c in alphabet if byte_level or rng.random() < 0.9]
    tokens, merges = pieces_of(rng, rng.sample(kept, 12) if byte_level else kept, rng.randint(1, 60))
    tokens = list(dict.fromkeys(kept + tokens))
    fallback = not byte_level and rng.random() < 0.6
    if fallback:
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    unknown = None
    if not byte_level:
        tokens.append("<unk>")
        unknown = "<unk>" if rng.random() < 0.7 else None
    return models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, byte_fallback=fallback, unk_token=unknown,
                      fuse_unk=rng.random() < 0.5 and not byte_level, ignore_merges=rng.random() < 0.3)


def unigram(rng):
    tokens = ["<unk>"] + list(ALPHABET)
    while len(tokens) < 60:
        token = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(2, 5)))
        if token not in tokens:
            tokens.append(token)
    if rng.random() < 0.5:
        tokens.remove("歪")
    fallback = rng.random() < 0.5
    if fallback:
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    scores = [0.0] + [-rng.choice([1, 2, 2.5, 3, 3, 4.25, 7]) for _ in tokens[1:]]
    return models.Unigram(list(zip(tokens, scores)), 0, fallback)


def sentencepiece_shape(rng, tokenizer):
    if rng.random() < 0.3:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=rng.choice(["first", "always", "never"]),
                                                           split=rng.random() < 0.5)
        tokenizer.decoder = decoders.Metaspace()
        return
    steps = [normalizers.Replace(" ", "▁")]
    if rng.random() < 0.5:
        steps.insert(0, normalizers.Prepend("▁"))
    if rng.random() < 0.3:
        steps.insert(0, normalizers.NFC())
    tokenizer.normalizer = normalizers.Sequence(steps)
    if rng.random() < 0.3:
        behavior = rng.choice(["isolated", "merged_with_previous", "merged_with_next"])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(rng.choice(["▁", ",", "ab"]), behavior)


def make(seed):
    rng = random.Random(seed)
    kind = seed % 3
    tokenizer = Tokenizer(unigram(rng) if kind == 2 else bpe(rng, kind == 0))
    if kind == 0:
        steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rng.random() < 0.3)]
        if rng.random() < 0.3:
            steps.insert(0, pre_tokenizers.Split(Regex(QWEN_SPLIT), "removed", invert=True))
        if rng.random() < 0.3:
            steps.insert(0, pre_tokenizers.Digits(individual_digits=rng.random() < 0.5))
        if rng.random() < 0.3:
            steps.insert(0, pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        if rng.random() < 0.3:
            tokenizer.normalizer = normalizers.NFC()
    else:
        sentencepiece_shape(rng, tokenizer)
    tokenizer.add_tokens(added_tokens(rng, tokenizer.get_vocab()))
    return tokenizer


def texts(seed):
    rng = random.Random(seed)
    parts = list(ALPHABET) + ["ab", "aa", " a", "<x>", "<|end|>", "  ", "\t", "e\u0301", "word", "\u3000", "Z", "ñ", "12", "\n\n"]
    out = ["".join(rng.choice(parts) for _ in range(rng.randint(1, 30))) for _ in range(150)]
    few = rng.sample(parts, 3)
    out += ["".join(rng.choice(few) for _ in range(rng.randint(40, 400))) for _ in range(60)]
    return out + ["", *(part * n for part in parts for n in (1, 2, 50, 333))]


@pytest.mark.parametrize("block", [*range(12), 55])
def test_ids_equal_hugging_face(block, tmp_path):
    for seed in range(block * 10, block * 10 + 10):
        tokenizer = make(seed)
        file = tmp_path / f"{seed}.json"
        tokenizer.save(str(file))
        values = texts(seed)
        ours = tokenize(str(file), values)
        for text, ids in zip(values, ours):
            assert ids == tokenizer.encode(text).ids, f"seed {seed}, {text!r}"
