# shellcheck shell=bash disable=SC2034 # what is set here is read by those who source it
# What the scripts share. Sourced by bash; every script says `. "$(dirname "$0")/lib.sh"` first.
#
# STATE_DIR, RUN_DIR, CONFIG and LISTEN move everything that is made, so that several SPACEs live side by side on one machine.
# Nothing is written outside those, the source tree's build directories and what apt-get installs.

set -euo pipefail
export LC_ALL=C.UTF-8
PATH=$PATH:/usr/sbin:/sbin

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD_DIR=${BUILD_DIR:-$ROOT/build}
STATE_DIR=${STATE_DIR:-/var/lib/space}
RUN_DIR=${RUN_DIR:-/run/space}
CONFIG=${CONFIG:-/etc/space/space.yaml}
LOG_DIR=$ROOT/.make
SPACE=$BUILD_DIR/src/cli/space
SPACED=$BUILD_DIR/src/api/spaced
PIDFILE=$RUN_DIR/spaced.pid
export SPACE_SOCKET=$RUN_DIR/api.sock
unset SPACE_URL SPACE_API_KEY

# --- words ---

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  BOLD=$'\e[1m' RED=$'\e[31m' GREEN=$'\e[32m' PLAIN=$'\e[0m' CLEAR=$'\r\e[K' LIVE=1
else
  BOLD='' RED='' GREEN='' PLAIN='' CLEAR='' LIVE=''
fi

say() { printf '%s\n' "$*" >&2; }
head_line() { printf '%s%s%s\n' "$BOLD" "$*" "$PLAIN" >&2; }
done_line() { printf '%s%sok%s  %s\n' "$CLEAR" "$GREEN" "$PLAIN" "$*" >&2; }
# complain WHAT [REMEDY]
complain() {
  printf '%s%sspace: %s%s\n' "$CLEAR" "$RED" "$1" "$PLAIN" >&2
  [ -z "${2:-}" ] || printf '  try: %s\n' "$2" >&2
}
die() {
  complain "$@"
  exit 1
}

# --- root ---

is_root() { [ "$(id -u)" = 0 ]; }
# sudo takes the proxies from the environment; apt and the image's builder need them.
KEPT=()
for v in http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!v:-}" ] || KEPT+=("$v=${!v}")
done
[ ${#KEPT[@]} = 0 ] || KEPT=(env "${KEPT[@]}")
# Runs a command as root: as it is, or through sudo.
as_root() { if is_root; then "$@"; else sudo -- "${KEPT[@]}" "$@"; fi; }
# The same without its words. Redirected here, for the command alone: a function call that is redirected as a whole would take what a
# trap says in the meantime with it.
quiet_root() { if is_root; then "$@" >/dev/null 2>&1; else sudo -- "${KEPT[@]}" "$@" >/dev/null 2>&1; fi; }
can_be_root() { is_root || command -v sudo >/dev/null; }
# Asks for the password now and not in the middle, where a spinner hides the question.
root_now() { is_root || sudo -v; }

# free_mb DIR: on the file system where DIR is, or will be.
free_mb() {
  local d=$1
  while [ ! -d "$d" ]; do d=$(dirname "$d"); done
  df -Pm "$d" | awk 'NR==2 {print $4}'
}

# --- long work ---

CHILD=
# Its process group (set -m gave it one of its own). What runs through sudo is root's, so sudo has to ask it.
kill_child() { kill "$1" -- "-$CHILD" 2>/dev/null || { ! is_root && sudo -n kill "$1" -- "-$CHILD" 2>/dev/null; }; }
stop_child() {
  local i
  [ -n "$CHILD" ] || return 0
  kill_child -TERM || :
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    kill_child -0 || break
    sleep 0.2
  done
  kill_child -KILL || :
  CHILD=
}

# on_interrupt WORDS: what to say when Ctrl-C, SIGTERM or SIGHUP comes.
on_interrupt() {
  # shellcheck disable=SC2064
  trap "stop_child; complain 'interrupted' '$1'; exit 130" INT TERM HUP
}

elapsed() { printf '%d s' $((SECONDS - $1)); }

# step NAME COMMAND…: runs it with its output in a log; shows that it lives when it takes longer than 2 s; on failure shows the end of
# the log and fails with its status.
step() {
  local name=$1 log began=$SECONDS told=$SECONDS last='' status=0 frame=0 frames='|/-\'
  shift
  mkdir -p "$LOG_DIR"
  log=$LOG_DIR/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9\n' '-' | tr -s - | cut -c1-60).log
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  CHILD=$!
  set +m
  while kill -0 "$CHILD" 2>/dev/null; do
    sleep 0.1
    ((SECONDS - began >= 2)) || continue
    if [ -n "$LIVE" ]; then
      last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | tr -d '\000-\010\013-\037' | grep -v '^ *$' | tail -n 1) || :
      frame=$(((frame + 1) % 4))
      printf '%s%s %s, %s  %.*s' "$CLEAR" "${frames:frame:1}" "$name" "$(elapsed "$began")" \
        $(($(tput cols 2>/dev/null || echo 80) - ${#name} - 16)) "$last" >&2
    elif ((SECONDS - told >= 8)) || ((told == began)); then
      say "    $name, $(elapsed "$began")"
      told=$SECONDS
      ((told == began)) && told=$((began + 1))
    fi
  done
  wait "$CHILD" || status=$?
  CHILD=
  if [ $status = 0 ]; then
    done_line "$name$( ((SECONDS - began < 2)) || printf ' (%s)' "$(elapsed "$began")")"
  else
    complain "$name failed with status $status; its last words:"
    tail -n 25 "$log" | sed 's/^/  | /' >&2
    say "  all of it: $log"
  fi
  return $status
}

# --- packages ---

# missing_packages NAME…: those that are not installed, one a line.
missing_packages() {
  local there
  there=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p') || :
  printf '%s\n' "$@" | grep -vxF -f <(printf '%s\n' "$there" | grep . || echo /) || :
}

apt_install() {
  local wait='-o DPkg::Lock::Timeout=300'
  # What an interrupted run left half configured is finished first.
  [ -z "$(dpkg --audit 2>/dev/null)" ] || as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get $wait -o Acquire::Retries=3 update
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get $wait -o Acquire::Retries=3 -y --no-install-recommends install "$@"
}

# want_packages WHAT NAME…: installs those that are missing; each is remembered first, for make purge to name.
want_packages() {
  local what=$1 missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} = 0 ]; then
    done_line "Debian packages $what: all $# are there"
    return 0
  fi
  say "Debian packages $what to install (apt-get, from this machine's own sources):"
  printf '%s\n' "${missing[@]}" | paste -sd' ' | fold -s -w 90 | sed 's/^/  /' >&2
  as_root mkdir -p -m 0711 "$STATE_DIR"
  printf '%s\n' "${missing[@]}" | as_root tee -a "$STATE_DIR/installed-packages" >/dev/null
  root_now
  step "installing ${#missing[@]} packages" apt_install "${missing[@]}" ||
    die "the packages could not be installed" "apt-get update; then this again (it goes on where it was)"
}

PACKAGES_BUILD=(gcc libc6-dev make meson ninja-build pkg-config libuv1-dev libjansson-dev libssl-dev libsqlite3-dev libyaml-dev
  libmnl-dev libcap-ng-dev zlib1g-dev liblzma-dev libzstd-dev)
PACKAGES_RUN=(qemu-system-x86 nftables mmdebstrap erofs-utils xfsprogs e2fsprogs kmod iproute2 procps ca-certificates
  debian-archive-keyring skopeo umoci)
PACKAGES_CHECK=(python3 nodejs btrfs-progs jq curl openssl clang cppcheck shellcheck zsh sudo)

# --- build ---

# build DIR TARGETS…
build() {
  local dir=$1
  shift
  if [ ! -f "$dir/build.ninja" ]; then
    # Half-made by an interrupted run: meson would refuse it.
    rm -rf "$dir"
    step "configuring ${dir##*/}" meson setup "$dir" "$ROOT" ${MESON_ARGS:-} || return 1
  fi
  step "building in ${dir##*/}" ninja -C "$dir" "$@"
}
PROGRAMS=(src/agent/space-agent src/image/space-image src/api/spaced src/cli/space)

# --- the daemon ---

daemon_pid() {
  local pid stat
  pid=$(cat "$PIDFILE" 2>/dev/null) || return 1
  [[ $pid =~ ^[0-9]+$ ]] || return 1
  stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return 1
  [[ $stat == "$pid (spaced) "* ]] || return 1
  # State and number of threads: a zombie whose last thread has ended holds nothing any more.
  read -r -a stat <<<"${stat##*) }"
  [[ ${stat[0]} != [ZX] ]] || ((stat[17] > 1)) || return 1
  printf '%s\n' "$pid"
}
daemon_answers() { quiet_root env SPACE_SOCKET="$SPACE_SOCKET" "$SPACE" host; }
space_root() { as_root env SPACE_SOCKET="$SPACE_SOCKET" "$SPACE" "$@"; }

# Copies a program to where root runs it from, if it is another one. Prints "new" when it was.
put_program() {
  cmp -s "$1" "$2" 2>/dev/null && return 0
  as_root install -m 0755 "$1" "$2.new"
  as_root mv -f "$2.new" "$2"
  echo new
}

# wait_until SECONDS COMMAND…; WAITING says what for, once it takes longer than 2 s.
wait_until() {
  local end=$((SECONDS + $1)) began=$SECONDS next=$((SECONDS + 2))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    if ((SECONDS >= next)) && [ -n "${WAITING:-}" ]; then
      say "    $WAITING, $(elapsed "$began")"
      next=$((SECONDS + 8))
    fi
    sleep 0.1
  done
}

daemon_gone() { ! daemon_pid >/dev/null; }

# One script at a time on this tree; the lock is this file's, so that nothing is written for it. What a killed one had started holds
# it too, until it has ended.
only_one() {
  local began=$SECONDS
  exec 9<"$ROOT/scripts/lib.sh"
  flock -n 9 && return 0
  say "    another make up, check, down or purge works in this tree; waiting for it"
  until flock -w 9 9; do
    ((SECONDS - began < 1800)) || die "the other one does not end" "fuser -v $ROOT/scripts/lib.sh shows who it is"
    say "    waiting, $(elapsed "$began")"
  done
}

# The file with the settings to start with, or nothing. LISTEN goes before what the file says.
daemon_config() {
  local own=$STATE_DIR/up.yaml
  if [ -z "${LISTEN:-}" ]; then
    # An absent default file means the defaults; one that was asked for must be there.
    if [ -e "$CONFIG" ] || [ "$CONFIG" != /etc/space/space.yaml ]; then echo "$CONFIG"; fi
    return 0
  fi
  { as_root cat "$CONFIG" 2>/dev/null | grep -v '^listen:'; echo "listen: \"$LISTEN\""; } | as_root tee "$own" >/dev/null
  echo "$own"
}

STARTED=
daemon_start() {
  local libexec=$STATE_DIR/libexec args=() sudo=() config size
  as_root mkdir -p -m 0711 "$STATE_DIR" "$RUN_DIR"
  config=$(daemon_config)
  args=(--state-dir "$STATE_DIR" --run-dir "$RUN_DIR" --libexec-dir "$libexec" ${config:+--config "$config"})
  size=$(stat -c %s "$STATE_DIR/spaced.log" 2>/dev/null || echo 0)
  ((size < 16777216)) || as_root mv -f "$STATE_DIR/spaced.log" "$STATE_DIR/spaced.log.1"
  # In a session of its own, with none of our descriptors, our lock least of all: it stays when we and this terminal are gone.
  is_root || sudo=(sudo -- "${KEPT[@]}")
  # shellcheck disable=SC2016
  (exec "${sudo[@]}" setsid sh -c 'log=$1; shift; umask 027; exec "$@" >>"$log" 2>&1 </dev/null' sh \
    "$STATE_DIR/spaced.log" "$libexec/spaced" "${args[@]}" >/dev/null 2>&1 9<&-) &
  STARTED=$!
  disown
  if WAITING="spaced starts" wait_until 60 daemon_answers_or_died && daemon_answers; then
    return 0
  fi
  complain "spaced did not start; its last words:"
  as_root tail -n 12 "$STATE_DIR/spaced.log" | sed 's/^/  | /' >&2
  return 1
}
daemon_answers_or_died() { daemon_answers || ! kill -0 "$STARTED" 2>/dev/null; }
