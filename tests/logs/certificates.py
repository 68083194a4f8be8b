"""Certificates of a server, of senders, and of the authority that signs those of senders."""

import subprocess


class Certificates:
    """`cert.pem` of the server; `sender.pem` and `stranger.pem`, of which `senders.pem` signed one."""

    def __init__(self, work):
        self.work = work
        self._make("cert", "CN=cairn", "CA:FALSE", names="IP:127.0.0.1")
        self.authority("senders")
        self.authority("others")
        self.sender("sender", "senders")
        self.sender("stranger", "others")

    def _make(self, name, subject, basic, names=None, signed_by=None):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-nodes", "-days", "7", "-subj", f"/{subject}", "-keyout", self.work / f"{name}.key"]
        command += ["-out", self.work / f"{name}.pem", "-addext", f"basicConstraints=critical,{basic}"]
        if names:
            command += ["-addext", f"subjectAltName={names}"]
        if signed_by:
            command += ["-CA", self.work / f"{signed_by}.pem", "-CAkey", self.work / f"{signed_by}.key"]
        subprocess.run(command, check=True, capture_output=True)

    def authority(self, name):
        self._make(name, f"CN={name}", "CA:TRUE")

    def sender(self, name, authority):
        self._make(name, f"CN={name}", "CA:FALSE", names=f"DNS:{name}", signed_by=authority)

    def args(self):
        """Those of a server that takes syslog from senders with certificates."""
        tls = ["--tls-cert", self.work / "cert.pem", "--tls-key", self.work / "cert.key"]
        door = ["--syslog", "127.0.0.1:0", "--syslog-user", "root", "--syslog-tls"]
        return [str(word) for word in [*tls, *door, "--syslog-client-ca", self.work / "senders.pem"]]
