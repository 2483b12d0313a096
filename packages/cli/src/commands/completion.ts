/** `berth completion`. The scripts are static: nothing runs while a person types. */
import { usage } from '../problem.ts';
import { argument, type Command } from './command.ts';
import { bash, fish } from './completion-scripts.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** `others`: the commands to complete besides this one. */
export function completionCommand(others: readonly Command[]): Command {
  const command: Command = {
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
      const all = [...others, command];
      if (shell === 'bash') cli.io.out(bash(all));
      else if (shell === 'zsh') cli.io.out(`#compdef berth\nautoload -U bashcompinit && bashcompinit\n${bash(all)}`);
      else if (shell === 'fish') cli.io.out(fish(all));
      else throw usage(`the shell must be one of ${SHELLS.join(', ')}, not “${shell}”`);
    },
  };
  return command;
}
