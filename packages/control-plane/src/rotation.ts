/**
 * `berth rotation`: prints as JSON which process uses which value of a secret, for `berth rotate`.
 * Reads the database directly, also while a control plane runs.
 */
import { messageOf } from '@berth/kit/message-of';
import { readDatabaseUrl } from './config.ts';
import { readRotation } from './domain/secrets/rotation.ts';
import { openRotation } from './store/open.ts';

const USAGE = `Usage: berth rotation

Prints as JSON which value of each secret the control planes, gateways and nodes use, as fingerprints. berth rotate
calls it. Run it on the machine of the control plane, in the same working directory and with the same DATABASE_URL.`;

/** Returns the exit code: 0, 1 (failed), 2 (wrong usage or settings). */
export async function main(args: string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  if (args.length > 0) {
    process.stderr.write(`berth rotation: takes no arguments\n\n${USAGE}\n`);
    return 2;
  }
  try {
    const source = await openRotation({
      databaseUrl: readDatabaseUrl(),
      log: { info: () => {}, warn: () => {} },
    });
    try {
      process.stdout.write(`${JSON.stringify(await readRotation(source, Date.now(), true))}\n`);
    } finally {
      await source.close();
    }
    return 0;
  } catch (error) {
    process.stderr.write(`berth rotation: ${messageOf(error)}\n`);
    return error instanceof Error && error.name === 'SettingsError' ? 2 : 1;
  }
}
