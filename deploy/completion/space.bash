# bash completion for space. What there is to complete is asked of the program itself, so this never lags behind it.

_space_commands() { space help "$@" 2>/dev/null | sed -n 's/^  \([a-z][a-z ]*[a-z]\)   *[A-Z].*/\1/p' | sed 's/.* //'; }
_space_options() { space help "$@" 2>/dev/null | grep -o -- '^  *\(-[a-zA-Z], \)\?--[a-z-]*' | grep -o -- '--[a-z-]*'; }
_space_ids() { space ls -q 2>/dev/null; }
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
    template | image | key | context | config | operation)
      if [[ -z $sub ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_commands "$cmd")" -- "$cur")
      elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_space_options "$cmd" "$sub")" -- "$cur")
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
  esac
  case $cmd in
    show | shell | pause | wake | kill | stats | events | logs | timeout | exec | attach | ps | signal | watch | forward)
      if [[ -z $sub || $cmd == kill || $cmd == pause || $cmd == wake || $cmd == stats ]]; then
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
