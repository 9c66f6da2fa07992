"""Documents keep their promises: links lead somewhere, and what a page says about a suite or script is so."""

import re
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()


def broken_links(page, text):
    """Relative links of a Markdown text that lead to no file; links to other sites are not ours to check."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [target for target in targets if ":" not in target and not (page.parent / target).exists()]


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    assert not broken_links(REPO / name, (REPO / name).read_text())


def test_a_broken_link_is_found():
    assert broken_links(REPO / "README.md", "[a](docs/no-such-page.md) [b](README.md) [c](https://example.org/x)") == [
        "docs/no-such-page.md"]


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
    files = re.findall(r"`((?:tests|gateway|model|shm|proto|services|sampler|tokenizer)/[\w/.*]+)`", text)
    assert [name for name in files if not list(REPO.glob(name))] == []
