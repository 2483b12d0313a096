/** `bin/berth backup` calls `main`. */
import { runCommand } from './backup/commands.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runCommand('backup', args);
