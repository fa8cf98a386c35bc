"""A worker that answers the protocol without any runtime, and misbehaves as its first argument says."""

import json
import os
import signal
import sys
import time


def main(mode):
    for line in sys.stdin:
        message = json.loads(line)
        if mode == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode == "exit":
            print("giving up", file=sys.stderr)
            return 3
        if mode == "hang":
            time.sleep(600)
        if mode == "garbage":
            print("no json", flush=True)
            continue
        if mode == "error":
            print(json.dumps({"error": {"type": "ValueError", "message": "wrong"}}), flush=True)
            continue
        print(json.dumps({"echo": message, "threads": os.environ["TVM_NUM_THREADS"]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
