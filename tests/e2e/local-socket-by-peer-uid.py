# The local socket asks who calls: another uid is refused by its mode, and by spaced where the mode was widened; members of socket_group are let in.
# serial
# needs: setpriv curl groupadd
from t import *
import stat

GROUP, MEMBER, STRANGER = "space-test-g", "space-test-m", 65534

def curl(path, *who):
    p = subprocess.run(["setpriv", *who, "curl", "-sS", "-m", "20", "-o", "-", "-w", "\n%{http_code}", "--unix-socket", SOCKET, "http://x" + path],
                       capture_output=True, text=True)
    body, _, code = p.stdout.rpartition("\n")
    return p.returncode, int(code or 0), body

def other(path):
    return curl(path, f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")

st = os.stat(SOCKET)
equal((st.st_uid, stat.S_IMODE(st.st_mode) & 0o117), (0, 0), "the socket is root's, and others may not open it")
equal(other("/v1/sandboxes")[:2], (7, 0), "another uid cannot connect")
equal(curl("/v1/sandboxes", "--reuid=0", "--clear-groups")[:2], (0, 200), "root")
# Its mode is the first door only.
os.chmod(SOCKET, 0o666)
try:
    for path in ("/v1/sandboxes", "/v1/host", "/metrics", "/v1/events"):
        rc, code, body = other(path)
        equal((rc, code), (0, 403), path)
        e = json.loads(body)
        check(e["code"] == "forbidden" and str(STRANGER) in e["message"] and e["remedy"], f"{e}")
    equal(other("/healthz")[1], 200, "what is public is so here too")
    # No group asks for root's rights by name.
    equal(curl("/v1/sandboxes", f"--reuid={STRANGER}", "--regid=0", "--clear-groups")[1], 403, "group root is not uid root")
finally:
    os.chmod(SOCKET, stat.S_IMODE(st.st_mode))

subprocess.run(["groupadd", "--system", GROUP], check=True)
try:
    subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "-G", GROUP, MEMBER], check=True)
    with main_with(socket_group=GROUP):
        member = (f"--reuid={MEMBER}", f"--regid={MEMBER}", "--init-groups")
        rc, code, body = curl("/v1/sandboxes", *member)
        equal((rc, code), (0, 200), f"a member of the group: {body}")
        p = subprocess.run(["setpriv", *member, SPACE, "ls", "--json"], capture_output=True, text=True, env=cli_env())
        equal(p.returncode, 0, f"space as a member: {p.stderr}")
        equal(other("/v1/sandboxes")[:2], (7, 0), "who is no member")
    # Not configured any more, and so not let in any more.
    equal(curl("/v1/sandboxes", *member)[:2], (7, 0), "the group is not asked about without socket_group")
finally:
    subprocess.run(["userdel", MEMBER], stderr=subprocess.DEVNULL)
    subprocess.run(["groupdel", GROUP], stderr=subprocess.DEVNULL)
