#!/bin/sh
# Writes a reply into a session from outside with curl alone; killed and started again, it goes on where the log ends.
#   sh push.sh http://localhost:8787 SESSION RUN
origin=${1:-http://localhost:8787} session=${2:-demo} run=${3:-reply-1}
url=$origin/sessions/$session/runs
# sleep takes seconds.
pace=${PACE_S:-0.1}

# The reply must be the same on every start, because what is stored is told by its number only: one chunk a line.
chunks() {
  echo '{"type":"start-step"}'
  echo '{"type":"text-start","id":"t"}'
  for word in This reply is written 'from' outside, word by word, and survives the death of its writer.; do
    printf '{"type":"text-delta","id":"t","delta":"%s "}\n' "$word"
  done
  echo '{"type":"text-end","id":"t"}'
  echo '{"type":"finish-step"}'
  echo '{"type":"finish","finishReason":"stop"}'
}
count=$(chunks | wc -l | tr -d ' ')

# post PATH HEADERS... <BODY: one request, repeated while the server is away; the answer lies in $answer.
post() {
  path=$1 && shift
  answer=$(curl -sS --retry 60 --retry-delay 1 --retry-connrefused --retry-all-errors -X POST "$url$path" "$@") || exit 1
}
number_of() { printf '%s' "$answer" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
has() { case $answer in *"$1"*) true ;; *) false ;; esac; }

claim() {
  post '' -H 'content-type: application/json' --data '{"runId":"'"$run"'","vocabulary":"ui","message":
    {"id":"'"$run"'-question","role":"user","parts":[{"type":"text","text":"Are you there?"}]}}'
  has '"code":"state_run_ended"' && echo 'the run is over already' && exit 0
  epoch=$(number_of epoch) expected=$(number_of expected)
  [ -n "$expected" ] || { echo "$answer" >&2; exit 1; }
  echo "epoch $epoch, $expected stored"
}

# Opens the run, or claims it again: then the epoch is higher, and `expected` says how much is stored.
claim
# One body that stays open for the whole reply: each line is stored as it comes. If it breaks, the rest follows from the number
# that the log expects.
while [ "$expected" -lt "$count" ]; do
  answer=$(chunks | tail -n +$((expected + 1)) | while IFS= read -r line; do printf '%s\n' "$line"; sleep "$pace"; done |
    curl -sSN -X POST -T - -H 'content-type: application/x-ndjson' -H 'expect:' \
      -H "producer-epoch: $epoch" -H "producer-seq: $expected" "$url/$run/chunks")
  has '"stopRequested":true' && echo 'stopped by a client' && exit 0
  has '"code":"state_producer_fenced"' && echo 'another process has claimed the run' >&2 && exit 1
  expected=$(number_of expected)
  [ -n "$expected" ] || { sleep 1; claim; }
done
set -- -H 'content-type: application/json' -H "producer-epoch: $epoch"
[ "$expected" -gt "$count" ] || post "/$run/commit" "$@" -H "producer-seq: $count" --data '{}'
post "/$run/end" "$@" -H "producer-seq: $((count + 1))" --data '{"status":"completed"}'
has '"status":"completed"' || { echo "$answer" >&2; exit 1; }
echo written
