# `space doctor --try` creates, runs and deletes; completion is valid in bash and zsh; a bug report holds no secret.
# serial
# limit: 180
. "$LIB/t.sh"
n=$(count)
out=$(space doctor --try) || fail "doctor: $out"
has "$out" "QEMU" "doctor names QEMU"
space doctor --json | jq -e . >/dev/null
same "$(count)" "$n" "sandboxes after doctor --try"
space completion bash | bash -n
[ "$(space completion bash | wc -l)" -gt 10 ] || fail "no completion"
if command -v zsh >/dev/null; then space completion zsh | zsh -n; fi
space completion zsh | grep -q compdef
for c in run create ls show exec shell cp forward logs kill template image key doctor; do
	space help "$c" | grep -q "usage: space $c" || fail "no help for $c"
done
space --version | grep -Eq '[0-9]+\.[0-9]+' || fail "no version"
new_sandbox -e TOKEN=very-secret-value
key=$(space key create bug --json | jq -r .key)
[[ $key == space_* ]] || fail "no key: $key"
file=$DIR/report.tar.gz
( cd "$DIR" && space bugreport -o "$file" >/dev/null )
mkdir "$DIR/report" && tar -C "$DIR/report" -xf "$file"
[ "$(find "$DIR/report" -type f | wc -l)" -gt 2 ] || fail "the report is empty"
if grep -rq -e very-secret-value -e "${key#space_}" "$DIR/report"; then fail "a secret is in the report: $(grep -rl -e very-secret-value -e "${key#space_}" "$DIR/report")"; fi
rm -r "$DIR/report" "$file"
space key ls --json | jq -r '(if type == "array" then . else .keys end)[] | select(.name == "bug") | .id' | while read -r k; do space key rm "$k" >/dev/null; done
