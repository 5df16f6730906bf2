# A bug report holds none of what SECURITY.md says is taken out: keys of the API, the key of attach tokens, the TLS key, tokens, environments, metadata and labels; nor command lines and output.
# serial
# needs: openssl
from t import *
import ssl, tarfile

MARK = "conspicuous"  # everything that must not be in it holds this, or is in SECRETS
CRT, KEY = os.path.join(DIR, "report.crt"), os.path.join(DIR, "report.key")
REPORT = os.path.join(DIR, "report.tar.gz")
subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", KEY, "-out", CRT,
                "-subj", "/CN=report"], check=True, capture_output=True)
secrets = {f"line {i} of the TLS key": l.encode() for i, l in enumerate(open(KEY).read().splitlines()) if "-----" not in l}
attach = open(os.path.join(RUN["state"], "attach.key"), "rb").read()
secrets.update({"attach.key": attach, "attach.key in hex": attach.hex().encode(), "attach.key in base64": base64.b64encode(attach).rstrip(b"=")})
node = None
try:
    with main_with(tls={"cert": CRT, "key": KEY}), sandbox(env={"TOKEN": f"{MARK}-env"}, metadata={"who": f"{MARK}-metadata"}) as id:
        key = api("POST", "/v1/keys", {"name": "report", "scope": "use"}, status=201).json
        secrets["a key"] = key["key"].removeprefix("space_").encode()
        a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": f": {MARK}-argument; echo {MARK}-output; sleep 60", "env": {"A": f"{MARK}-of-a-command"}}, status=201).json
        secrets["an attach token"] = a["attach_token"].encode()
        # It is used once, as in the address of a stream that is taken up again.
        with Stream("GET", f"{a['output']}?attach_token={urllib.parse.quote(a['attach_token'])}") as s:
            next(iter(s))
        node = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": f"{MARK}-label"}, status=201, timeout=60).json["id"]
        error("GET", f"/v1/sandboxes?metadata.who={MARK}-unknown&nonsense=1", status=400)
        # A key that comes over the network, right and wrong.
        wrong = "space_" + "0123456789abcdef" * 3
        secrets["a wrong key"] = wrong.removeprefix("space_").encode()
        for k, want in ((key["key"], 200), (wrong, 401)):
            c = http.client.HTTPSConnection("127.0.0.1", PORT, timeout=30, context=ssl._create_unverified_context())
            c.request("GET", "/v1/sandboxes", headers={"Authorization": "Bearer " + k})
            equal(c.getresponse().status, want, "a call over TLS")
            c.close()
        cli("bugreport", "--state-dir", RUN["state"], "-o", REPORT)
        # Its own file is not for everybody to read.
        equal(os.stat(REPORT).st_mode & 0o077, 0, "its mode")
        with tarfile.open(REPORT) as t:
            parts = {m.name.partition("/")[2]: t.extractfile(m).read() for m in t.getmembers() if m.isfile()}
        check({"host.json", "config.json", "sandboxes.json", "events.json", "doctor.json"} <= set(parts), f"{sorted(parts)}")
        check(id.encode() in parts["sandboxes.json"] and b"***" in parts["sandboxes.json"], "it does not tell of the sandbox")
        for name, text in parts.items():
            at = text.find(MARK.encode())
            check(at < 0, f"{name}: {text[max(at - 80, 0):at + 40]!r}")
            for what, value in secrets.items():
                check(value not in text, f"{name} holds {what}")
        api("DELETE", f"/v1/keys/{key['id']}", status=204)
finally:
    node and api("DELETE", f"/v1/checkpoints/{node}", status=204)
    for f in (CRT, KEY, REPORT):
        os.path.exists(f) and os.unlink(f)
