/**
 * Runs pg_dump and pg_restore. The password is passed through the environment, because process
 * lists show arguments.
 */
import { defined } from '@berth/kit/defined';
import { dyingWithParent, exec, exitError, type ExecResult } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { BackupError, isDiskFull } from './errors.ts';

type Tools = { databaseUrl: string; searchPath: string };

export async function dump(
  { databaseUrl, searchPath }: Tools,
  path: string,
  snapshot: string,
): Promise<void> {
  const { url, env } = connection(databaseUrl, searchPath);
  const argv = [
    'pg_dump',
    '--format=custom',
    '--compress=0',
    '--no-owner',
    '--no-privileges',
    '--lock-wait-timeout=60s',
  ];
  await runTool([...argv, `--snapshot=${snapshot}`, `--file=${path}`, `--dbname=${url}`], env);
}

/** Restores the dump in one transaction: everything or nothing. */
export async function restoreDump({ databaseUrl, searchPath }: Tools, path: string): Promise<void> {
  const { url, env } = connection(databaseUrl, searchPath);
  const argv = [
    'pg_restore',
    '--exit-on-error',
    '--single-transaction',
    '--no-owner',
    '--no-privileges',
  ];
  await runTool([...argv, `--dbname=${url}`, path], env);
}

/** Exit code of a wrapper program that did not find the program to start. */
const NOT_FOUND = 127;
const INSTALL = '; install the client programs of PostgreSQL (Debian: postgresql-client)';

async function runTool(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  const [tool = ''] = argv;
  let result: ExecResult;
  try {
    result = await exec(dyingWithParent(argv), {
      env,
      ...defined({ redact: env['PGPASSWORD'] === undefined ? undefined : [env['PGPASSWORD']] }),
    });
  } catch (error) {
    throw new BackupError('failed', `${messageOf(error)}${INSTALL}`, {
      cause: error,
    });
  }
  if (result.code === 0) return;
  const error = exitError(result, [], [tool]);
  if (isDiskFull(error) || /No space left on device/i.test(result.stderr))
    throw new BackupError('disk_full', error.message, { cause: error });
  throw new BackupError('failed', `${error.message}${hintFor(tool, result)}`, { cause: error });
}

function hintFor(tool: string, { stderr, code }: ExecResult): string {
  if (/server version mismatch/.test(stderr))
    return `; install ${tool} of the server's version or a newer one`;
  return code === NOT_FOUND ? INSTALL : '';
}

/** Values of `sslmode` in a `pg` URL that have another name in libpq. */
const SSL_MODES: Record<string, string> = { 'no-verify': 'require' };

function connection(
  databaseUrl: string,
  searchPath: string,
): { url: string; env: NodeJS.ProcessEnv } {
  const url = new URL(databaseUrl);
  const password = decodeURIComponent(url.password);
  url.password = '';
  const mode = url.searchParams.get('sslmode');
  if (mode !== null) url.searchParams.set('sslmode', SSL_MODES[mode] ?? mode);
  return {
    url: url.href,
    env: {
      PATH: searchPath,
      LC_ALL: 'C.UTF-8',
      ...defined({ PGPASSWORD: password === '' ? undefined : password }),
    },
  };
}
