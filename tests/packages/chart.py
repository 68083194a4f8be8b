"""The chart for Kubernetes, as helm renders it."""

import subprocess

import yaml  # awscli needs it, too

from harness.server import ROOT

# Made by `tests/install --packages`.
HELM = ROOT / "target/clients/helm"
CHART = ROOT / "contrib/chart"
# That of `go install` knows no version of Kubernetes.
KUBERNETES = "1.33.0"


def helm(verb, *words):
    command = [HELM, *verb, CHART, "--kube-version", KUBERNETES, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def values(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def rendered(*settings):
    """The objects that an installation named `store` makes with these values."""
    done = helm(["template", "store"], *values(*settings))
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def pods(objects):
    """{name: pod} of what has pods."""
    return {
        found["metadata"]["name"]: found["spec"]["template"]["spec"]
        for found in objects
        if found["kind"] in ("StatefulSet", "Deployment", "DaemonSet")
    }


def containers(*settings):
    return [container for pod in pods(rendered(*settings)).values() for container in pod["containers"]]
