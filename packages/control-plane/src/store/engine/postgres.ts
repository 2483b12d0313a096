/**
 * The engine for several control planes: PostgreSQL through `pg` and Kysely. Transactions run READ
 * COMMITTED. Compare-and-set on projects.flow_version and the locks of capabilities.ts prevent the
 * races that this level allows.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '@berth/kit/message-of';
import { type Dialect, type Kysely, PostgresDialect, type PostgresPool, sql } from 'kysely';
import { type ClientConfig, Pool, type PoolClient, types } from 'pg';
import { StoreError, type StoreLog } from './errors.ts';

const OLDEST_SERVER = 13;
/**
 * Connections of one control plane, in addition to its notifier's connection. By default the server
 * allows 100 in total.
 */
const POOL_SIZE = 10;
const CONNECT_TIMEOUT_MS = 5_000;
/** How long in ms to wait for a server that does not answer (a restart, a failover). */
const RECONNECT_FOR_MS = 15_000;
const RECONNECT_MS = 100;
/**
 * Berth's statements take milliseconds; a statement that takes this long holds locks that others
 * wait for.
 */
const STATEMENT_TIMEOUT_MS = 30_000;
const LOCK_TIMEOUT_MS = 10_000;
/**
 * Limits how long a control plane that is paused in a transaction (SIGSTOP, a frozen machine) holds
 * its locks.
 */
const IDLE_IN_TRANSACTION_MS = 15_000;
/** Longer than the server's limit, so that only a lost server or network causes this timeout. */
const ANSWER_TIMEOUT_MS = 35_000;

export type OpenPostgres = {
  name: string;
  dialect: Dialect;
  migrating: Dialect;
  check: (db: Kysely<unknown>, log: StoreLog) => Promise<void>;
};

/** Returns the engine, which connects at the first query. Throws StoreError unsupported_url. */
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
    dialect: new PostgresDialect({
      pool: poolOf(name, { ...clientConfig(url), ...limits }, POOL_SIZE),
    }),
    migrating: new PostgresDialect({ pool: poolOf(name, clientConfig(url), 2) }),
    check: (db, log) => check(name, db, log),
  };
}

export const clientConfig = (url: string): ClientConfig => ({
  connectionString: url,
  application_name: 'berth',
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  keepAlive: true,
  types: { getTypeParser: parserOf as typeof types.getTypeParser },
});

/** Returns database, host and port for messages, without the password in the URL. */
function nameOf(url: string): string {
  if (!URL.canParse(url))
    throw new StoreError(
      'unsupported_url',
      'DATABASE_URL: not a URL; use postgres://user:password@host:5432/database',
    );
  const { host, pathname, searchParams } = new URL(url);
  const server = host === '' ? (searchParams.get('host') ?? 'localhost') : host;
  return `${decodeURIComponent(pathname.slice(1)) || 'postgres'} at ${server}`;
}

const BIGINT = 20;
type ParserOf = (oid: number, format?: 'text' | 'binary') => (text: string) => unknown;
/** Parses 64-bit integers (times, counters) as numbers. */
const parserOf: ParserOf = (oid, format) =>
  oid === BIGINT && format !== 'binary' ? numberOf : (types.getTypeParser as ParserOf)(oid, format);

function numberOf(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value))
    throw new Error(`${text} from the database does not fit into a number`);
  return value;
}

/**
 * Returns a pool for Kysely. Connection errors become StoreErrors, and a connection with an error
 * is discarded. The pool waits for a server that restarts. It retries a single read, but no
 * statement inside a transaction.
 */
function poolOf(name: string, config: ClientConfig, max: number): PostgresPool {
  const pool = new Pool({ ...config, max });
  // Empty listeners: without one the process would exit. The next user of the connection gets the
  // error.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));

  async function connect(until: number): Promise<PoolClient> {
    for (;;) {
      try {
        return await pool.connect();
      } catch (error) {
        if (!isConnectionError(error)) throw refused(name, error);
        if (performance.now() >= until || pool.ending) throw unreachable(name, error);
        await sleep(RECONNECT_MS);
      }
    }
  }

  async function checkOut() {
    let client = await connect(performance.now() + RECONNECT_FOR_MS);
    let [broken, begun] = [false, false];
    async function query(text: string, values: readonly unknown[]): Promise<unknown> {
      // The server rolled back when the connection was lost; an error here would hide the original
      // one.
      if (broken && text === 'rollback') return { command: 'ROLLBACK', rows: [] };
      const isSingleRead = !begun && text.startsWith('select');
      begun = true;
      for (const until = performance.now() + RECONNECT_FOR_MS; ; ) {
        try {
          return await client.query(text, values.map(withoutNul));
        } catch (error) {
          if (!isConnectionError(error)) throw error;
          broken = true;
          if (text === 'commit')
            throw new StoreError(
              'unknown_outcome',
              `the connection to the database ${name} was lost during a commit`,
              { cause: error },
            );
          if (!isSingleRead || performance.now() >= until) throw unreachable(name, error);
          await sleep(RECONNECT_MS);
          const next = await connect(until);
          client.release(true);
          [client, broken] = [next, false];
        }
      }
    }
    return { query, release: (discard?: boolean) => client.release(broken || discard === true) };
  }
  return {
    options: {},
    end: () => pool.end(),
    connect: checkOut as unknown as PostgresPool['connect'],
  };
}

/**
 * Replaces NUL, which PostgreSQL refuses in a text, so that the output of a program cannot make a
 * request fail.
 */
const withoutNul = (value: unknown): unknown =>
  typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value;

/** Error codes of sockets, and messages of pg errors that have no code. */
const SOCKET = /^E(CONN|PIPE|TIMEDOUT|HOSTUNREACH|NETUNREACH|AI_AGAIN|NOTFOUND)/;
const PG_MESSAGES =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Query read timeout|Client (was closed|has encountered))/;
/** SQLSTATE: connection_exception, admin_shutdown, crash_shutdown, cannot_connect_now. */
const SERVER = /^(08...|57P0[1-3])$/;

/** Returns whether the error is a failure of the connection and not of the statement. */
function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Has one error for each address of the host (localhost has two).
  if (error instanceof AggregateError) return error.errors.every(isConnectionError);
  const code = 'code' in error ? String(error.code) : '';
  return SOCKET.test(code) || SERVER.test(code) || PG_MESSAGES.test(error.message);
}

const messagesOf = (error: unknown): string =>
  error instanceof AggregateError ? error.errors.map(messagesOf).join('; ') : messageOf(error);
const unreachable = (name: string, cause: unknown): StoreError =>
  new StoreError('unreachable', `the database ${name} cannot be reached: ${messagesOf(cause)}`, {
    cause,
  });
const refused = (name: string, cause: unknown): StoreError =>
  new StoreError('cannot_open', `the database ${name} cannot be opened: ${messagesOf(cause)}`, {
    cause,
  });

async function check(name: string, db: Kysely<unknown>, log: StoreLog): Promise<void> {
  const { rows } = await sql<{
    version: number;
    version_text: string;
    encoding: string;
    fsync: string;
    synchronous: string;
  }>`
    select current_setting('server_version_num')::int as version,
      current_setting('server_version') as version_text,
      current_setting('server_encoding') as encoding, current_setting('fsync') as fsync,
      current_setting('synchronous_commit') as synchronous`.execute(db);
  const [server] = rows;
  if (server === undefined)
    throw new StoreError('cannot_open', `the database ${name} did not return its settings`);
  if (server.version < OLDEST_SERVER * 10_000)
    throw new StoreError(
      'engine_too_old',
      `PostgreSQL ${server.version_text} is too old; at least ${OLDEST_SERVER} is needed`,
    );
  if (server.encoding !== 'UTF8')
    throw new StoreError(
      'cannot_open',
      `the database ${name} has the encoding ${server.encoding}: create a database with ` +
        'encoding UTF8',
    );
  const unsafe = [
    server.fsync === 'off' ? 'fsync' : '',
    server.synchronous === 'off' ? 'synchronous_commit' : '',
  ].filter((s) => s !== '');
  if (unsafe.length > 0)
    log.warn(
      { database: name, off: unsafe },
      'the database server can lose committed transactions in a power cut: settings are off',
    );
}
