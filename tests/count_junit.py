"""Prints "passed failed skipped" of a JUnit file, as pytest and ctest write it."""

import sys
from xml.etree import ElementTree


def count(path):
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


print(*count(sys.argv[1]))
