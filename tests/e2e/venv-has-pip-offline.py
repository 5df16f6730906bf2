# `python3 -m venv` gives an environment with a pip of its own, without a network: the wheels are in the image.
# limit: 500
from t import *

with sandbox(timeout=490) as id:
    # Unpacking pip under emulation takes its time, the more so on a busy host.
    out(id, "python3 -m venv /tmp/v", timeout=400)
    equal(out(id, "/tmp/v/bin/python -c 'import sys, pip; print(sys.prefix, pip.__file__)'"), "/tmp/v /tmp/v/lib/python3.11/site-packages/pip/__init__.py")
    check(out(id, "/tmp/v/bin/pip --version", timeout=90).startswith("pip "), "pip in the environment")
