/** Questions to the operator in a terminal. */
import { confirm, isCancel, password, text } from '@clack/prompts';
import { defined } from '@berth/kit/defined';
import { Problem } from './command.ts';

export const canAsk = (): boolean => process.stdin.isTTY && process.stderr.isTTY;

/** `problem` returns what is wrong with an answer, or undefined. */
export async function askText(
  message: string,
  options: { initial?: string | undefined; problem?: (answer: string) => string | undefined } = {},
): Promise<string> {
  const { initial, problem } = options;
  const given = await text({
    message,
    output: process.stderr,
    ...defined({
      initialValue: initial,
      validate: problem === undefined ? undefined : (answer?: string) => problem(answer ?? ''),
    }),
  });
  if (isCancel(given)) throw cancelled();
  return given;
}

/** The answer is not shown. */
export async function askSecret(message: string): Promise<string> {
  const given = await password({ message, output: process.stderr });
  if (isCancel(given)) throw cancelled();
  return given;
}

export async function askYes(message: string): Promise<boolean> {
  const given = await confirm({ message, initialValue: true, output: process.stderr });
  if (isCancel(given)) throw cancelled();
  return given;
}

const cancelled = (): Problem => new Problem('interrupted: nothing was changed');
