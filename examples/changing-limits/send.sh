#!/bin/sh
# Sends the requests of an access log in the combined format to a Headgate server,
# as a proxy in front of the site would, and counts the answers.
#
#   send.sh access.log [http://127.0.0.1:8080]
set -eu
log=$1
server=${2:-http://127.0.0.1:8080}
awk -v server="$server" '
  # Quotes and backslashes would end the strings that the values are put into.
  function clean(s) { gsub(/["\\]/, "", s); return s }
  BEGIN { q = "\\\"" }
  {
    if (NR > 1) print "next"
    print "url = \"" server "/v1/check\""
    print "header = \"Content-Type: application/json\""
    print "data = \"{" q "descriptor" q ":{" q "ip" q ":" q clean($1) q "," q "method" q ":" q clean($6) q "}}\""
    print "silent"
    print "write-out = \"\\n\""
  }' "$log" |
  curl --config - |
  awk -F '[:,]' '
    /^{"allowed"/ { count[$2]++; next }
    /./ { other++; last = $0 }
    END {
      printf "%d admitted, %d denied\n", count["true"], count["false"]
      if (other) printf "%d not decided, the last with %s\n", other, last
    }'
