/**
 * A private PostgreSQL cluster: created by initdb in its own folder, on a free port, and removed at
 * the end. The server refuses to run as root; then it runs as `postgres` or `nobody`. A power cut
 * can lose acknowledged writes unless `durable` is set.
 */
import { existsSync, readdirSync } from 'node:fs';
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './config.ts';
import { freePort } from './ports.ts';
import { type RunningProcess, run, startProcess, untilReady } from './process.ts';

export interface Postgres {
  readonly port: number;
  readonly pid: number;
  /** Returns the address postgres://… of a database (default: `postgres`). */
  url(database?: string): string;
  /** Creates a database and returns its URL. */
  createDatabase(name: string, template?: string): Promise<string>;
  dropDatabase(name: string): Promise<void>;
  /** Runs SQL with psql and returns the rows; columns are separated by |. */
  query(sql: string, database?: string): Promise<string>;
  /** Returns all rows of a database as text, as a backup has them. */
  dump(database: string): Promise<string>;
  /**
   * Ends every connection at once and starts again on the same port, like a restart of the server.
   */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const USER = 'berth';

/**
 * Returns the folder of the server's programs. Debian keeps them outside PATH, one folder per
 * version.
 */
function programs(): string | undefined {
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian)
    ? readdirSync(debian).sort((a, b) => Number(b) - Number(a))
    : [];
  const newest = versions
    .map((version) => join(debian, version, 'bin'))
    .find((bin) => existsSync(join(bin, 'initdb')));
  if (newest !== undefined) return newest;
  const initdb = findProgram('initdb');
  return initdb === undefined ? undefined : join(initdb, '..');
}

/** Returns why this machine cannot run a cluster; undefined when it can. */
export function whyNoPostgres(): string | undefined {
  if (programs() === undefined) return 'no PostgreSQL server (Debian: postgresql)';
  if (findProgram('psql') === undefined) return 'no psql';
  if (process.getuid?.() === 0 && findProgram('setpriv') === undefined)
    return 'no setpriv, which is needed to run it without root';
  return undefined;
}

/**
 * Returns the ids of an unprivileged user, and the arguments in front of a command that run it as
 * that user.
 */
async function notRoot(): Promise<{
  owner: { uid: number; gid: number } | undefined;
  argv: string[];
}> {
  if (process.getuid?.() !== 0) return { owner: undefined, argv: [] };
  for (const name of ['postgres', 'nobody']) {
    const { code, stdout } = await run(['id', '-u', name], { mayFail: true });
    if (code !== 0) continue;
    const uid = Number(stdout);
    const gid = Number((await run(['id', '-g', name])).stdout);
    // A change of user clears the parent death signal, so it is set again.
    const ids = ['--reuid', String(uid), '--regid', String(gid), '--clear-groups'];
    return { owner: { uid, gid }, argv: ['setpriv', ...ids, '--pdeathsig', 'KILL', '--'] };
  }
  throw new Error('cannot run the server: neither user postgres nor user nobody exists');
}

/** @throws when PostgreSQL is not installed or does not answer within 30 s */
export async function startPostgres(options: { durable?: boolean } = {}): Promise<Postgres> {
  const bin = programs();
  const reason = whyNoPostgres();
  if (bin === undefined || reason !== undefined) throw new Error(reason);
  const user = await notRoot();
  // A short path that other users can enter. Only the owner can read the data.
  const dir = await mkdtemp(join(tmpdir(), 'berth-pg-'));
  const data = join(dir, 'data');
  let server: RunningProcess | undefined;
  const stop = async (): Promise<void> => {
    // SIGINT is the fast shutdown; SIGTERM would wait until every client has disconnected.
    server?.kill('SIGINT');
    await server?.stop(10_000);
    await rm(dir, { recursive: true, force: true });
  };
  try {
    await chmod(dir, 0o755);
    if (user.owner !== undefined) await chown(dir, user.owner.uid, user.owner.gid);
    const sync = options.durable === true ? [] : ['--no-sync'];
    const initdb = [
      ...user.argv,
      join(bin, 'initdb'),
      '-D',
      data,
      '-U',
      USER,
      '--auth=trust',
      '-E',
      'UTF8',
      '--locale=C.UTF-8',
      ...sync,
    ];
    await run(initdb as [string, ...string[]], { cwd: dir });
    const port = await freePort();
    const fsync = options.durable === true ? 'on' : 'off';
    // The log has no reader, and plans of small tables need no compiler.
    const lean = ['wal_level=minimal', 'max_wal_senders=0', 'jit=off'].flatMap((setting) => [
      '-c',
      setting,
    ]);
    const argv = [
      ...user.argv,
      join(bin, 'postgres'),
      ...['-D', data, '-k', dir, '-p', String(port)],
      ...[
        '-c',
        'listen_addresses=127.0.0.1',
        '-c',
        'max_connections=200',
        '-c',
        'shared_buffers=32MB',
      ],
      ...['-c', `fsync=${fsync}`, '-c', `full_page_writes=${fsync}`, '-c', 'autovacuum=off'],
      ...(options.durable === true ? [] : lean),
    ] as [string, ...string[]];
    const url = (database = 'postgres'): string =>
      `postgres://${USER}@127.0.0.1:${port}/${database}`;
    const query = async (sql: string, database?: string): Promise<string> =>
      (
        await run([
          'psql',
          '-X',
          '-A',
          '-t',
          '-q',
          '-v',
          'ON_ERROR_STOP=1',
          url(database),
          '-c',
          sql,
        ])
      ).stdout.trim();
    const start = async (): Promise<void> => {
      const started = await startProcess(argv, {
        name: 'postgres',
        cwd: dir,
        logFile: join(dir, 'log'),
      });
      server = started;
      await untilReady(started, async () => (await query('select 1')) === '1', 30_000);
    };
    await start();
    return {
      port,
      get pid() {
        return server?.pid ?? 0;
      },
      url,
      query,
      async createDatabase(name, template = 'template1') {
        await query(`create database "${name}" template "${template}"`);
        return url(name);
      },
      dropDatabase: async (name) =>
        void (await query(`drop database if exists "${name}" with (force)`)),
      dump: async (database) =>
        (await run([join(bin, 'pg_dump'), '--data-only', '--inserts', url(database)])).stdout,
      async restart() {
        server?.kill('SIGINT');
        await server?.exited;
        await start();
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
