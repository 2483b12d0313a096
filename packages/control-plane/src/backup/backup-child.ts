/**
 * The process of a scheduled backup (process.ts). It prints one JSON object, or one on stderr if it
 * fails.
 */
import { runCommand } from './commands.ts';

process.exitCode = await runCommand('backup', ['--scheduled', '--json']);
