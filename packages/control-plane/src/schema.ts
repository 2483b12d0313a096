/** `bin/berth schema` calls `main`. */
import { runSchema } from './backup/schema.ts';

/** Returns the exit code. */
export const main = (args: string[]): Promise<number> => runSchema(args);
