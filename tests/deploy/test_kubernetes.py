"""deploy/kubernetes against the API server's own schemas, strictly: an unknown field is an error."""

import pathlib

import kubernetes_validate
import pytest
import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy/kubernetes"
VERSIONS = ("1.28", "1.33", kubernetes_validate.latest_version())
MANIFESTS = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schema(path, version):
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_field_is_found():
    """The check above can fail."""
    document = documents(FOLDER / "deployment.yaml")[0]
    document["spec"]["replicsa"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


def test_kustomizations_name_what_is_there():
    named = set(documents(FOLDER / "kustomization.yaml")[0]["resources"])
    assert named == {path.name for path in MANIFESTS}
    overlay = documents(FOLDER / "npu/kustomization.yaml")[0]
    assert all((FOLDER / "npu" / resource).resolve() == FOLDER for resource in overlay["resources"])
    kinds = {(document["kind"], document["metadata"]["name"]) for path in MANIFESTS for document in documents(path)}
    for patch in overlay["patches"]:
        target = patch.get("target") or yaml.safe_load(patch["patch"])
        found = (target["kind"], target.get("name") or target["metadata"]["name"])
        assert found in kinds, f"no {found} to patch"


def test_a_pod_is_a_whole_pipeline():
    deployment = next(d for path in MANIFESTS for d in documents(path) if d["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    containers = {container["name"]: container for container in pod["containers"]}
    assert set(containers) == {"keeper", "tokenizer", "npu-worker", "sampler", "gateway"}
    assert all(volume["emptyDir"]["medium"] == "Memory" for volume in pod["volumes"] if "emptyDir" in volume)
    assert containers["gateway"]["readinessProbe"] and containers["gateway"]["livenessProbe"]
    bulk = {name for name, container in containers.items() if any(mount["name"] == "bulk" for mount in container["volumeMounts"])}
    assert bulk == {"keeper", "npu-worker", "sampler"}
