# `space run` prints what the command printed, exits with its status and leaves no sandbox.
# serial
. "$LIB/t.sh"
before=$(count)
same "$(space run -- python3 -c 'print(6*7)')" 42 "what Python printed"
out=$(space run -- bash -c 'echo hi; echo err >&2; exit 3' 2>"$DIR/run-exit.err") && fail "status 0" || same $? 3 "exit status"
same "$out" hi "stdout"
has "$(cat "$DIR/run-exit.err")" err "stderr"
rm "$DIR/run-exit.err"
status 143 space run -- bash -c 'kill -TERM $$'
same "$(printf 'a\nb\n' | space run -- wc -l)" 2 "lines that came through stdin"
# All bytes come through, NUL too, and a megabyte of it.
same "$(space run -- printf 'a\0b' | od -An -c | tr -d ' ')" 'a\0b' "a NUL"
same "$(count)" "$before" "sandboxes afterwards"
