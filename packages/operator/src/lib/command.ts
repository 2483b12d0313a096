/** Output, errors and exit codes of the commands of this package. */
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';

/** Removes control characters, because text from another machine must not control the terminal. */
const plain = (line: string): string => line.replaceAll(/[^\P{C}\n\t]/gu, '');
export const print = (line: string): void => void process.stdout.write(`${plain(line)}\n`);
export const complain = (line: string): void => void process.stderr.write(`${plain(line)}\n`);

/** A problem that the operator must fix first. The message says how. Exit code 1. */
export class Problem extends Error {
  override name = 'Problem';
}

/** Collects problems, so that an operator sees all of them at once. */
export type Collector = {
  problems: string[];
  /**
   * Returns the result of `get`. If `get` throws Problem or WrongUsage, collects the message and
   * returns `instead`.
   */
  of<T>(get: () => T | Promise<T>, instead: T): Promise<T>;
};
export function createCollector(): Collector {
  const problems: string[] = [];
  return {
    problems,
    async of(get, instead) {
      try {
        return await get();
      } catch (error) {
        if (!(error instanceof Problem) && !(error instanceof WrongUsage)) throw error;
        problems.push(error.message);
        return instead;
      }
    },
  };
}

/**
 * Runs one command and prints its error. Returns the exit code: the result of `body`, 1 (failed) or
 * 2 (wrong usage).
 */
export async function runCommand(
  name: string,
  usage: string,
  args: readonly string[],
  body: () => Promise<number>,
): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    print(usage);
    return 0;
  }
  try {
    return await body();
  } catch (error) {
    const wrong =
      error instanceof WrongUsage ||
      (error instanceof Error &&
        'code' in error &&
        String(error.code).startsWith('ERR_PARSE_ARGS'));
    const unexpected = !wrong && !(error instanceof Problem);
    complain(
      `berth ${name}: ` +
        (unexpected && error instanceof Error ? (error.stack ?? error.message) : messageOf(error)),
    );
    if (wrong) complain(`\n${usage}`);
    return wrong ? 2 : 1;
  }
}
