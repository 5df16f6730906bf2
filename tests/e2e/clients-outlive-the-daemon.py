# Both clients, over TLS, follow a command, events and an operation while the daemon is stopped, killed and started again; every line comes once.
# serial
# limit: 200
# needs: node openssl
from t import *

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "clients/python"))
from space import Space, SpaceError  # noqa: E402

CRT, KEY = os.path.join(DIR, "tls.crt"), os.path.join(DIR, "tls.key")
LINES = 60
COMMAND = f"for i in $(seq {LINES}); do echo $i; sleep 0.1; done; exit 7"
WANT = "".join(f"{i}\n" for i in range(1, LINES + 1))
JS = """
import { Space } from "%s";
const sb = await new Space().get(process.env.ID);
const p = await sb.start(%s);
console.log("started");
const r = await p.wait();
console.log(JSON.stringify([r.stdout, r.exit_code]));
""" % (os.path.join(root, "clients/js/space.mjs"), json.dumps(COMMAND))


def cert():
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", KEY, "-out", CRT,
                    "-subj", "/CN=here", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)


try:
    cert()
    with main_with(tls={"cert": CRT, "key": KEY}) as d, sandbox(timeout=150) as id:
        url = f"https://localhost:{PORT}"
        key = Space(SOCKET).create_key("outlive", scope="use")
        try:
            Space(url, key.key).host()
            fail("a certificate of nobody's is trusted")
        except SpaceError as e:
            equal(e.code, "daemon_down")
        os.environ.update(SPACE_URL=url, SPACE_API_KEY=key.key, SPACE_CA_FILE=CRT)
        js = subprocess.Popen(["node", "--input-type=module", "-e", JS], stdout=subprocess.PIPE, text=True, env={**os.environ, "ID": id})
        equal(js.stdout.readline(), "started\n")
        s = Space()
        sb = s.get(id)
        seen, results = [], []
        events = sb.follow_events(after=0)

        def follow():
            for e in events:
                seen.append(e.seq)

        p = sb.start(COMMAND)
        threads = [threading.Thread(target=follow), threading.Thread(target=lambda: results.append(p.wait()))]
        for t in threads:
            t.start()
        for sig in (signal.SIGTERM, signal.SIGKILL):
            time.sleep(1)
            d.restart(sig)
        threads[1].join(60)
        check(results, "the command's stream ended")
        equal((results[0].stdout, results[0].exit_code), (WANT, 7), "what Python saw")
        equal(json.loads(js.communicate(timeout=60)[0]), [WANT, 7], "what JavaScript saw")
        sb.pause()
        wait_for(lambda: seen and seen[-1] == list(sb.events())[-1].seq, 15, "the events that are followed")
        equal(seen, [e.seq for e in sb.events()], "each event once")
        events.close()
        threads[0].join(10)
        check(not threads[0].is_alive(), "close() ends the other thread's stream")
        sb.wake()
        # A tunnel and a port through TLS.
        server = sb.detach("exec python3 -m http.server 8000 --directory /etc")
        wait_for(lambda: sb.request(8000, "GET", "/hostname").status == 200, 30, "the server")
        c = sb.connect(8000)
        c.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
        got = b""
        while b := c.recv(1000):
            got += b
        c.close()
        check(b"200 OK" in got and got.endswith(sb.read("/etc/hostname")), f"through the tunnel: {got!r}")
        server.kill()
        Space(SOCKET).delete_key(key)
finally:
    for f in (CRT, KEY):
        if os.path.exists(f):
            os.unlink(f)
