/** `bin/berth export` calls `main`. */
import { runTransfer } from './backup/transfer.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runTransfer('export', args);
