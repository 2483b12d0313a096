/**
 * `bin/berth schema` prints, as one JSON object, what `berth upgrade --check` needs to know about
 * the database. It prints no secrets, changes no data, and runs beside a control plane of any
 * version.
 */
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import type { SchemaReport } from '@berth/wire/schema-report';
import { BERTH_VERSION, OLDEST_AGENT } from '@berth/wire/version';
import { readBackupConfig } from '../config.ts';
import { knownSteps, stateOf } from '../store/backup/upgrade-state.ts';
import { isSqlite } from '../store/backup/plain.ts';
import { snapshotFolder, snapshotRoom } from './snapshot.ts';

const USAGE = `Usage: berth schema

Prints the schema of the database that DATABASE_URL names, the schema of this version, the agents and the
open deployments as one JSON object. It changes nothing. berth upgrade --check shows it to people.`;

/** Returns the exit code: 0, 1 (failed), 2 (wrong usage or settings). */
export async function runSchema(args: string[]): Promise<number> {
  if (args.length > 0) {
    const asked = args.includes('--help') || args.includes('-h');
    (asked ? process.stdout : process.stderr).write(`${USAGE}\n`);
    return asked ? 0 : 2;
  }
  try {
    const config = readBackupConfig();
    const state = await stateOf(config.DATABASE_URL);
    const room = await snapshotRoom(config);
    const report: SchemaReport = {
      version: BERTH_VERSION,
      oldest_agent: OLDEST_AGENT,
      schema: knownSteps(state.engine),
      ...state,
      snapshot: {
        rule: config.UPGRADE_SNAPSHOT,
        folder: snapshotFolder(config),
        bytes: room.bytes,
        needed: room.needed,
        free: room.free,
        tool: isSqlite(config.DATABASE_URL) ? null : await pgDump(config.searchPath),
      },
    };
    process.stdout.write(`${JSON.stringify(report)}\n`);
    return 0;
  } catch (error) {
    process.stderr.write(`berth schema: ${messageOf(error)}\n`);
    return error instanceof Error && error.name === 'SettingsError' ? 2 : 1;
  }
}

/** Returns the version of pg_dump, or '' if it is not installed. */
async function pgDump(searchPath: string): Promise<string> {
  const answer = await exec(['pg_dump', '--version'], {
    env: { PATH: searchPath, LC_ALL: 'C.UTF-8' },
    timeoutMs: 10_000,
  }).catch(() => null);
  return /\d+(\.\d+)*/.exec(answer?.code === 0 ? answer.stdout : '')?.[0] ?? '';
}
