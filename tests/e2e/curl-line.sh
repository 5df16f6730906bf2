# The curl line of the README streams a shell's output as server-sent events while the command runs.
. "$LIB/t.sh"
new_sandbox
file=$DIR/curl-line.out
start=$(date +%s%N)
curl -sN --unix-socket "$SOCKET" -d '{"shell":"for i in 1 2 3; do echo $i; sleep 1; done"}' "http://x/v1/sandboxes/$id/exec" |
	while IFS= read -r line; do echo "$((($(date +%s%N) - start) / 1000000)) $line"; done >"$file"
grep -q 'event: start' "$file" || fail "no start: $(cat "$file")"
for i in 1 2 3; do
	grep -q "data: {\"data\":\"$i\\\\n\"" "$file" || fail "no chunk $i: $(cat "$file")"
done
first=$(grep '"data":"1' "$file" | cut -d' ' -f1) last=$(grep '"data":"3' "$file" | cut -d' ' -f1)
[ $((last - first)) -gt 1500 ] || fail "1 and 3 came $((last - first)) ms apart: it was held back"
grep -q '"code":0' "$file" || fail "no exit"
rm "$file"
