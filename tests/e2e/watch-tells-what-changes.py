# A watch streams creations, writes, renames and removals below a directory, recursively when asked.
from t import *

with sandbox() as id:
    sh(id, "mkdir -p /tmp/w/sub")
    with Stream("GET", f"/v1/sandboxes/{id}/watch?path=/tmp/w&recursive=1", timeout=20) as s:
        it = iter(s)
        equal(next(it).event, "start")
        sh(id, "cd /tmp/w && echo a > f && echo b >> sub/g && mv f h && chmod 600 h && rm h && mkdir new && sleep 0.5 && echo c > new/i")
        seen, need = [], {("create", "f"), ("write", "f"), ("create", "g"), ("rename", "f"), ("chmod", "h"), ("remove", "h"), ("create", "new"), ("create", "i")}
        for e in it:
            seen.append((e.event, os.path.basename(e.data["path"]) if e.data.get("path") else e.data["name"]))
            seen.append((e.event, os.path.basename(e.data.get("name") or "")))
            if need <= set(seen):
                break
        check(need <= set(seen), f"missing {need - set(seen)} in {seen}")
    error("GET", f"/v1/sandboxes/{id}/watch?path=/no/such", status=404, code="file_not_found")
    error("GET", f"/v1/sandboxes/{id}/watch", status=400)
