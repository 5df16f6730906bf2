# Completion in bash offers commands, options, and the sandboxes, templates and images that there are; zsh takes its file.
. "$LIB/t.sh"
bin=$(mktemp -d "$DIR/bin.XXXXXX")
ln -s "$SPACE" "$bin/space"
node=
cleanup_all() { cleanup; [ -z "$node" ] || "$SPACE" node rm "$node" || :; rm -rf "$bin"; }
trap cleanup_all EXIT
new_sandbox --name comp-one
node=$(space checkpoint "$id" --label comp-label)
unset -f space
PATH=$bin:$PATH
# shellcheck source=/dev/null
. <(space completion bash)
# offers WORDS…: the candidates for the last of them, sorted, on one line
offers() {
	COMP_WORDS=(space "$@") COMP_CWORD=$# COMPREPLY=()
	_space
	printf '%s\n' "${COMPREPLY[@]:-}" | sort | paste -sd' '
}
complete -p space | grep -q -- '-F _space' || fail "nothing is registered"

# Every command that help names is offered, and every one that is offered has a help.
for c in run create ls show exec shell cp forward logs kill pause wake suspend checkpoint snapshot branch rollback tree node export import prune fsck template image key doctor bugreport completion; do
	has " $(offers "") " " $c " "the first word"
done
for c in $(offers ""); do space help "$c" >/dev/null || fail "$c is offered and is no command"; done
same "$(offers crea)" create
same "$(offers "do")" doctor
same "$(offers zzz)" ""
has " $(offers --)" " --json" "options before the command"
for w in build ls rm; do
	has " $(offers template "") " " $w " "template's commands"
	has " $(offers image "") " " $w " "image's commands"
done
same "$(offers key cr)" create
has " $(offers create --) " " --template " "create's options"
same "$(offers create --temp)" --template
same "$(offers template build --im)" --image
same "$(offers completion "")" "bash zsh"

# What there is, asked of the daemon.
for c in show exec shell kill logs forward; do
	case $c in logs) continue ;; esac
	has " $(offers "$c" "") " " $id " "$c"
	same "$(offers "$c" "${id:0:12}")" "$id" "$c, from a part"
done
has " $(offers cp "${id:0:12}") " " $id: " "cp"
has " $(offers create --template "") " " base " "a template for create"
has " $(offers run -t b) " " base " "a template for run"
has " $(offers image show "") " " base " "an image"
for c in suspend checkpoint snapshot branch rollback tree; do has " $(offers "$c" "") " " $id " "$c"; done
for word in "$node" comp-label; do
	has " $(offers export "") " " $word " "a node to export"
	has " $(offers rollback "$id" "") " " $word " "a node to go back to"
	has " $(offers node rm "") " " $word " "a node to remove"
	has " $(offers create --from "") " " $word " "a node to start from"
	has " $(offers tree "") " " $word " "a node of the tree"
done
same "$(offers create --on-timeout "")" "kill suspend"
same "$(offers node "")" "ls rm show"
# Options before the command, and words after --, do not confuse it.
same "$(offers --json crea)" create
same "$(offers exec "$id" -- l)" ""
# A daemon that is not there costs nothing but the candidates.
same "$(SPACE_SOCKET=/nonexistent offers show "")" ""

if command -v zsh >/dev/null; then
	space completion zsh | zsh -n || fail "zsh does not take it"
	# Loaded as zsh does it, from fpath; then asked, with the functions of zsh's own system replaced by one that prints.
	mkdir "$bin/f" && space completion zsh > "$bin/f/_space"
	same "$(zsh -fc 'fpath=($1 $fpath); autoload -Uz compinit; compinit -D -u; print -r -- $_comps[space]' zsh "$bin/f")" _space "zsh"
	zsh_offers() {
		zsh -fc 'file=$1; shift; words=(space "$@"); CURRENT=$#words
			_describe() { print -rl -- ${(P)argv[-1]} }; compadd() { print -rl -- "$@" }; _files() { : }; _normal() { : }
			source $file' zsh "$bin/f/_space" "$@" | sed 's/:.*//' | sort -u | paste -sd' '
	}
	has " $(zsh_offers "") " " create " "zsh, the first word"
	has " $(zsh_offers template "") " " build " "zsh, template's commands"
	has " $(zsh_offers create --) " " --template " "zsh, create's options"
	has " $(zsh_offers show "") " " $id " "zsh, ids"
	has " $(zsh_offers rollback "$id" "") " " comp-label " "zsh, labels of nodes"
	has " $(zsh_offers node rm "") " " $node " "zsh, ids of nodes"
fi
