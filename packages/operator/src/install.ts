/** `bin/berth install` calls `main`. */
import { runInstall } from './install/run.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runInstall(args);
