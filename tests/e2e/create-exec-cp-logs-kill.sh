# The commands of the README, by hand: create, exec, cp, ls, show, logs, fork, kill, and a second kill.
. "$LIB/t.sh"
new_sandbox --name by-hand
[[ $id =~ ^i[a-z0-9]{20}$ ]] || fail "create -q printed \"$id\""
err=$DIR/by-hand.err
out=$(space exec "$id" -- bash -c 'echo hi; echo err >&2; exit 3' 2>"$err") && fail "status 0" || same $? 3 "exit status"
same "$out" hi stdout
same "$(cat "$err")" err stderr
printf 'a,b\n1,2\n' >"$DIR/data.csv"
space cp "$DIR/data.csv" "$id:/home/user/"
same "$(space exec "$id" -- cat /home/user/data.csv)" "$(cat "$DIR/data.csv")" "the copied file"
space cp "$id:/home/user/data.csv" "$DIR/back.csv"
cmp "$DIR/data.csv" "$DIR/back.csv"
rm "$DIR/data.csv" "$DIR/back.csv" "$err"
same "$(space exec "$id" -- printf 'a\0b' | od -An -c | tr -d ' ')" 'a\0b' "a NUL on stdout"
same "$(space exec "$id" -- sh -c 'printf "a\0b" >&2' 2>&1 >/dev/null | od -An -c | tr -d ' ')" 'a\0b' "a NUL on stderr"
same "$(space exec "$id" --json -- printf 'a\0b' | jq -c 'select(.event == "stdout") | .data')" '"a\u0000b"' "a NUL as JSON"
same "$(space exec "$id" -- head -c 1000000 /dev/zero | wc -c)" 1000000 "a megabyte of NULs"
same "$(echo from stdin | space exec "$id" -- cat)" "from stdin" "stdin"
has "$(space ls)" "$id" "space ls"
has "$(space ls)" by-hand "space ls shows the name"
same "$(space show "$id" --json | jq -r .state)" running "state"
same "$(space show by-hand --json | jq -r .id)" "$id" "found by name"
# What is on the console is in the logs.
space exec -u root "$id" -- sh -c 'echo a mark on the console > /dev/console'
for _ in $(seq 50); do [[ $(space logs "$id") == *"a mark on the console"* ]] && break; sleep 0.1; done
has "$(space logs "$id")" "a mark on the console" "logs"
# `fork` is `branch`, for those who call it so.
other=$(space fork "$id")
made+=("$other")
[[ $other =~ ^i[a-z0-9]{20}$ && $other != "$id" ]] || fail "fork printed \"$other\""
same "$(space exec "$other" -- sh -c 'hostname; cat /home/user/data.csv')" "$other
$(printf 'a,b\n1,2')" "the fork"
space kill "$other"
# No colour and no cursor movement into a pipe.
case $(space ls; space show "$id") in *$'\e'*) fail "an escape sequence in a pipe" ;; esac
space kill "$id"
space kill "$id"
status 1 space exec "$id" -- true 2>"$err"
has "$(cat "$err")" "ended" "exec in a killed sandbox"
# What it advises can be typed as it stands.
has "$(cat "$err")" "space events $id" "its remedy"
status 1 space create --timeout soon 2>"$err"
has "$(cat "$err")" "space help create" "the remedy of a value that is none"
status 2 space branch "$id" -n 0 2>"$err"
has "$(cat "$err")" "1 to 64" "no branches"
same "$(space exec "$id" --json -- true 2>&1 >/dev/null | jq -r .code)" sandbox_gone "its code"
rm "$err"
