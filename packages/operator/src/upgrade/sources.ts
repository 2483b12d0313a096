/** Reads the state of the running system and of the next version for `upgrade --check`. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import type { SchemaReport } from '@berth/wire/schema-report';
import { environment } from '../lib/config.ts';
import { Problem } from '../lib/command.ts';
import { ETC, parseEnv, readText } from '../lib/etc-files.ts';
import { PROGRAM_ENV, userNamed } from '../lib/machine.ts';
import { hasSystemd, systemctl } from '../lib/units.ts';
import type { Build } from './plan.ts';

const SETTINGS_FILE = join(ETC, 'control-plane.env');
/** Settings that the package's systemd unit sets. */
const OF_THE_UNIT = { STATE_DIR: '/var/lib/berth', DATABASE_URL: 'sqlite:/var/lib/berth/berth.db' };
const DEFAULT_LISTEN = '127.0.0.1:8080';

/**
 * Returns the environment of the control plane: the current environment if it names a database,
 * otherwise the settings file.
 */
function settings(): { env: NodeJS.ProcessEnv; isInstalled: boolean } {
  const text = environment()['DATABASE_URL'] === undefined ? readText(SETTINGS_FILE) : undefined;
  if (text === undefined) return { env: environment(), isInstalled: false };
  return {
    env: { ...PROGRAM_ENV, ...OF_THE_UNIT, ...Object.fromEntries(parseEnv(text)) },
    isInstalled: true,
  };
}

/** Runs `berth schema` as the user of the control plane, so that no file gets a wrong owner. */
export async function readState(): Promise<SchemaReport> {
  const { env, isInstalled } = settings();
  const user = isInstalled && process.getuid?.() === 0 ? userNamed('berth') : undefined;
  const as =
    user === undefined
      ? []
      : [
          'setpriv',
          '--reuid',
          String(user.uid),
          '--regid',
          String(user.gid),
          '--clear-groups',
          '--no-new-privs',
          '--',
        ];
  const argv = [...as, process.execPath, process.argv[1] ?? 'berth', 'schema'];
  const { code, stdout, stderr } = await exec(argv, {
    env,
    timeoutMs: 120_000,
    ...defined({ cwd: isInstalled ? '/' : undefined }),
  });
  if (code !== 0)
    throw new Problem(
      `the database cannot be read: ${stderr.trim().replace(/^berth schema: /, '')}`,
    );
  return JSON.parse(stdout) as SchemaReport;
}

/** Returns the version of the running control plane, or null if none answers. */
export async function runningVersion(): Promise<string | null> {
  const { env } = settings();
  const [, host = '', port = ''] = /^(.*):(\d+)$/.exec(env['LISTEN'] ?? DEFAULT_LISTEN) ?? [];
  const at = host === '' || host === '0.0.0.0' || host === '[::]' ? '127.0.0.1' : host;
  try {
    const answer = await fetch(`http://${at}:${port}/api/version`, {
      signal: AbortSignal.timeout(5_000),
    });
    return answer.ok ? String(((await answer.json()) as { version: unknown }).version) : null;
  } catch {
    return null;
  }
}

/** Returns the version of the installed Debian package, or null. */
export async function installedPackage(): Promise<string | null> {
  const dpkg = await exec(['dpkg-query', '-W', '-f=${db:Status-Status} ${Version}', 'berth'], {
    env: PROGRAM_ENV,
    timeoutMs: 30_000,
  }).catch(() => null);
  const [status, version] = dpkg?.code === 0 ? dpkg.stdout.trim().split(' ') : [];
  return status === 'installed' && version !== undefined ? version : null;
}

/** Returns the active units of Berth. */
export async function runningUnits(): Promise<string[]> {
  if (!hasSystemd()) return [];
  const listed = await systemctl(
    'list-units',
    '--type=service',
    '--state=active,activating,reloading',
    '--plain',
    '--no-legend',
    'berth-*',
  );
  return listed
    .split('\n')
    .flatMap((line) => (line.trim() === '' ? [] : [line.trim().split(/\s+/)[0] ?? '']));
}

/** Reads the version and schema that a package or an artefact declares. */
export async function readBuild(path: string): Promise<Build> {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) throw new Problem(`${path} does not exist`);
  return stats.isDirectory() ? readArtefact(path) : readPackage(path);
}

function readArtefact(folder: string): Build {
  const text = readText(join(folder, 'berth-build.json'));
  if (text === undefined)
    throw new Problem(`${folder} holds no artefact of Berth: berth-build.json is missing`);
  return buildIn(text, folder, {});
}

async function readPackage(file: string): Promise<Build> {
  if (!existsSync('/usr/bin/dpkg-deb'))
    throw new Problem('reading a package needs dpkg-deb: give the folder of an artefact');
  const fields = await exec(
    ['dpkg-deb', '--field', file, 'Package', 'Version', 'Architecture', 'Berth-Build'],
    {
      env: PROGRAM_ENV,
      timeoutMs: 60_000,
    },
  );
  if (fields.code !== 0) throw new Problem(`${file} is no Debian package: ${fields.stderr.trim()}`);
  const field = (name: string): string | undefined =>
    new RegExp(`^${name}: (.*)$`, 'm').exec(fields.stdout)?.[1];
  if (field('Package') !== 'berth')
    throw new Problem(`${file} is the package ${field('Package') ?? 'without a name'}, not berth`);
  return buildIn(field('Berth-Build') ?? '{}', file, {
    version: field('Version') ?? '',
    arch: field('Architecture') ?? '',
  });
}

function buildIn(text: string, from: string, more: { version?: string; arch?: string }): Build {
  try {
    const {
      version,
      arch = null,
      commit = null,
      schema = null,
      oldest_agent = null,
    } = {
      ...(JSON.parse(text) as Partial<Build>),
      ...more,
    };
    if (typeof version !== 'string' || version === '') throw new Error('it has no version');
    if (
      schema !== null &&
      !(Array.isArray(schema) && schema.every(({ name }) => typeof name === 'string'))
    )
      throw new Error('its schema is no list');
    return { version, arch, commit, schema, oldest_agent };
  } catch (error) {
    throw new Problem(`${from} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}
