/**
 * `bin/berth export` and `import`: move an installation between SQLite and PostgreSQL, as JSON
 * lines.
 */
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { BERTH_VERSION } from '@berth/wire/version';
import { readBackupConfig } from '../config.ts';
import { exportLines, importLines } from '../store/backup/transfer.ts';
import { openTransfer } from '../store/open.ts';
import { asOwner, chooseSettings } from './machine.ts';

const USAGE = {
  export: `Usage: berth export [--logs] > FILE

Writes the database that DATABASE_URL names as JSON lines to standard output, in one consistent state, while
Berth runs or not. It has everything except sessions, device codes and logs. It contains password hashes and
encrypted secrets, but no keys.

  --logs   also writes the logs of deployments`,
  import: `Usage: berth import < FILE

Reads an export of the same version of Berth into the database that DATABASE_URL names. The database must be
empty. Everything is imported, or nothing.`,
};
/** Returns the exit code: 0, 1 (failed), 2 (wrong usage or settings). */
export async function runTransfer(command: 'export' | 'import', args: string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(`${USAGE[command]}\n`);
    return 0;
  }
  try {
    const logs =
      optionsOf(args, command === 'export' ? { logs: { type: 'boolean' } } : {}).logs === true;
    chooseSettings(command);
    await asOwner(() => (command === 'export' ? write(logs) : read()));
    return 0;
  } catch (error) {
    const usage = error instanceof WrongUsage;
    process.stderr.write(
      `berth ${command}: ${messageOf(error)}${usage ? `\n\n${USAGE[command]}` : ''}\n`,
    );
    return usage || (error instanceof Error && error.name === 'SettingsError') ? 2 : 1;
  }
}

function optionsOf(
  args: string[],
  options: { logs?: { type: 'boolean' } },
): { logs?: string | boolean | undefined } {
  try {
    return parseArgs({ args, options }).values;
  } catch (error) {
    throw new WrongUsage(messageOf(error));
  }
}

async function write(logs: boolean): Promise<void> {
  const db = await openTransfer(readBackupConfig().DATABASE_URL, 'existing');
  try {
    for await (const line of exportLines(db, { berth: BERTH_VERSION, schema: db.schema, logs })) {
      // Waits for a slow reader: unsent lines would fill the memory.
      if (!process.stdout.write(`${line}\n`))
        await new Promise((drained) => process.stdout.once('drain', drained));
    }
  } finally {
    await db.close();
  }
}

async function read(): Promise<void> {
  const { DATABASE_URL: databaseUrl } = readBackupConfig();
  const db = await openTransfer(databaseUrl, 'new');
  try {
    const rows = await importLines(db, db.schema, linesOf(process.stdin));
    const { projects = 0, deployments = 0, users = 0 } = rows;
    process.stdout.write(
      `imported projects: ${projects}, deployments: ${deployments}, users: ${users}\n`,
    );
  } finally {
    await db.close();
  }
}

/**
 * Creates the reader at the first use: it would lose lines that arrive before somebody iterates.
 */
async function* linesOf(input: NodeJS.ReadableStream): AsyncGenerator<string> {
  yield* createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY });
}
