# Reads the operator's requests in the API server's audit log, in their order, and judges: was the
# Lease renewed in time by somebody at every moment, and was each write its holder's? Prints what it
# found; its exit status is 1 if not. -v lease=SECONDS is the Lease's duration.
#
# Reads change nothing, Events may be anybody's, and a refused write is none.

function field(pattern, before, after) {
  if (!match($0, pattern)) return ""
  return substr($0, RSTART + before, RLENGTH - before - after)
}

# Seconds of the day; a run may cross midnight.
function seconds(stamp) {
  return substr(stamp, 12, 2) * 3600 + substr(stamp, 15, 2) * 60 + substr(stamp, 18, 9)
}

!/"verb":"(create|update|patch|delete)"/ || !/"code":2[0-9][0-9]/ || /"resource":"events"/ { next }
{ pod = field("\"authentication.kubernetes.io/pod-name\":\\[\"[^\"]*\"", 42, 1) }
/"resource":"leases"/ {
  now = seconds(field("\"stageTimestamp\":\"[^\"]*\"", 18, 1))
  if (renewals++) {
    gap = now - last
    if (gap < 0) gap += 86400
    if (gap > longest) longest = gap
    if (pod != holder) transitions++
  }
  last = now
  holder = pod
  next
}
{
  writes++
  if (holder != "" && pod != holder) stray = stray "\n" pod " wrote while " holder " led: " field("\"requestURI\":\"[^\"]*\"", 14, 1)
}

END {
  if (stray != "") { print "writes without leadership:" stray; exit 1 }
  if (transitions < 1) { print "the Lease never changed hands in " renewals " renewals"; exit 1 }
  if (writes < 1) { print "nobody wrote"; exit 1 }
  printf "%d changes of holder, at most %.1f s between renewals (Lease %d s), %d writes\n", transitions, longest, lease, writes
  if (longest >= lease) { print "the Lease had expired"; exit 1 }
}
