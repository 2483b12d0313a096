/**
 * Reads values from a person or from standard input. A secret is never an argument, because other
 * users of the machine can read arguments.
 */
import type { Io } from './io.ts';
import { canAsk } from './io.ts';
import { oneLine } from './output/text.ts';
import { CliError, EXIT, usage } from './problem.ts';

/** Maximum size in bytes of an environment variable or a secret, including its newline. */
const LIMIT = 65_536 + 2;

/** Reads a value from standard input and removes one trailing newline. */
export async function readOneValue(io: Io): Promise<string> {
  const text = await io.readStdin(LIMIT);
  return text.replace(/\r?\n$/, '');
}

/** Reads a value from a hidden prompt in a terminal, otherwise from standard input. */
export async function readValue(io: Io, what: string, hidden: boolean): Promise<string> {
  if (!io.terminal.in) return readOneValue(io);
  if (!canAsk(io))
    throw usage(`${what} cannot be asked for in this terminal`, 'give it on standard input');
  return hidden ? askSecret(what) : askText(what);
}

async function askSecret(message: string): Promise<string> {
  const { password, isCancel } = await import('@clack/prompts');
  const answer = await password({ message: oneLine(message), output: process.stderr });
  if (isCancel(answer)) throw cancelled();
  return answer;
}

async function askText(message: string): Promise<string> {
  const { text, isCancel } = await import('@clack/prompts');
  const answer = await text({ message: oneLine(message), output: process.stderr });
  if (isCancel(answer)) throw cancelled();
  return answer;
}

/** Asks before an action that cannot be undone. Without a terminal, `--yes` is required. */
export async function confirmed(io: Io, yes: boolean, question: string): Promise<void> {
  if (yes) return;
  if (!canAsk(io))
    throw usage(
      `${question} There is no terminal in which to answer`,
      'repeat the command with --yes',
    );
  const { confirm, isCancel } = await import('@clack/prompts');
  const answer = await confirm({
    message: oneLine(question),
    initialValue: false,
    output: process.stderr,
  });
  if (isCancel(answer) || !answer) throw cancelled();
}

export const cancelled = (): CliError =>
  new CliError(EXIT.interrupted, 'interrupted', 'nothing was changed');
