/**
 * Runs a program to its end and returns its standard output. A failure is an error with the last
 * lines of its output.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const execute = promisify(execFile);

export async function output(
  [program = '', ...args]: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  try {
    return (
      await execute(program, args, { ...options, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
    ).stdout;
  } catch (error) {
    const {
      stderr = '',
      stdout = '',
      message,
    } = error as Error & { stderr?: string; stdout?: string };
    const said = (stderr.trim() || stdout.trim() || message).split('\n').slice(-8).join('\n');
    throw new Error(`${program} ${args.join(' ')} failed:\n${said}`, { cause: error });
  }
}
