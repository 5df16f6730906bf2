# A day with state, by hand: pause, suspend, wake, checkpoint, branch, rollback, snapshot, tree, export, import, df, fsck, prune.
# serial
# limit: 420
# shellcheck disable=SC2016,SC2154 # what is quoted is for the sandbox's shell; new_sandbox sets id
. "$LIB/t.sh"
err=$DIR/by-hand.err
nodes=()
mine() { nodes+=("$1"); }
cleanup_all() {
	cleanup
	for n in "${nodes[@]:-}"; do [ -z "$n" ] || space node rm "$n" >/dev/null 2>&1 || :; done
	rm -f "$err" "$DIR/work.space"
}
trap cleanup_all EXIT
state() { space show "$1" --json | jq -r .state; }
in_it() { space exec "$1" -- bash -c "$2"; }

# A process with an open file and a number in its memory: what a checkpoint is about. It waits without starting programs, so that five
# of them leave an emulated host some time.
new_sandbox --name state-day --timeout 1h
space exec -d "$id" -- bash -c 'exec 3>/home/user/held 4<> <(:); for ((n = 0;; n++)); do echo $n >&3; read -t 0.2 -u 4; done' >/dev/null
for _ in $(seq 100); do in_it "$id" 'test -s held' 2>/dev/null && break; sleep 0.1; done
loop='pgrep -f "[e]xec 3>/home/user/held" || echo none'
pid=$(in_it "$id" "$loop")
[ "$pid" != none ] || fail "the loop does not run"
# goes_on ID WHAT: the same process with the same open file, and it counts on
goes_on() {
	local a b
	same "$(in_it "$1" "$loop")" "$pid" "$2: the process"
	has "$(in_it "$1" "readlink /proc/$pid/fd/3")" /home/user/held "$2: its open file"
	a=$(in_it "$1" 'tail -n1 held'); sleep 0.5; b=$(in_it "$1" 'tail -n1 held')
	[ "$b" -gt "$a" ] || fail "$2: stands at $a"
}

# space pause $id; space wake $id
same "$(space pause "$id")" "$id paused" pause
same "$(state "$id")" paused "after pause"
same "$(space wake "$id")" "$id running" wake
goes_on "$id" "after pause and wake"

# space suspend $id; space wake $id
same "$(space suspend "$id")" "$id suspended" suspend
same "$(space suspend "$id")" "$id suspended" "suspend again"
same "$(state "$id")" suspended "after suspend"
has "$(space ls --state suspended)" "$id" "ls"
status 1 space exec "$id" -- true 2>"$err"
has "$(cat "$err")" "space wake" "the remedy for one that is suspended"
has "$(space tree state-day)" suspended "the tree with a suspended one"
same "$(space wake "$id")" "$id running" "wake from suspension"
goes_on "$id" "after suspend and wake"

# c=$(space checkpoint $id --label before-refactor)
in_it "$id" 'echo before >file; sync' # a disk that boots has what was written back
c=$(space checkpoint "$id" --label before-refactor)
mine "$c"
[[ $c =~ ^n[a-z0-9]{20}$ ]] || fail "checkpoint printed \"$c\""
same "$(state "$id")" running "after a checkpoint"
same "$(space node show before-refactor --json | jq -r '.id + " " + .kind + " " + .sandbox')" "$c checkpoint $id" "found by its label"
same "$(space node ls "$id" -q)" "$c" "its checkpoints"

# space branch $id -n 3: one line each with the new id
branch_out=$(space branch "$id" -n 3 --timeout 20m --meta try=1)
same "$(wc -l <<<"$branch_out")" 3 "lines of branch"
declare -A hosts=()
for b in $branch_out; do
	made+=("$b")
	[[ $b =~ ^i[a-z0-9]{20}$ ]] || fail "branch printed \"$b\""
	goes_on "$b" "in a branch"
	same "$(in_it "$b" 'cat file')" before "a file in a branch"
	hosts[$(in_it "$b" hostname)]=1
done
same "${#hosts[@]}" 3 "host names of three branches"
same "$(space ls -q --meta try=1 | sort)" "$(sort <<<"$branch_out")" "branches by their label"
goes_on "$id" "the parent of branches"
for b in $branch_out; do space kill "$b" >/dev/null; done

# space rollback $id $c: same id, earlier state
in_it "$id" 'echo after >file; touch later; sync'
counted=$(in_it "$id" 'tail -n1 held')
same "$(space rollback "$id" "$c")" "$id running" rollback
same "$(in_it "$id" 'cat file; ls later 2>/dev/null || :')" before "after a rollback"
now=$(in_it "$id" 'tail -n1 held')
[ "$now" -lt "$counted" ] || fail "the count is $now, and was $counted before it went back"
goes_on "$id" "after a rollback"
status 1 space rollback "$id" no-such-label 2>"$err"
has "$(cat "$err")" "space tree" "the remedy for a checkpoint that is not there"

# s=$(space snapshot $id); space create --from $s
in_it "$id" 'echo on-disk >file'
s=$(space snapshot "$id" -q)
mine "$s"
same "$(space node show "$s" --json | jq -r .kind)" snapshot kind
fresh=$(space create -q --from "$s")
made+=("$fresh")
same "$(in_it "$fresh" 'cat file; '"$loop")" $'on-disk\nnone' "what boots from a snapshot"
space kill "$fresh" >/dev/null
# A checkpoint goes on elsewhere; with --disk-only it boots.
fresh=$(space create -q --from before-refactor)
made+=("$fresh")
goes_on "$fresh" "created from a checkpoint"
space kill "$fresh" >/dev/null
same "$(space run --from "$c" --disk-only -- bash -c 'cat file; '"$loop")" $'before\nnone' "booted from a checkpoint's disk"

# space tree
tree=$(space tree)
for word in base before-refactor "$c" "$s" "$id" state-day template checkpoint snapshot running; do has "$tree" "$word" "tree"; done
same "$(space tree --json | jq -r --arg c "$c" '.[] | select(.id == $c) | .label')" before-refactor "tree as JSON"
same "$(space tree "$s" --json | jq -r '.[-1].id')" "$s" "what leads to a snapshot ends with it"

# space export $c > work.space; space import < work.space
space export "$c" >"$DIR/work.space"
[ "$(stat -c %s "$DIR/work.space")" -gt 1000000 ] || fail "the export is too small"
i=$(space import <"$DIR/work.space")
mine "$i"
[ "$i" != "$c" ] || fail "the same id again"
fresh=$(space create -q --from "$i")
made+=("$fresh")
goes_on "$fresh" "created from what was imported"
space kill "$fresh" >/dev/null
# Cut, or changed in the middle, it is refused, and nothing of it stays.
before=$(space node ls -q | sort)
head -c 500000 "$DIR/work.space" >"$DIR/cut.space"
status 1 space import "$DIR/cut.space" 2>"$err"
printf '\377' | dd of="$DIR/work.space" bs=1 seek=900000 conv=notrunc status=none
status 1 space import "$DIR/work.space" 2>"$err"
rm "$DIR/cut.space"
same "$(space node ls -q | sort)" "$before" "nodes after refused imports"

# space df; space fsck; space prune --older-than …
has "$(space df)" free "df"
same "$(space df --json | jq -r '.rows | length > 2')" true "rows of df"
has "$(space fsck)" " 0 damaged" "fsck"
same "$(space prune --older-than 7d 2>/dev/null)" "" "nothing is that old"
would=$(space prune --older-than 0 --dry-run 2>"$err")
has "$(cat "$err")" "would go" "dry run"
for n in "$s" "$i"; do has "$would" "$n" "what would go"; done
has "$(space node ls -q)" "$s" "after the dry run"
space node rm "$s"
status 1 space node show "$s" 2>"$err"
# Its children, the sandbox that came from it and the others stay whole when a checkpoint goes.
d=$(space checkpoint "$id" --label later)
mine "$d"
space node rm "$c"
same "$(space rollback "$id" later)" "$id running" "back to the child of one that was removed"
goes_on "$id" "after that"

# --on-timeout suspend, --auto-wake
w=$(space create -q --timeout 3 --on-timeout suspend --auto-wake)
made+=("$w")
for _ in $(seq 200); do [ "$(state "$w")" = suspended ] && break; sleep 0.2; done
same "$(state "$w")" suspended "at its deadline"
same "$(space exec "$w" -- echo awake)" awake "a call to one that is suspended and wakes by itself"

# Wrong words
status 2 space checkpoint ls 2>"$err"
has "$(cat "$err")" "space node ls" "checkpoint ls"
status 2 space prune 2>/dev/null
status 2 space create --from "$d" --template base 2>/dev/null
status 2 space create --disk-only 2>/dev/null
status 2 space create --on-timeout sleep 2>/dev/null
status 1 space create --from no-such-node 2>"$err"
has "$(cat "$err")" "space tree" "the remedy"
same "$(space create --from no-such-node --json 2>&1 >/dev/null | jq -r .code)" checkpoint_not_found "its code"
if command -v script >/dev/null; then
	has "$(script -qec "'$SPACE' export '$d'" /dev/null </dev/null || :)" "this is a terminal" "export to a terminal"
fi
