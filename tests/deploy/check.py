"""check.py BINARY DEPLOY: every file of deploy/ is what it says it is.

Kubernetes' own objects against its JSON schemas (package kubernetes-validate), those of the Gateway API and its inference
extension against the fields that we use, names and ports against each other, and every setting against the binary. The chart is
rendered by tests/deploy/render.go where there is a Go with sprig; nothing is applied to a cluster here.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

BINARY, DEPLOY = sys.argv[1], Path(sys.argv[2])
KUBERNETES = "1.33"
KNOWN = {"apps/v1", "v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1"}
# What we use of the kinds that are no part of Kubernetes: path of a mapping, keys it may have.
CUSTOM = {
    ("gateway.networking.k8s.io/v1", "Gateway"): {"gatewayClassName", "listeners"},
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): {"parentRefs", "rules"},
    ("inference.networking.k8s.io/v1", "InferencePool"): {"selector", "targetPorts", "endpointPickerRef"},
}


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def validate(document, where):
    version, kind = document["apiVersion"], document["kind"]
    if version.startswith("kustomize.config.k8s.io") or kind == "EndpointPickerConfig":
        return
    if version in KNOWN:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        return
    assert (version, kind) in CUSTOM, f"{where}: nobody checks {version} {kind}"
    assert set(document["spec"]) <= CUSTOM[version, kind], f"{where}: {set(document['spec'])}"


def one(objects, kind, suffix=""):
    found = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, f"{len(found)} of {kind} {suffix}"
    return found[0]


def settings(container, environment):
    """What the pod's environment makes of the configuration, as the binary reads it."""
    for entry in container["env"]:
        if not entry["name"].startswith("FOREBAY__"):
            continue
        if "value" in entry:
            environment[entry["name"]] = entry["value"].replace("$(POD_IP)", "10.1.2.3")
        elif entry["name"] == "FOREBAY__STORE__URL":
            environment[entry["name"]] = "postgres://forebay:secret@postgres/forebay"
        elif entry["name"] == "FOREBAY__KEYS__SECRET":
            environment[entry["name"]] = "0123456789abcdef" * 4
        else:
            environment[entry["name"]] = container["resources"]["requests"]["cpu"]
    result = subprocess.run([BINARY, "config"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # key = value  # origin
    lines = (line.rsplit("  # ", 1)[0].split(" = ", 1) for line in result.stdout.splitlines())
    return {key: value.strip('"') for key, value in lines}


def check_replicas(objects, where):
    deployment = next(each for each in objects if each["kind"] == "Deployment" and not each["metadata"]["name"].endswith("-epp"))
    pod = deployment["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]

    def selects(selector):
        return selector.items() <= labels.items()

    container = spec["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    # As the image sets them, where the pod does not.
    effective = settings(container, {**os.environ, "FOREBAY__SERVER__HOST": "0.0.0.0", "FOREBAY__SERVER__INSECURE": "true"})
    assert effective["server.port"] == str(ports["http"]), effective["server.port"]
    drain = int(effective["engine.drain_timeout"].rstrip("s"))
    stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > drain + stop, f"{where}: killed before it is drained"
    assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in spec["volumes"]}
    assert mounted["data"] == "/var/lib/forebay", "the image's working directory"
    for probe, path in [("startupProbe", "/health/ready"), ("readinessProbe", "/health/ready"), ("livenessProbe", "/health/live")]:
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}, f"{where}: {probe}"
    assert selects(deployment["spec"]["selector"]["matchLabels"])
    for each in objects:
        if each["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            selector = each["spec"].get("selector") or each["spec"]["podSelector"]
            assert selects(selector["matchLabels"]), f"{where}: {each['kind']} selects others"
        if each["kind"] == "Service" and not each["metadata"]["name"].endswith("-epp"):
            assert selects(each["spec"]["selector"]) and each["spec"]["ports"][0]["port"] == ports["http"]
        if each["kind"] == "HorizontalPodAutoscaler":
            assert each["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
            adapter = yaml.safe_load((DEPLOY / "kubernetes/prometheus-adapter.values.yaml").read_text())
            names = [rule["name"]["as"] for rule in adapter["rules"]["custom"]]
            assert each["spec"]["metrics"][0]["pods"]["metric"]["name"] in names
    if "kv-events" in ports:
        for key, name in [("endpoint", "kv-events"), ("replay_endpoint", "kv-replay")]:
            assert effective[f"kv_events.{key}"].endswith(f":{ports[name]}"), effective
        topic = effective["kv_events.topic"].split("@")
        assert topic == ["kv", "10.1.2.3", effective["model.served_names"].split(",")[0]], topic
    return ports, effective, labels


def check_gateway(objects, picker, ports, effective, labels, where):
    pool, route = one(objects, "InferencePool"), one(objects, "HTTPRoute")
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pool["spec"]["targetPorts"] == [{"number": ports["http"]}]
    backends = [backend for rule in route["spec"]["rules"] for backend in rule["backendRefs"]]
    assert [(each["group"], each["kind"], each["name"]) for each in backends] == [
        ("inference.networking.k8s.io", "InferencePool", pool["metadata"]["name"])
    ]
    reference, service, epp = pool["spec"]["endpointPickerRef"], one(objects, "Service", "-epp"), one(objects, "Deployment", "-epp")
    assert reference["name"] == service["metadata"]["name"]
    assert reference["port"]["number"] == service["spec"]["ports"][0]["port"] == 9002
    template = epp["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert f"--pool-name={pool['metadata']['name']}" in template["spec"]["containers"][0]["args"]
    declared = {plugin["type"]: plugin.get("parameters", {}) for plugin in picker["plugins"]}
    used = [entry["pluginRef"] for profile in picker["schedulingProfiles"] for entry in profile["plugins"]]
    for source in picker.get("dataLayer", {}).get("sources", []):
        used += [source["pluginRef"], *(entry["pluginRef"] for entry in source["extractors"])]
    assert set(used) <= set(declared), f"{where}: {set(used) - set(declared)} are used and not declared"
    if "precise-prefix-cache-producer" in declared:
        size = declared["precise-prefix-cache-producer"]["tokenProcessorConfig"]["blockSize"]
        assert str(size) == effective["kv_cache.block_size"], "blocks of the picker are blocks of the replicas"
        assert declared["token-producer"]["modelName"] == effective["model.served_names"].split(",")[0]


def manifests():
    folder = DEPLOY / "kubernetes"
    listed = {name: yaml.safe_load((name / "kustomization.yaml").read_text()) for name in (folder, folder / "gateway")}
    objects = {}
    for name, kustomization in listed.items():
        objects[name] = [each for file in kustomization["resources"] for each in documents((name / file).read_text())]
        for each in objects[name]:
            validate(each, name)
        present = {path.name for path in name.glob("*.yaml")}
        apart = {"kustomization.yaml", "secret.example.yaml", "prometheus-adapter.values.yaml", "epp-config.yaml"}
        assert present - apart == set(kustomization["resources"]), f"{name}: a file that nobody applies"
    secret = documents((folder / "secret.example.yaml").read_text())[0]
    validate(secret, "the secret")
    deployment = one(objects[folder], "Deployment")
    wanted = next(entry for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"] if entry["name"] == "FOREBAY__STORE__URL")
    reference = wanted["valueFrom"]["secretKeyRef"]
    assert reference["name"] == secret["metadata"]["name"] and reference["key"] in secret["stringData"]
    facts = check_replicas(objects[folder], "kubernetes/")
    picker = documents((folder / "gateway/epp-config.yaml").read_text())[0]
    check_gateway(objects[folder / "gateway"], picker, *facts, "kubernetes/gateway/")
    return deployment


def charts(plain):
    chart = DEPLOY / "helm/forebay"
    for file in ("Chart.yaml", "values.yaml"):
        assert documents((chart / file).read_text())
    needed = Path("/usr/share/gocode/src/github.com/Masterminds/sprig")
    if not needed.exists():
        assert "FOREBAY_TEST_DEPLOY" not in os.environ, "Go's sprig is missing; .ci/run installs it"
        return print("the chart was not rendered: there is no Go with sprig")
    everything = {
        "autoscaling": {"enabled": True}, "gateway": {"enabled": True}, "postgres": {"secret": "forebay-postgres"},
        "cacheClaim": "models", "keys": {"secret": "forebay-keys"}, "env": {"FOREBAY__BATCHING__STRATEGY": "latency_aware"},
        "kvCache": {"blockSize": 16}, "model": {"path": "org/name", "servedNames": ["tale", "other"]},
    }
    without = {"gateway": {"enabled": True}, "kvEvents": {"enabled": False}}
    with tempfile.TemporaryDirectory() as folder:
        render = f"{folder}/render"
        source = Path(__file__).with_name("render.go")
        go = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": f"{folder}/cache", "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", render, str(source)], env=go, check=True)
        for name, values in [("defaults", {}), ("everything", everything), ("without events", without)]:
            file = Path(folder) / "values.json"
            file.write_text(json.dumps(values))
            text = subprocess.run([render, str(chart), str(file)], check=True, capture_output=True, text=True).stdout
            assert "<no value>" not in text and "<nil>" not in text, f"{name}: a value that is not there"
            objects = documents(text)
            for each in objects:
                validate(each, f"chart, {name}")
            facts = check_replicas(objects, f"chart, {name}")
            kinds = {each["kind"] for each in objects}
            assert ("HorizontalPodAutoscaler" in kinds) == bool(values.get("autoscaling"))
            assert ("InferencePool" in kinds) == bool(values.get("gateway"))
            if values.get("gateway"):
                picker = yaml.safe_load(one(objects, "ConfigMap", "-epp")["data"]["epp-config.yaml"])
                check_gateway(objects, picker, *facts, f"chart, {name}")
            if name == "everything":
                assert facts[1]["batching.strategy"] == "latency_aware" and facts[1]["store.url"].startswith("postgres:")
            assert (facts[1]["keys.required"] == "true") == bool(values.get("keys"))
        rendered = next(each for each in objects if each["kind"] == "Deployment")
        ours, theirs = (each["spec"]["template"]["spec"]["containers"][0] for each in (plain, rendered))
        for part in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "resources", "securityContext"):
            assert ours[part] == theirs[part], f"chart and manifests differ in {part}"


def upstreams():
    result = subprocess.run([BINARY, "config", "--config", str(DEPLOY / "upstreams/config.yaml")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "http://10.20.0.11:8000" in result.stdout


charts(manifests())
upstreams()
