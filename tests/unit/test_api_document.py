"""docs/api.md names every parameter of the gateway's table, and no other."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_every_parameter_is_documented():
    source = (ROOT / "gateway/api/api_params.c").read_text()
    table = re.search(r"params\[\] = \{(.*?)\n\};", source, re.S)[1]
    names = set(re.findall(r'\b(?:BOOL|INT|REAL|LOCAL|CUSTOM|IGNORED|REFUSED)\(\s*"(\w+)"', table))
    assert len(names) > 50
    text = (ROOT / "docs/api.md").read_text()
    section = re.search(r"## Parameters\n(.*?)\n## ", text, re.S)[1]
    assert names - set(re.findall(r"`(\w+)`", section)) == set()
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} - names == set()
