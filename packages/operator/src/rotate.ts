/** `bin/berth rotate` calls `main`. */
import { runRotate } from './rotate/run.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runRotate(args);
