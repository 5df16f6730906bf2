# bash completion for space. What there is to complete is asked of the program itself, so this never lags behind it.

_space_commands() { space help "$@" 2>/dev/null | sed -n 's/^  \([a-z][a-z ]*[a-z]\)   *[A-Z].*/\1/p' | sed 's/.* //'; }
_space_options() { space help "$@" 2>/dev/null | grep -o -- '^  *\(-[a-zA-Z], \)\?--[a-z-]*' | grep -o -- '--[a-z-]*'; }
_space_ids() { space ls -q 2>/dev/null; }
# Ids of nodes, and their labels as far as they are plain words.
_space_nodes() { space node ls 2>/dev/null | awk -F'  +' 'NR > 1 { print $1; if ($3 ~ /^[A-Za-z0-9][A-Za-z0-9._-]*$/) print $3 }'; }
_space_names() { space "$1" ls 2>/dev/null | sed 1d | cut -d' ' -f1; }

_space() {
  local cur=${COMP_WORDS[COMP_CWORD]} cmd='' sub='' i words=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --) return 0 ;;
      --host | -H) ((i++)) ;;
      -*) ;;
      *) if [[ -z $cmd ]]; then cmd=${COMP_WORDS[i]}; elif [[ -z $sub ]]; then sub=${COMP_WORDS[i]}; else words+=("${COMP_WORDS[i]}"); fi ;;
    esac
  done
  COMPREPLY=()
  if [[ -z $cmd ]]; then
    if [[ $cur == -* ]]; then
      mapfile -t COMPREPLY < <(compgen -W '--host --json --help' -- "$cur")
    else
      mapfile -t COMPREPLY < <(compgen -W "$(_space_commands)" -- "$cur")
    fi
    return 0
  fi
  case $cmd in
    template | image | key | context | config | operation | node)
      if [[ -z $sub ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_commands "$cmd")" -- "$cur")
      elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_options "$cmd" "$sub")" -- "$cur")
      elif [[ $cmd == node && $sub == ls ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_ids)" -- "$cur")
      elif [[ $cmd == node ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_nodes)" -- "$cur")
      elif [[ $sub == show || $sub == rm || $sub == use || $sub == wait ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_names "$cmd")" -- "$cur")
      fi
      return 0
      ;;
    help)
      mapfile -t COMPREPLY < <(compgen -W "$(_space_commands)" -- "$cur")
      return 0
      ;;
    completion)
      mapfile -t COMPREPLY < <(compgen -W 'bash zsh' -- "$cur")
      return 0
      ;;
  esac
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_space_options "$cmd")" -- "$cur")
    return 0
  fi
  case ${COMP_WORDS[COMP_CWORD - 1]} in
    --template | -t)
      if [[ $cmd == run || $cmd == create || $cmd == doctor ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_names template)" -- "$cur")
        return 0
      fi
      ;;
    --from)
      mapfile -t COMPREPLY < <(compgen -W "$(_space_nodes)" -- "$cur")
      return 0
      ;;
    --on-timeout)
      mapfile -t COMPREPLY < <(compgen -W 'kill suspend' -- "$cur")
      return 0
      ;;
  esac
  case $cmd in
    export)
      mapfile -t COMPREPLY < <(compgen -W "$(_space_nodes)" -- "$cur")
      ;;
    import)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      ;;
    tree)
      mapfile -t COMPREPLY < <(compgen -W "$(_space_ids; _space_nodes)" -- "$cur")
      ;;
    rollback)
      if [[ -z $sub ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_ids)" -- "$cur")
      elif ((${#words[@]} == 0)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_nodes)" -- "$cur")
      fi
      ;;
    show | shell | pause | wake | suspend | checkpoint | snapshot | branch | kill | stats | events | logs | timeout | exec | attach | ps | signal | watch | forward)
      if [[ -z $sub || $cmd == kill || $cmd == pause || $cmd == wake || $cmd == suspend || $cmd == stats ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_ids)" -- "$cur")
      fi
      ;;
    cp)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur"; compgen -S : -W "$(_space_ids)" -- "$cur")
      compopt -o nospace 2>/dev/null
      ;;
  esac
  return 0
}

complete -F _space space
