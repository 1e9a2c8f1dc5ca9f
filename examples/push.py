"""Writes a reply into a session from outside; killed and started again, it goes on where the log ends. Standard library only.
   python3 push.py http://localhost:8787 SESSION RUN"""
import json, os, re, sys, time
from urllib import error, parse, request

origin, session, run = (sys.argv[1:] + ["http://localhost:8787", "demo", "reply-1"][len(sys.argv) - 1:])[:3]
URL = f"{origin}/sessions/{parse.quote(session, safe='')}/runs"
PACE = int(os.environ.get("PACE_MS", "100")) / 1000

# The reply must be the same on every start, because what is stored is told by its number only.
WORDS = re.split(r"(?<= )", "This reply is written from outside, word by word, and survives the death of its writer.")
CHUNKS = [
    {"type": "start-step"},
    {"type": "text-start", "id": "t"},
    *({"type": "text-delta", "id": "t", "delta": word} for word in WORDS),
    {"type": "text-end", "id": "t"},
    {"type": "finish-step"},
    {"type": "finish", "finishReason": "stop"},
]


def post(path, body, headers={}):
    """One request, repeated while the server is away: the numbers make a repeat harmless."""
    for _ in range(60):
        sent = request.Request(URL + path, json.dumps(body).encode(), {"content-type": "application/json", **headers})
        try:
            with request.urlopen(sent, timeout=30) as response:
                return response.status, json.load(response)
        except error.HTTPError as refused:
            if refused.code < 500:
                return refused.code, json.load(refused)
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit(f"no answer from {URL}")


# Opens the run, or claims it again: then `epoch` is higher, and `expected` says how much is stored.
message = {"id": f"{run}-question", "role": "user", "parts": [{"type": "text", "text": "Are you there?"}]}
status, claim = post("", {"runId": run, "vocabulary": "ui", "message": message})
if status >= 300:
    over = claim["code"] == "state_run_ended"
    sys.exit(print(f"the run is over already: {claim['runStatus']}") if over else claim["error"])
print(f"epoch {claim['epoch']}, {claim['expected']} stored", flush=True)


def take(path, body, number):
    status, answer = post(f"/{run}/{path}", body, {"producer-epoch": str(claim["epoch"]), "producer-seq": str(number)})
    if status != 200:  # 403: another process has claimed the run
        sys.exit(print("stopped by a client") if answer.get("stopRequested") else answer["error"])


for number in range(claim["expected"], len(CHUNKS)):
    take("chunks", [CHUNKS[number]], number)
    time.sleep(PACE)
if claim["expected"] <= len(CHUNKS):
    take("commit", {}, len(CHUNKS))
take("end", {"status": "completed"}, len(CHUNKS) + 1)
print("written")
