# The JavaScript client with real guests: create, run, stream, cut and resume, tokens, files, tar, watch, ports, events, operations, errors, over socket and TCP.
# limit: 240
# needs: node
from t import *

script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clients/real.mjs")
env = {**os.environ, "SPACE_SOCKET": SOCKET, "TCP": f"http://127.0.0.1:{PORT}", "SCRATCH": DIR}
p = subprocess.run(["node", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=230, env=env)
print(p.stdout[-2000:])
check(p.returncode == 0, f"status {p.returncode}: {p.stderr[-3000:]}")
