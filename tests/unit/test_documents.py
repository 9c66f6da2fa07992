"""Documents keep their promises: links lead somewhere, and what a page says about a suite or script is so."""

import re
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()


def anchors(text):
    """Of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


def is_broken(page, text, target, anchor):
    if target and not (page.parent / target).exists():
        return True
    of = (page.parent / target).read_text() if target and anchor else text
    return bool(anchor) and anchor not in anchors(of)


def broken_links(page, text):
    """Relative links of a Markdown text that lead to no file or heading; links to other sites are not ours to check."""
    targets = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text)
    return [target for target, anchor in targets if ":" not in target and is_broken(page, text, target, anchor)]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    assert not broken_links(REPO / name, (REPO / name).read_text())


def test_a_broken_link_is_found():
    assert broken_links(REPO / "README.md", "[a](docs/no-such-page.md) [b](README.md) [c](https://example.org/x) [d](docs/api.md#errors) "
                        "[e](docs/api.md#no-such-heading)") == ["docs/no-such-page.md", "docs/api.md"]


def test_every_suite_is_described():
    suites = subprocess.run([REPO / "tests/run", "--list"], capture_output=True, text=True, check=True).stdout.split()
    described = re.findall(r"^\| `([a-z]+)` \|", (REPO / "docs/testing.md").read_text(), re.MULTILINE)
    assert described == suites


def test_the_threat_models_tests_exist():
    text = (REPO / "docs/threat-model.md").read_text()
    sources = "".join(path.read_text() for path in (REPO / "tests").glob("*/test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in sources] == []
    files = re.findall(r"`((?:tests|gateway|model|shm|proto|draw|services|sampler|tokenizer)/[\w/.*]+)`", text)
    assert [name for name in files if not list(REPO.glob(name))] == []


def test_every_threat_has_its_test_where_it_says():
    """A test without a file's name before it is in test_security.py."""
    text = (REPO / "docs/threat-model.md").read_text()
    section = re.search(r"## What is held, and by what\n(.*?)\n## ", text, re.S)[1]
    threats = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]  # without the head
    assert len(threats) > 25
    for threat, _, shown in threats:
        file = "tests/http/test_security.py"
        words = re.findall(r"`([\w/.*]+)`", shown)
        assert words, threat
        for word in words:
            if word.endswith(".py"):
                file = word
            elif word.startswith("test_") and f"def {word}(" not in (REPO / file).read_text():
                raise AssertionError(f"{word} of {threat!r} is not in {file}")


# Pages for those who run it, and what stands there of other programs.
FOR_USERS = ["api", "clients", "deployment", "embeddings", "errors", "formats", "models-serving", "operations", "structured-output", "surfaces", "threat-model",
             "tools", "web"]
FOREIGN = {"build-arg", "include_path", "message", "model_args", "network", "now", "rm", "scale", "shape", "signal", "tasks", "variant", "write"}


def known_options():
    """Every process's and command's, and those of the scripts."""
    sources = "".join(path.read_text() for path in REPO.glob("*/**/*.c") if "build" not in path.parts)
    scripts = "".join(path.read_text() for path in [*(REPO / "deploy").glob("*"), REPO / "tests/chaos/chaos.py", REPO / "tests/run"] if path.is_file())
    names = set(re.findall(r'\{"([a-z][a-z0-9-]*)",\s*OPT_', sources))
    return names | {f"no-{name}" for name in names} | set(re.findall(r"--([a-z][a-z0-9-]*)", scripts))


@pytest.mark.parametrize("page", FOR_USERS)
def test_every_option_exists(page):
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]*)", (REPO / f"docs/{page}.md").read_text()))
    assert named - FOREIGN - known_options() == set()
