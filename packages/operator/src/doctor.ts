/** `bin/berth doctor` calls `main`. */
import { runDoctor } from './doctor/run.ts';

/** Returns the exit code: 0 without findings, 1 with findings, 2 for wrong usage. */
export const main = (args: string[]): Promise<number> => runDoctor(args);
