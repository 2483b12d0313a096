/** `berth completion`: prints the completion script of a shell. */
import { usage } from '../problem.ts';
import { argument, type Command } from './command.ts';
import { BASH, FISH, ZSH } from '../completion/scripts.ts';

const SCRIPTS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };

export const COMPLETION_COMMANDS: readonly Command[] = [
  {
    name: 'completion',
    summary: 'Print a script that completes commands in a shell',
    detail: [
      'bash: berth completion bash > ~/.local/share/bash-completion/completions/berth',
      'zsh:  berth completion zsh > "${fpath[1]}/_berth"',
      'fish: berth completion fish > ~/.config/fish/completions/berth.fish',
    ].join('\n'),
    args: [{ name: 'shell', doc: 'bash, zsh or fish', required: true }],
    routes: [],
    run(cli, args) {
      const shell = argument(args, 0);
      const script = SCRIPTS[shell];
      if (script === undefined)
        throw usage(`the shell must be one of ${Object.keys(SCRIPTS).join(', ')}, not “${shell}”`);
      cli.print({ shell, script }, () => script.trimEnd());
    },
  },
];
