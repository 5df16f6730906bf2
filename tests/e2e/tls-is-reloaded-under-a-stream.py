# `tls:` serves HTTPS, a new certificate is taken over on SIGHUP, and a stream that is open meanwhile goes on.
# serial
# needs: openssl
from t import *
import ssl

def cert(cn):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", KEY, "-out", CRT,
                    "-subj", f"/CN={cn}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)

def peer():
    """The name in the certificate that a new connection is shown."""
    c = ssl._create_unverified_context()
    with c.wrap_socket(socket.create_connection(("127.0.0.1", PORT), 10), server_hostname="localhost") as s:
        der = s.getpeercert(True)
    text = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-subject"], input=der, capture_output=True).stdout.decode()
    return text.strip().split("=")[-1].strip()

CRT, KEY = os.path.join(DIR, "tls.crt"), os.path.join(DIR, "tls.key")
try:
    cert("first")
    with main_with(tls={"cert": CRT, "key": KEY}) as d, sandbox() as id:
        equal(peer(), "first")
        key = api("POST", "/v1/keys", {"name": "tls-test", "scope": "use"}, status=201).json
        c = http.client.HTTPSConnection("127.0.0.1", PORT, timeout=30, context=ssl._create_unverified_context())
        c.request("POST", f"/v1/sandboxes/{id}/exec", json.dumps({"shell": "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.4; done"}), {"Authorization": "Bearer " + key["key"]})
        r = c.getresponse()
        equal(r.status, 200)
        text = b""
        while b'"1\\n"' not in text:
            text += r.readline()
        cert("second")
        os.kill(d.pid, signal.SIGHUP)
        wait_for(lambda: peer() == "second", 10, "the new certificate")
        text += r.read()
        for i in range(1, 9):
            equal(text.count(f'"data":"{i}\\n"'.encode()), 1, f"chunk {i}")
        check(b'"code":0' in text, "its exit")
        c.close()
        # A broken file is told and the good one stays.
        open(CRT, "w").write("no certificate")
        os.kill(d.pid, signal.SIGHUP)
        time.sleep(0.5)
        equal(peer(), "second")
        # Plain HTTP to that port is no crash.
        r = raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", where=("127.0.0.1", PORT))
        api("DELETE", f"/v1/keys/{key['id']}", status=(200, 204))
        r = cli("--host", f"https://127.0.0.1:{PORT}", "ls", code=1)
        check(re.search("certificate|TLS", r.err, re.I), f"the CLI does not trust it: {r.err}")
finally:
    for f in (CRT, KEY):
        if os.path.exists(f):
            os.unlink(f)
