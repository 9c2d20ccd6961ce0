#!/usr/bin/env bash
# docs/demo.svg, the recording in README: a run of hack/demo.sh, with the pauses that it had (at most two seconds
# each).
#
#   hack/recording.sh          run the demo, and write the recording
#   hack/recording.sh FILE     write it from the saved output of a run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -n ${1:-} ]]; then log=$1; else
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  hack/demo.sh --once | tee "$log"
fi
awk '
  BEGIN { count = 0 }
  function escaped(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }
  /^ *[0-9.]+s  / {
    seconds = $1 + 0
    pause = count ? seconds - last : 0
    now += pause > 2 ? 2 : pause
    last = seconds
    at[count] = now; time[count] = $1
    rest = substr($0, index($0, $1) + length($1) + 2)
    what[count] = escaped(substr(rest, 1, 42)); detail[count] = escaped(substr(rest, 44, 68))
    count++
  }
  END {
    if (!count) { print "no line of a demo" >"/dev/stderr"; exit 1 }
    height = 58 + count * 21
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1010 %d\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"14\">\n", height
    print "<title>hack/demo.sh --once</title>"
    printf "<rect width=\"1010\" height=\"%d\" rx=\"8\" fill=\"#161b22\"/>\n", height
    print "<text x=\"20\" y=\"30\" fill=\"#7ee787\">$ hack/demo.sh --once</text>"
    for (line = 0; line < count; line++) {
      printf "<g transform=\"translate(20 %d)\"><set attributeName=\"opacity\" to=\"0\" begin=\"0s\" end=\"%.1fs\"/>", 56 + line * 21, at[line] + 0.5
      printf "<text fill=\"#8b949e\" x=\"52\" text-anchor=\"end\">%s</text><text fill=\"#f0f6fc\" x=\"66\">%s</text><text fill=\"#79c0ff\" x=\"424\">%s</text></g>\n", time[line], what[line], detail[line]
    }
    print "</svg>"
  }' "$log" >docs/demo.svg.new
mv docs/demo.svg.new docs/demo.svg
