/** Asks the operator questions in a terminal. */
import { confirm, isCancel, password, text } from '@clack/prompts';
import { defined } from '@berth/kit/defined';
import { Problem } from './command.ts';

export const canAsk = (): boolean => process.stdin.isTTY && process.stderr.isTTY;

/**
 * Asks for a text. `problem` returns the error of an answer, or undefined if the answer is valid.
 */
export async function askText(
  message: string,
  options: { initial?: string | undefined; problem?: (answer: string) => string | undefined } = {},
): Promise<string> {
  const { initial, problem } = options;
  const answered = await text({
    message,
    output: process.stderr,
    ...defined({
      initialValue: initial,
      validate: problem === undefined ? undefined : (answer?: string) => problem(answer ?? ''),
    }),
  });
  if (isCancel(answered)) throw cancelled();
  return answered;
}

/** Asks for a secret without showing the answer. */
export async function askSecret(message: string): Promise<string> {
  const secret = await password({ message, output: process.stderr });
  if (isCancel(secret)) throw cancelled();
  return secret;
}

export async function askYes(message: string): Promise<boolean> {
  const isConfirmed = await confirm({ message, initialValue: true, output: process.stderr });
  if (isCancel(isConfirmed)) throw cancelled();
  return isConfirmed;
}

const cancelled = (): Problem => new Problem('interrupted: nothing was changed');
