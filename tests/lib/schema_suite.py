"""The public JSON-Schema-Test-Suite, as the source archive of jsonschema carries it; fetched once and kept in the cache."""

import json
import pathlib
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clients  # noqa: E402

VERSION = "jsonschema==4.26.0"
DIALECT = "draft2020-12"


def fetch(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                    "--no-binary", "jsonschema", "-d", folder, VERSION], check=True)
    archive, = folder.glob("jsonschema-*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            parts = pathlib.PurePosixPath(member.name).parts
            if member.isfile() and parts[1:4] == ("json", "tests", DIALECT):
                target = folder.joinpath(*parts[4:])
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())
    archive.unlink()


def cases():
    """[(keyword, case)]: of the required files, and of the optional ones those about format; without what is on other hosts."""
    folder = clients.kept("schema-suite", VERSION, fetch)
    files = sorted(folder.glob("*.json")) + sorted(folder.glob("optional/format/*.json"))
    return [("format: " * ("format" in path.parts[-2]) + path.stem, case)
            for path in files for case in json.loads(path.read_text())]


if __name__ == "__main__":  # to have it fetched beside other work
    print(len(cases()), "schemas")
