/**
 * The scripts of `berth completion`. Each one asks `berth __complete` for the words that can
 * follow, so they never change.
 */

/**
 * bash gives and takes only the part of a word after `=`, `:` or `@`, so the part before is removed
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

/** Works as a file of `fpath` and by `source`. */
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
