"""One request, one result, one process.

The request is `{"verb": ..., "arguments": {...}}`, the result `{"ok": value}` or `{"error": {"stage", "kind",
"message"}}`. Meanwhile events come as JSON lines on standard output; whatever TVM prints goes to standard error.
"""

import json
import os
import sys
import traceback

from .refused import Refused


def main(request_path, result_path):
    """Do what the request asks for. Returns the exit code: 0, also for an error that the result describes."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(request_path) as file:
        request = json.load(file)
    result = _answer(request, events)
    # Whole or not at all: a result that is there can be read.
    with open(result_path + ".part", "w") as file:
        json.dump(result, file)
    os.replace(result_path + ".part", result_path)
    return 0


def _answer(request, events):
    stage = ["start"]

    def report(event, **fields):
        if event == "stage":
            stage[0] = fields["name"]
        events.write(json.dumps(dict(fields, event=event)) + "\n")
        events.flush()

    try:
        # Imported here, so that a TVM that does not start is an error like any other.
        from .verbs import VERBS

        return {"ok": VERBS[request["verb"]](report=report, **request["arguments"])}
    except Refused as error:
        return {"error": {"stage": error.stage, "kind": "Refused", "message": error.message}}
    except Exception as error:
        traceback.print_exc()
        message = "%s: %s" % (type(error).__name__, first_message(error))
        return {"error": {"stage": stage[0], "kind": type(error).__name__, "message": message}}


def first_message(error):
    """The line of an error that says what is wrong: TVM puts a stack trace before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Error: " in line or "Check failed" in line]
    return (said or lines or ["no message"])[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
