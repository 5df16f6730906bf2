# 200 creates at once with memory for three or four: as many as fit run, the others answer no_capacity, none is half made; killing one makes room for one.
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
    check(len(got) in (3, 4), f"{len(got)} were made")
    equal((len(got) + len(errors), codes), (200, {"no_capacity"}))
    check(all(e["remedy"] for e in errors), "each with a remedy")
    equal(len(api("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]), len(got))
    m = api("GET", "/v1/host").json["memory"]
    each = m["reserved"] // len(got)
    check(512 << 20 <= each < 640 << 20 and m["reserved"] <= m["limit"] < m["reserved"] + each, f"{m}: as many as fit")
    for s in got:
        equal(out(s["id"], "echo ok"), "ok")
    api("DELETE", f"/v1/sandboxes/{got[0]['id']}")
    with sandbox() as id:
        equal(out(id, "echo ok"), "ok")
        error("POST", "/v1/sandboxes", {}, status=503, code="no_capacity")
    for s in got:
        api("DELETE", f"/v1/sandboxes/{s['id']}")
