# Helpers of tests in bash: `. "$LIB/t.sh"`. SPACE, SOCKET and DIR are set; anything that fails ends the test.
set -eu -o pipefail
SPACE=$BUILD_DIR/src/cli/space
DIR=$SPACE_TEST_DIR
SOCKET=$SPACE_SOCKET
space() { "$SPACE" "$@"; }
curl_api() { local path=$1; shift; curl -sS --max-time 60 --unix-socket "$SOCKET" "$@" "http://x$path"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
# same GOT WANT WHAT
same() { [ "$1" = "$2" ] || fail "${3:-}: got \"$1\", want \"$2\""; }
# has TEXT PART WHAT
has() { case $1 in *"$2"*) ;; *) fail "${3:-}: no \"$2\" in \"$1\"" ;; esac; }
# status WANT COMMAND…: runs it and compares its exit status
status() { local want=$1 got=0; shift; "$@" || got=$?; [ "$got" = "$want" ] || fail "$*: status $got, want $want"; }
# count: sandboxes that live
count() { space ls --json | jq '(if type == "array" then . else .sandboxes end) | length'; }
made=()
cleanup() { for i in "${made[@]:-}"; do [ -z "$i" ] || space kill "$i" >/dev/null 2>&1 || :; done; }
trap cleanup EXIT
# new_sandbox OPTIONS…: its id is in $id; it is killed at the end
new_sandbox() { id=$(space create -q "$@"); made+=("$id"); }
