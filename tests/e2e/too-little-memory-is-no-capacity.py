# 200 creates at once with memory for four: four run, 196 answer no_capacity, none is half made; killing one makes room for one.
# serial
# limit: 240
from t import *

with main_with(memory_limit="1400M", overcommit=1.5, ready_monitors=0):
    got, errors, lock = [], [], threading.Lock()

    def make():
        try:
            a = api("POST", "/v1/sandboxes", {"timeout": 120}, status=(201, 503), timeout=150)
            with lock:
                (got if a.status == 201 else errors).append(a.json)
        except Exception as e:
            with lock:
                errors.append({"code": f"{type(e).__name__}: {e}"})

    threads = [threading.Thread(target=make) for _ in range(200)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    codes = {e["code"] for e in errors}
    equal((len(got), len(errors), codes), (4, 196, {"no_capacity"}))
    check(all(e["remedy"] for e in errors), "each with a remedy")
    equal(len(api("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]), 4)
    host = api("GET", "/v1/host").json
    equal(host["memory"]["reserved"], 4 * (512 << 20), "reserved")
    for s in got:
        equal(out(s["id"], "echo ok"), "ok")
    api("DELETE", f"/v1/sandboxes/{got[0]['id']}")
    with sandbox() as id:
        equal(out(id, "echo ok"), "ok")
        error("POST", "/v1/sandboxes", {}, status=503, code="no_capacity")
    for s in got:
        api("DELETE", f"/v1/sandboxes/{s['id']}")
