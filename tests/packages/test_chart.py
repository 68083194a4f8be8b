"""helm accepts the chart in each of its modes, with and without the driver and TLS."""

import itertools

import pytest

from packages.chart import HELM, helm, pods, rendered, values

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="no helm here")

MODES = {
    "single": {"store-server"},
    "cluster": {"store-master", "store-chunkserver", "store-gateway"},
    "gateways": {"store-gateway"},
}
DRIVER = {
    "no driver": [],
    "nfs": ["csi.enabled=true", "csi.nfs=store", "csi.nfsClients={192.168.10.0/24}"],
    "mount": ["csi.enabled=true", "csi.with=mount", "csi.mountUser=pods", "csi.mountSecret=pods"],
}
TLS = {"no TLS": [], "TLS": ["tlsSecret=cert", "csi.caSecret=authority"]}
ALL = list(itertools.product(MODES, DRIVER, TLS))


@pytest.mark.parametrize("mode,driver,tls", ALL, ids=str)
def test_helm_accepts_the_chart(mode, driver, tls):
    settings = [f"mode={mode}", *DRIVER[driver], *TLS[tls]]
    done = helm(["lint", "--strict"], *values(*settings))
    assert done.returncode == 0, done.stdout + done.stderr
    objects = rendered(*settings)
    found = pods(objects)
    assert set(found) == MODES[mode] | ({"store-csi-controller", "store-csi-node"} if DRIVER[driver] else set())
    for role in MODES[mode]:
        check_pod(found[role])
    doors = found["store-server" if mode == "single" else "store-gateway"]["containers"][0]
    assert ("--tls-cert=/tls/tls.crt" in doors["args"]) == bool(TLS[tls])
    assert doors["readinessProbe"]["httpGet"]["scheme"] == ("HTTPS" if TLS[tls] else "HTTP")
    assert ("StorageClass" in {found["kind"] for found in objects}) == bool(DRIVER[driver])


def check_pod(pod):
    """Of the store: no root, no right that it does not need."""
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and context["capabilities"] == {"drop": ["ALL"]}, container["name"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pod.get("volumes", [])} | {"data"}, container["name"]


@pytest.mark.parametrize(
    "settings,says",
    [
        (["mode=three"], "mode is single, cluster or gateways"),
        (["csi.enabled=true"], "csi.nfs and csi.nfsClients are needed"),
        (["csi.enabled=true", "csi.with=mount"], "csi.mountUser and csi.mountSecret are needed"),
    ],
)
def test_values_that_make_no_sense_are_refused(settings, says):
    done = helm(["template", "store"], *values(*settings))
    assert done.returncode != 0 and says in done.stderr, done.stderr
