/**
 * Entry point of the process for a scheduled backup (process.ts). Prints one JSON object: the
 * result on stdout, or the error on stderr.
 */
import { runCommand } from './commands.ts';

process.exitCode = await runCommand('backup', ['--scheduled', '--json']);
