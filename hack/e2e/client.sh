#!/bin/bash
# A client of memcached in its text protocol: the program of hack/e2e.sh's client image.
#
#   client stats HOST NAME        the value of one line of `stats`
#   client set HOST KEY VALUE     stores it
#   client get HOST KEY           prints what is stored; fails when nothing is
#   client fill HOST COUNT SIZE   stores COUNT items of SIZE bytes
#   client keep-reading NAME KEY  reads on and on, from each of NAME's addresses in turn; a line for
#                                 each read: "read N ADDRESS hit|miss|FAILED"
#   client http HOST PORT [PATH]  prints the body that a web server answers with
#   client wait                   does nothing until it gets a signal
#
# HOST is an address or a name; of a name's addresses each is tried.
set -u
readonly PORT=11211 PATIENCE=5 # seconds for any answer

main() {
  local command=${1:-}
  shift
  case $command in
    stats) ask "$1" stats END && statistic "STAT $2 " ;;
    set) ask "$1" "set $2 0 0 ${#3}"$'\r\n'"$3" STORED ;;
    get) ask "$1" "get $2" END && [[ $ANSWER == VALUE* ]] && value ;;
    fill) fill "$@" ;;
    keep-reading) keep_reading "$@" ;;
    http) http "$@" ;;
    wait) wait_for_the_end ;;
    *) echo "client: unknown command '$command'" >&2 && exit 2 ;;
  esac
}

# ask HOST REQUEST LAST: sets ANSWER to the lines up to the one that is LAST.
ask() {
  local line connection
  ANSWER=''
  { exec {connection}<>"/dev/tcp/$1/$PORT"; } 2>/dev/null || return 1
  printf '%s\r\n' "$2" >&"$connection"
  while IFS= read -r -t "$PATIENCE" -u "$connection" line; do
    line=${line%$'\r'}
    [[ $line != "$3" ]] || { exec {connection}>&- && return 0; }
    ANSWER+=$line$'\n'
  done
  exec {connection}>&-
  return 1
}

# Without answers, until the last request is answered: then all before it have been read.
fill() {
  local connection value line number
  exec {connection}<>"/dev/tcp/$1/$PORT" || return 1
  printf -v value '%*s' "$3" ''
  for ((number = 0; number < $2; number++)); do
    printf 'set fill-%d 0 0 %d noreply\r\n%s\r\n' "$number" "$3" "$value"
  done >&"$connection"
  printf 'get none\r\n' >&"$connection"
  IFS= read -r -t 60 -u "$connection" line && [[ ${line%$'\r'} == END ]]
}

# The value in "VALUE key flags length\nvalue".
value() {
  local rest=${ANSWER#*$'\n'}
  printf '%s' "$rest"
}

# The rest of the answer's line that begins with $1.
statistic() {
  local line
  while IFS= read -r line; do
    [[ $line != "$1"* ]] || { printf '%s\n' "${line#"$1"}" && return; }
  done <<<"$ANSWER"
  return 1
}

# Each read is tried once: an instance that serves while clients learn of its end fails none.
keep_reading() {
  local reads=0 result addresses address
  trap 'exit 0' TERM
  while :; do
    mapfile -t addresses < <(getent ahostsv4 "$1" | while read -r address kind _; do
      [[ $kind != STREAM ]] || echo "$address"
    done)
    address=nowhere result=FAILED
    if ((${#addresses[@]} > 0)); then
      address=${addresses[reads % ${#addresses[@]}]}
      ! ask "$address" "get $2" END || { [[ $ANSWER == VALUE* ]] && result=hit || result=miss; }
    fi
    printf 'read %d %s %s\n' $((++reads)) "$address" "$result"
    read -r -t 0.05 <> <(:) || true # a pause
  done
}

http() {
  local line connection
  exec {connection}<>"/dev/tcp/$1/$2" || return 1
  printf 'GET %s HTTP/1.0\r\n\r\n' "${3:-/}" >&"$connection"
  while IFS= read -r -t "$PATIENCE" -u "$connection" line && [[ ${line%$'\r'} != '' ]]; do :; done
  while IFS= read -r -t "$PATIENCE" -u "$connection" line; do printf '%s\n' "$line"; done
}

wait_for_the_end() {
  local never
  trap 'exit 0' TERM
  exec {never}<> <(:)
  while :; do read -r -t 60 -u "$never" || true; done
}

main "$@"
