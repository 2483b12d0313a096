/** The scripts of `berth completion`. */
import { type Command, globalOptions } from './command.ts';

const PROCESSES = ['control-plane', 'gateway', 'agent', 'proxy', 'relay'];

/** Returns a map: the words before -> the words that may follow. */
export function following(commands: readonly Command[]): Map<string, Set<string>> {
  const words = new Map<string, Set<string>>([['', new Set(PROCESSES)]]);
  const add = (before: string, word: string): void => void words.set(before, (words.get(before) ?? new Set()).add(word));
  for (const command of commands) {
    const parts = command.name.split(' ');
    for (const [at, part] of parts.entries()) add(parts.slice(0, at).join(' '), part);
    for (const { flags } of [...(command.options ?? []), ...globalOptions(command)]) {
      const long = /--[a-z-]+/.exec(flags)?.[0];
      if (long !== undefined) add(command.name, long);
    }
    if (command.name === 'completion') for (const shell of ['bash', 'zsh', 'fish']) add(command.name, shell);
  }
  return words;
}

export function bash(commands: readonly Command[]): string {
  const cases = [...following(commands)].map(([before, words]) => `    '${before}') words='${[...words].join(' ')}' ;;`);
  return `_berth() {
  local word path='' words=''
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in -*) ;; *) case "\${path}" in '') path="$word" ;; *) if _berth_words "\${path} $word"; then path="\${path} $word"; fi ;; esac ;; esac
  done
  _berth_words "$path" || return 0
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
_berth_words() {
  case "$1" in
${cases.join('\n')}
    *) return 1 ;;
  esac
}
complete -o default -F _berth berth
`;
}

const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

export function fish(commands: readonly Command[]): string {
  const lines = ['complete -c berth -f'];
  const nouns = new Map<string, string>();
  for (const command of commands) {
    const [noun = '', ...verbs] = command.name.split(' ');
    if (!nouns.has(noun)) nouns.set(noun, verbs.length === 0 ? command.summary : noun);
    const seen = [noun, ...verbs].map((word) => `__fish_seen_subcommand_from ${word}`).join('; and ');
    if (verbs.length > 0)
      lines.push(`complete -c berth -n ${quoted(`__fish_seen_subcommand_from ${noun}`)} -a ${verbs[0]} -d ${quoted(command.summary)}`);
    for (const { flags, doc } of [...(command.options ?? []), ...globalOptions(command)]) {
      const long = /--([a-z-]+)/.exec(flags)?.[1];
      if (long !== undefined) lines.push(`complete -c berth -n ${quoted(seen)} -l ${long} -d ${quoted(doc)}`);
    }
  }
  for (const [noun, doc] of nouns) lines.push(`complete -c berth -n __fish_use_subcommand -a ${noun} -d ${quoted(doc)}`);
  return `${lines.join('\n')}\n`;
}
