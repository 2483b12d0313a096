/**
 * The scripts of `berth completion`. They call `berth __complete` for the next words, so a new
 * command does not change them.
 */

/**
 * bash splits words at `=`, `:` and `@`, so the script removes the part before the last separator
 * from each answer.
 */
export const BASH = `_berth() {
  local line=\${COMP_LINE:0:COMP_POINT} word
  local -a given
  read -ra given <<< "$line"
  case $line in *[[:space:]]) given+=('') ;; esac
  local current=\${given[\${#given[@]} - 1]}
  local before=\${current%"\${current##*[=:@]}"}
  COMPREPLY=()
  while IFS=$'\\t' read -r word _; do
    COMPREPLY+=("\${word#"$before"}")
  done < <(berth __complete "\${given[@]:1}" 2>/dev/null </dev/null)
}
complete -F _berth berth
`;

/** Works both as a file in `fpath` and with `source`. */
export const ZSH = `#compdef berth
_berth() {
  local word doc
  local -a found
  while IFS=$'\\t' read -r word doc; do
    found+=("\${word//:/\\\\:}\${doc:+:$doc}")
  done < <(berth __complete "\${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null </dev/null)
  (( \${#found} )) && _describe 'berth' found
}
if [[ \${funcstack[1]} == _berth ]]; then _berth "$@"; else compdef _berth berth; fi
`;

export const FISH = `function __berth_complete
    set -l given (commandline -opc)
    set -e given[1]
    berth __complete $given (commandline -ct | string collect --allow-empty) 2>/dev/null </dev/null
end
complete -c berth -f -a '(__berth_complete)'
`;
