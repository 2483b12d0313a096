/**
 * The engine for several control planes: PostgreSQL by `pg` under Kysely. Transactions run READ COMMITTED; what that leaves open
 * is closed by compare-and-set on projects.flow_version and by the locks that capabilities.ts names.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dialect, type Kysely, PostgresDialect, type PostgresPool, sql } from 'kysely';
import { type ClientConfig, Pool, type PoolClient, types } from 'pg';
import type { StoreLog } from './errors.ts';
import { StoreError } from './errors.ts';

const OLDEST_SERVER = 13;
/** Connections of one control plane, besides the one of its relay. The server's default is 100 for all. */
const POOL_SIZE = 10;
const CONNECT_TIMEOUT_MS = 5_000;
/** How long a server that does not answer (a restart, a failover) is waited for. */
const PATIENCE_MS = 15_000;
const RECONNECT_MS = 100;
/** A statement of ours takes milliseconds; one that takes so long holds locks that others wait for. */
const STATEMENT_TIMEOUT_MS = 30_000;
const LOCK_TIMEOUT_MS = 10_000;
/** A control plane that was stopped (SIGSTOP, a frozen machine) in a transaction must not hold its locks for ever. */
const IDLE_IN_TRANSACTION_MS = 15_000;
/** Above the server's own limit: only a server or a network that is gone lets it come. */
const ANSWER_TIMEOUT_MS = 35_000;

export type OpenPostgres = {
  name: string;
  dialect: Dialect;
  migrating: Dialect;
  check: (db: Kysely<unknown>, log: StoreLog) => Promise<void>;
};

/** Connects when it is first used. Throws StoreError unsupported_url. */
export function openPostgres(url: string): OpenPostgres {
  const name = nameOf(url);
  const limits = {
    statement_timeout: STATEMENT_TIMEOUT_MS,
    lock_timeout: LOCK_TIMEOUT_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    query_timeout: ANSWER_TIMEOUT_MS,
  };
  return {
    name,
    dialect: new PostgresDialect({ pool: poolOf(name, { ...connection(url), ...limits }, POOL_SIZE) }),
    migrating: new PostgresDialect({ pool: poolOf(name, connection(url), 2) }),
    check: (db, log) => check(name, db, log),
  };
}

export const connection = (url: string): ClientConfig => ({
  connectionString: url,
  application_name: 'berth',
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  keepAlive: true,
  types: { getTypeParser: parserOf as typeof types.getTypeParser },
});

/** Host, port and database, as messages may tell them: the URL holds a password. */
function nameOf(url: string): string {
  if (!URL.canParse(url))
    throw new StoreError('unsupported_url', 'DATABASE_URL: not a URL; use postgres://user:password@host:5432/database');
  const { host, pathname, searchParams } = new URL(url);
  const server = host === '' ? (searchParams.get('host') ?? 'localhost') : host;
  return `${decodeURIComponent(pathname.slice(1)) || 'postgres'} at ${server}`;
}

const BIGINT = 20;
type ParserOf = (oid: number, format?: 'text' | 'binary') => (text: string) => unknown;
/** Times and counters are 64 bits wide there and numbers here. */
const parserOf: ParserOf = (oid, format) =>
  oid === BIGINT && format !== 'binary' ? numberOf : (types.getTypeParser as ParserOf)(oid, format);

function numberOf(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new Error(`${text} from the database does not fit into a number`);
  return value;
}

/**
 * Kysely's view of a pool. Errors of the connection get a name of their own, and a connection that had one is not used again.
 * A server that is starting anew is waited for, and a read that stands alone is asked again: what began with `begin` is not.
 */
function poolOf(name: string, config: ClientConfig, max: number): PostgresPool {
  const pool = new Pool({ ...config, max });
  // Whoever uses the connection next is told; without a listener the process would end.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));

  async function connect(until: number): Promise<PoolClient> {
    for (;;) {
      try {
        return await pool.connect();
      } catch (error) {
        if (!lost(error)) throw refused(name, error);
        if (Date.now() >= until || pool.ending) throw unreachable(name, error);
        await sleep(RECONNECT_MS);
      }
    }
  }

  async function checkOut() {
    let client = await connect(Date.now() + PATIENCE_MS);
    let [broken, begun] = [false, false];
    async function query(text: string, values: readonly unknown[]): Promise<unknown> {
      // It was rolled back with the connection; an error here would hide the one that matters.
      if (broken && text === 'rollback') return { command: 'ROLLBACK', rows: [] };
      const alone = !begun && text.startsWith('select');
      begun = true;
      for (const until = Date.now() + PATIENCE_MS; ; ) {
        try {
          return await client.query(text, values.map(storable));
        } catch (error) {
          if (!lost(error)) throw error;
          broken = true;
          if (text === 'commit')
            throw new StoreError('unknown_outcome', `the connection to the database ${name} was lost during a commit`, { cause: error });
          if (!alone || Date.now() >= until) throw unreachable(name, error);
          await sleep(RECONNECT_MS);
          const next = await connect(until);
          client.release(true);
          [client, broken] = [next, false];
        }
      }
    }
    return { query, release: (discard?: boolean) => client.release(broken || discard === true) };
  }
  return { options: {}, end: () => pool.end(), connect: checkOut as unknown as PostgresPool['connect'] };
}

/** PostgreSQL refuses NUL in a text; what a program printed must not make a request fail. */
const storable = (value: unknown): unknown =>
  typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value;

/** No route, refused, reset; and what pg says itself, which has no code. */
const SOCKET = /^E(CONN|PIPE|TIMEDOUT|HOSTUNREACH|NETUNREACH|AI_AGAIN|NOTFOUND)/;
const WORDS =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Query read timeout|Client (was closed|has encountered))/;
/** connection_exception, and the server going down, crashing or coming up. */
const SERVER = /^(08...|57P0[1-3])$/;

/** Whether the connection is what failed, not the statement. */
function lost(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Several addresses of one host (localhost) fail together.
  if (error instanceof AggregateError) return error.errors.every(lost);
  const code = 'code' in error ? String(error.code) : '';
  return SOCKET.test(code) || SERVER.test(code) || WORDS.test(error.message);
}

const wordsOf = (error: unknown): string =>
  error instanceof AggregateError ? error.errors.map(wordsOf).join('; ') : error instanceof Error ? error.message : String(error);
const unreachable = (name: string, cause: unknown): StoreError =>
  new StoreError('unreachable', `the database ${name} cannot be reached: ${wordsOf(cause)}`, { cause });
const refused = (name: string, cause: unknown): StoreError =>
  new StoreError('cannot_open', `the database ${name} cannot be opened: ${wordsOf(cause)}`, { cause });

async function check(name: string, db: Kysely<unknown>, log: StoreLog): Promise<void> {
  const { rows } = await sql<{ version: number; version_text: string; encoding: string; fsync: string; synchronous: string }>`
    select current_setting('server_version_num')::int as version, current_setting('server_version') as version_text,
      current_setting('server_encoding') as encoding, current_setting('fsync') as fsync,
      current_setting('synchronous_commit') as synchronous`.execute(db);
  const [server] = rows;
  if (server === undefined) throw new StoreError('cannot_open', `the database ${name} says nothing about itself`);
  if (server.version < OLDEST_SERVER * 10_000)
    throw new StoreError('engine_too_old', `PostgreSQL ${server.version_text} is too old; at least ${OLDEST_SERVER} is needed`);
  if (server.encoding !== 'UTF8')
    throw new StoreError('cannot_open', `the database ${name} has the encoding ${server.encoding}: make one with encoding UTF8`);
  const unsafe = [server.fsync === 'off' ? 'fsync' : '', server.synchronous === 'off' ? 'synchronous_commit' : ''].filter((s) => s !== '');
  if (unsafe.length > 0) log.warn({ database: name, off: unsafe }, 'the server may lose what it has acknowledged: a power cut can undo it');
}
