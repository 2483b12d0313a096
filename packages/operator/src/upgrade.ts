/** `bin/berth upgrade` calls `main`. */
import { runUpgrade } from './upgrade/run.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runUpgrade(args);
