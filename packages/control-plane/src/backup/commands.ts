/**
 * Commands for the operator on the control plane's machine: `bin/berth backup` and `restore`. They
 * open the database directly, whether the control plane runs or not. The control plane starts
 * `backup --scheduled` as a child process.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { makeBackup, type Made } from './make.ts';
import { BackupError } from './errors.ts';
import { encrypterFor } from './recipients.ts';
import { asOwner, chooseSettings } from './machine.ts';
import type { Manifest } from './manifest.ts';
import { ETC_BESIDE, restoreBackup } from './restore.ts';
import { backupAt, targetOf } from './targets.ts';
import { verifyBackup } from './verify.ts';
import { type BackupConfig, readBackupConfig } from '../config.ts';
import type { BackupStore } from '../domain/platform/backups.ts';
import { openBackups } from '../store/open.ts';

const USAGE = {
  backup: `Usage: berth backup [--to DIR|s3://BUCKET/PREFIX] [--recipient AGE]... [--with-keys] [--json]
       berth backup list [--to …] [--json]
       berth backup verify FILE|s3://BUCKET/NAME [--identity FILE]... [--json]

Makes one backup of the database while Berth runs, lists backups, or checks one of them. Run it on the
machine of the control plane. It uses the environment; without DATABASE_URL, the settings of
/etc/berth/control-plane.env if that exists.

  --to          where the backup goes; default: BACKUP_TO
  --recipient   encrypts for this age recipient (age1…); default: BACKUP_RECIPIENT
  --with-keys   also puts SECRETS_KEY, the other secret settings and the secrets of /etc/berth into the backup
  --identity    file with an age identity, for an encrypted backup
  --json        prints one JSON object`,
  restore: `Usage: berth restore FILE|s3://BUCKET/NAME [--identity FILE]... [--as-new] [--json]

Restores a backup to the place that DATABASE_URL names. The place must be empty. Without DATABASE_URL in
the environment, the settings of /etc/berth/control-plane.env count if that exists.

  --identity    file with an age identity, for an encrypted backup
  --as-new      another machine takes over: sessions end, and API tokens are signed with a new secret`,
};

const print = (line: string): void => void process.stdout.write(`${line}\n`);
const complain = (line: string): void => void process.stderr.write(`${line}\n`);

/** Returns the exit code: 0, 1 (failed), 2 (wrong usage or settings). */
export async function runCommand(command: 'backup' | 'restore', args: string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    print(USAGE[command]);
    return 0;
  }
  try {
    await run(command, args);
    return 0;
  } catch (error) {
    const usage = error instanceof WrongUsage;
    const otherCode = usage ? 'usage' : 'failed';
    const code = error instanceof BackupError ? error.code : otherCode;
    if (args.includes('--json')) complain(JSON.stringify({ code, detail: messageOf(error) }));
    else complain(`berth ${command}: ${messageOf(error)}${usage ? `\n\n${USAGE[command]}` : ''}`);
    return usage || (error instanceof Error && error.name === 'SettingsError') ? 2 : 1;
  }
}

type Given = ReturnType<typeof parsed>;

async function run(command: string, args: string[]): Promise<void> {
  const options = parsed(args);
  const { positionals, values } = options;
  // A scheduled backup inherits the environment of the control plane.
  const unit =
    values.scheduled === true ? null : chooseSettings(command, { quiet: values.json === true });
  if (command === 'restore') {
    const at = only(positionals, 'restore needs exactly one backup');
    return asOwner(() => restore(options, at, unit !== null));
  }
  const [verb, ...rest] = positionals;
  if (verb === undefined) return asOwner(() => backup(options));
  if (verb === 'list' && rest.length === 0) return list(options);
  if (verb === 'verify') return verify(options, only(rest, 'verify needs exactly one backup'));
  throw new WrongUsage(`unknown command “${positionals.join(' ')}”`);
}

async function backup({ values }: Given): Promise<void> {
  const config = readBackupConfig();
  const recipients = values.recipient ?? config.BACKUP_RECIPIENT ?? [];
  try {
    encrypterFor(recipients);
  } catch (error) {
    throw new WrongUsage(`one of the recipients is no age recipient (age1…): ${messageOf(error)}`);
  }
  const withKeys = values['with-keys'] === true;
  if (withKeys && recipients.length === 0)
    complain(
      'berth backup: the backup contains keys and is not encrypted: whoever reads it can read ' +
        'every secret (use --recipient)',
    );
  const target = await targetOf(placeOf(values.to, config), { endpoint: config.s3Endpoint });
  const record = await recordOf(config);
  try {
    const scheduled = values.scheduled === true ? config.BACKUP_KEEP : null;
    const made = await makeBackup({
      config,
      target,
      withKeys,
      recipients,
      record,
      scheduled,
      now: Date.now,
    });
    if (values.json === true)
      print(JSON.stringify(made ?? { skipped: 'another backup is running' }));
    else print(made === null ? 'another backup is running' : shown(made));
  } finally {
    await record?.close();
  }
}

const shown = ({ target, name, bytes, sha256, rows, left_out }: Made): string =>
  [
    `${target}/${name}`,
    `${(bytes / 1024 ** 2).toFixed(1)} MiB, sha256 ${sha256}`,
    `projects: ${rows['projects'] ?? 0}, deployments: ${rows['deployments'] ?? 0}, users: ` +
      (rows['users'] ?? 0),
    ...left_out.map(({ path, why }) => `not included: ${path} (${why})`),
  ].join('\n');

/**
 * Returns null if a new version has not migrated the database yet: the backup is more important
 * than its record.
 */
async function recordOf(
  config: BackupConfig,
): Promise<(BackupStore & { close(): Promise<void> }) | null> {
  try {
    return await openBackups({
      databaseUrl: config.DATABASE_URL,
      log: { info: () => {}, warn: () => {} },
    });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'older_database') return null;
    throw error;
  }
}

async function list({ values }: Given): Promise<void> {
  const config = readBackupConfig();
  const target = await targetOf(placeOf(values.to, config), { endpoint: config.s3Endpoint });
  const backups = (await target.list()).sort((a, b) => a.at - b.at || (a.name < b.name ? -1 : 1));
  if (values.json === true)
    print(
      JSON.stringify({
        target: target.shown,
        items: backups.map(({ name, at, encrypted }) => ({
          name,
          at: new Date(at).toISOString(),
          encrypted,
        })),
      }),
    );
  else for (const { name } of backups) print(`${target.shown}/${name}`);
}

async function verify({ values }: Given, at: string): Promise<void> {
  const config = readBackupConfig();
  const source = {
    ...(await backupAt(at, { endpoint: config.s3Endpoint })),
    identities: await identitiesIn(values.identity),
  };
  const { manifest, has_keys, opened, key_from } = await verifyBackup(source, config);
  if (values.json === true) print(JSON.stringify({ ...manifest, has_keys, opened }));
  else {
    print(
      'good: every byte is as it was written, and a control plane of this version can open the ' +
        `database of ${manifest.created_at}`,
    );
    if (manifest.key_ids.length > 0)
      print(`good: the key from ${key_from} opens the secrets (project keys: ${opened})`);
    printVolumes(manifest);
  }
}

async function restore({ values }: Given, at: string, isUnit: boolean): Promise<void> {
  const config = readBackupConfig();
  const source = {
    ...(await backupAt(at, { endpoint: config.s3Endpoint })),
    identities: await identitiesIn(values.identity),
  };
  const asNew = values['as-new'] === true;
  const { manifest, written } = await restoreBackup(source, { config, asNew, now: Date.now });
  if (values.json === true) return print(JSON.stringify({ ...manifest, written, as_new: asNew }));
  print(`restored the state of ${manifest.created_at}`);
  for (const path of written) print(`written: ${path}`);
  const etc = written.find((path) => basename(path) === ETC_BESIDE);
  if (etc !== undefined)
    print(
      `next: look at the files in ${etc}, copy those that you want to ${config.BERTH_ETC}, ` +
        'then berth install sets their owners',
    );
  print(`next: start the control plane${isUnit ? ': systemctl start berth-control-plane' : ''}`);
  printVolumes(manifest);
  print(
    'next: wait 30 s for the agents, then look at /readyz and at quarantined of GET /api/nodes',
  );
}

/** Prints the volumes whose data is not in the backup. */
function printVolumes({ volumes = [] }: Pick<Manifest, 'volumes'>): void {
  for (const { project, node, names, bytes } of volumes)
    print(
      `not in the backup: the data of ${project} in ${names.join(', ')} on ${node} ` +
        `(${bytes === null ? 'size unknown' : `${bytes} bytes`})`,
    );
}

function placeOf(to: string | undefined, config: BackupConfig): string {
  const place = to ?? config.BACKUP_TO;
  if (place === undefined) throw new WrongUsage('where? give --to, or set BACKUP_TO');
  return place;
}

async function identitiesIn(paths: readonly string[] = []): Promise<string[]> {
  const texts = await Promise.all(
    paths.map((path) =>
      readFile(path, 'utf8').catch((error: unknown) => {
        throw new WrongUsage(`--identity: ${messageOf(error)}`);
      }),
    ),
  );
  const identities = texts.flatMap((text) =>
    text.split(/\s+/).filter((word) => word.startsWith('AGE-SECRET-KEY-')),
  );
  if (paths.length > 0 && identities.length === 0)
    throw new WrongUsage('--identity: the file has no age identity (AGE-SECRET-KEY-…)');
  return identities;
}

function only(found: readonly string[], otherwise: string): string {
  const [one, ...more] = found;
  if (one === undefined || more.length > 0) throw new WrongUsage(otherwise);
  return one;
}

function parsed(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        to: { type: 'string' },
        recipient: { type: 'string', multiple: true },
        identity: { type: 'string', multiple: true },
        'with-keys': { type: 'boolean' },
        'as-new': { type: 'boolean' },
        scheduled: { type: 'boolean' },
        json: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new WrongUsage(messageOf(error));
  }
}
