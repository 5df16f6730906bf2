#!/usr/bin/env python3
"""The guest protocol, point by point, against `space-agent --test` on this host. As root.

usage: test_agent.py BINARY [WORD]...    only tests whose names have one of the words
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import lib
import test_files
import test_host
import test_process


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    if os.geteuid() != 0:
        print("skipped: needs root")
        return 77
    agent = lib.Agent(os.path.abspath(sys.argv[1]), "--slow-ms", "1500")
    passed = failed = 0
    try:
        for module in (test_process, test_files, test_host):
            tests = {k: v for k, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
            p, f = lib.run_tests(tests, sys.argv[2:], agent)
            passed += p
            failed += f
            if agent.proc.poll() is not None:
                print("FAIL the agent has died: " + open(os.path.join(agent.dir, "log")).read()[-2000:])
                failed += 1
                break
        if failed:
            print(open(os.path.join(agent.dir, "log")).read()[-3000:])
    finally:
        agent.stop()
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
