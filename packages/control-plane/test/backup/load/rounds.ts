/**
 * Backups of a real control plane while clients and agents write to it. Each one is checked by
 * `berth backup verify`, restored into an empty place and compared with the rows and the history of
 * the source (compare.ts). Every tenth round holds the writes, and a control plane on the restored
 * database must give the same answers.
 */
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, pathOf } from '@berth/wire/client';
import { ROUTES } from '@berth/wire/routes';
import { repositoryRoot } from '@berth/testbed/config';
import { service, type Service } from '@berth/testbed/platform';
import { freePort } from '@berth/testbed/ports';
import type { Postgres } from '@berth/testbed/postgres';
import { run } from '@berth/testbed/process';
import { everything } from '../support.ts';
import { compare } from './compare.ts';
import { type Load, startLoad } from './load.ts';
import { type Rows, rowsOf } from './rows.ts';

/** Mistakes that the comparison must find. */
export const PLANTS = {
  none: 'no mistake',
  'copied file':
    'copies the file of SQLite while the control plane runs, without its write-ahead log',
  'two moments': 'takes the tables of the restored copy from two moments',
} as const;
export type Plant = keyof typeof PLANTS;

export type RoundsOptions = {
  rounds: number;
  /** Null: SQLite. */
  postgres: Postgres | null;
  plant?: Plant;
  /** Pause of each client after a write. */
  pauseMs?: number;
  print?: (line: string) => void;
};
export type RoundsReport = {
  problems: string[];
  rounds: number;
  writes: number;
  /** Rows that were equal before, in and after a backup, all rounds together. */
  unchanged: number;
  failures: string[];
  /** Latency of writes and reads in ms, while a backup runs and otherwise. */
  latency: Record<
    'write' | 'read',
    Record<'during' | 'otherwise', { n: number; p50: number; p99: number }>
  >;
  backupMs: { p50: number; max: number };
};

const SECRETS_KEY = Buffer.alloc(32, 5).toString('base64');
const ADMIN = { email: 'admin@berth.localhost', password: 'sesame-opens-nothing' };
const AGENT_SECRET = 'backup-under-load';
const QUIET_EVERY = 10;

type Place = { dir: string; url: string; drop(): Promise<unknown> };
type Times = { began: number; ended: number };
/** A backup and what it restores to. `place`: null without a restored database. */
type Taken = Times & { rows: Rows; place: Place | null };

export async function backupRounds(options: RoundsOptions): Promise<RoundsReport> {
  const { rounds, postgres, plant = 'none', pauseMs = 30, print = () => {} } = options;
  const dir = await mkdtemp(join(tmpdir(), 'berth-rounds-'));
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  let places = 0;
  async function newPlace(): Promise<Place> {
    const name = `rounds_${process.pid}_${places++}`;
    const folder = join(dir, name);
    await mkdir(folder);
    const drop = () => rm(folder, { recursive: true });
    if (postgres === null) return { dir: folder, url: `sqlite:${join(folder, 'berth.db')}`, drop };
    const url = await postgres.createDatabase(name);
    return { dir: folder, url, drop: () => postgres.dropDatabase(name).then(drop) };
  }
  try {
    await mkdir(join(dir, 'logs'));
    const backups = join(dir, 'backups');
    await mkdir(backups);
    const source = await newPlace();
    stops.push(source.drop);
    const live = await controlPlane(dir, source);
    stops.push(() => live.service.stop());
    const signIn = async (): Promise<string> =>
      (await createClient({ baseUrl: live.url }).call('login', { body: ADMIN })).token;
    let token = await signIn();
    let signedInAt = performance.now();
    const load = await startLoad({
      url: live.url,
      agentSecret: AGENT_SECRET,
      token: () => token,
      projects: 3,
      pauseMs,
    });
    stops.push(() => load.stop());

    const problems: string[] = [];
    const times: Times[] = [];
    let unchanged = 0;
    for (let round = 1; round <= rounds; round++) {
      // A session lasts an hour. A hundred rounds on a busy machine take longer.
      if (performance.now() - signedInAt > 30 * 60_000) {
        token = await signIn();
        signedInAt = performance.now();
      }
      const isQuiet = round % QUIET_EVERY === 0;
      if (isQuiet) await load.pause();
      const before = await rowsOf(source.url);
      await load.flush();
      const { place, rows: restored, began, ended } = await TAKE[plant](source, backups, newPlace);
      times.push({ began, ended });
      await load.flush();
      const found = compare({
        before,
        after: await rowsOf(source.url),
        restored,
        writes: load.writes,
        began,
        ended,
      });
      unchanged += found.unchanged;
      if (isQuiet && place !== null) {
        const other = await controlPlane(dir, place);
        const answers = await Promise.all(
          [live.url, other.url].map((url) => everything(clientOf(url, token))),
        );
        if (JSON.stringify(answers[0]) !== JSON.stringify(answers[1]))
          found.problems.push(`the API answers otherwise: ${difference(answers)}`);
        await other.service.stop();
      }
      load.resume();
      await place?.drop();
      problems.push(...found.problems.map((problem) => `round ${round}: ${problem}`));
      const state = found.problems.length === 0 ? 'equal' : `${found.problems.length} PROBLEMS`;
      print(
        `round ${round}${isQuiet ? ' (writes held, answers of the API compared)' : ''}: ` +
          `${state}; ${found.unchanged} rows and ${found.present} writes of ` +
          `${load.writes.length} compared; backup ${(ended - began).toFixed(0)} ms`,
      );
      for (const problem of found.problems.slice(0, 5)) print(`  ${problem}`);
    }
    return { ...report(load, times), problems, rounds, unchanged };
  } finally {
    for (const stop of stops.toReversed()) await stop();
  }
}

const settingsOf = ({ url, dir }: Place): Record<string, string> => ({
  DATABASE_URL: url,
  STATE_DIR: dir,
  BASE_DOMAIN: 'berth.localhost',
  SECRETS_KEY,
});

async function controlPlane(dir: string, place: Place): Promise<{ service: Service; url: string }> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const started = service(
    `control-plane-${basename(place.dir)}`,
    dir,
    `${url}/readyz`,
    ['control-plane'],
    {
      ...settingsOf(place),
      LISTEN: url.slice('http://'.length),
      AGENT_SECRET,
      JWT_SECRET: 'j'.repeat(40),
      ADMIN_EMAILS: ADMIN.email,
      ADMIN_PASSWORD: ADMIN.password,
      REGISTRY_ADDR: 'registry.test:5000',
      SETTLE_TIME: '0s',
    },
  );
  await started.start();
  return { service: started, url };
}

async function berth(args: readonly string[], place: Place): Promise<string> {
  const env = { PATH: process.env['PATH'] ?? '', ...settingsOf(place) };
  return (
    await run([process.execPath, join(repositoryRoot, 'bin', 'berth'), ...args], {
      env,
      deadlineMs: 300_000,
    })
  ).stdout;
}

type Take = (source: Place, backups: string, newPlace: () => Promise<Place>) => Promise<Taken>;
const TAKE: Record<Plant, Take> = {
  async none(source, backups, newPlace) {
    const began = performance.now();
    const [at = ''] = (await berth(['backup', '--to', backups], source)).split('\n');
    const ended = performance.now();
    await berth(['backup', 'verify', at], source);
    const place = await newPlace();
    await berth(['restore', at], place);
    await rm(at);
    return { began, ended, place, rows: await rowsOf(place.url) };
  },
  async 'copied file'(source, _backups, newPlace) {
    const copy = await newPlace();
    const began = performance.now();
    await copyFile(join(source.dir, 'berth.db'), join(copy.dir, 'berth.db'));
    // The file alone may be no database of Berth.
    const rows: Rows = await rowsOf(copy.url).catch(
      (error: unknown) => new Map([['unreadable', new Map([['', String(error)]])]]),
    );
    return { began, ended: performance.now(), place: null, rows };
  },
  async 'two moments'(source) {
    const began = performance.now();
    const first = await rowsOf(source.url);
    await sleep(1_000);
    const second = await rowsOf(source.url);
    const rows = new Map(
      [...first].map(([table, those]) => [
        table,
        table < 'm' ? those : (second.get(table) ?? those),
      ]),
    );
    return { began, ended: performance.now(), place: null, rows };
  },
};

/** Calls the API of a process as the tests call the one in their own process. */
function clientOf(url: string, token: string): Parameters<typeof everything>[0] {
  return {
    async call(name, { params = {} } = {}) {
      const answer = await fetch(url + pathOf(ROUTES[name], params), {
        headers: { authorization: `Bearer ${token}` },
      });
      const text = await answer.text();
      const json = (text.startsWith('{') ? JSON.parse(text, withoutClock) : { text }) as Record<
        string,
        unknown
      >;
      return { status: answer.status, json };
    },
  };
}

/** Agents register while the writes are held. */
const withoutClock = (key: string, value: unknown): unknown =>
  key === 'last_seen_at' ? null : value;

function difference([one = {}, other = {}]: Record<string, unknown>[]): string {
  const route = [...new Set([...Object.keys(one), ...Object.keys(other)])].find(
    (name) => JSON.stringify(one[name]) !== JSON.stringify(other[name]),
  );
  return (
    `${route}: ${JSON.stringify(one[route ?? ''])?.slice(0, 500)} and ` +
    JSON.stringify(other[route ?? ''])?.slice(0, 500)
  );
}

function report(
  { writes, failures, latencies }: Load,
  times: readonly Times[],
): Omit<RoundsReport, 'problems' | 'rounds' | 'unchanged'> {
  const quantiles = (values: readonly number[]) => {
    const sorted = [...values].sort((a, b) => a - b);
    const at = (q: number): number =>
      sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
    return { n: sorted.length, p50: at(0.5), p99: at(0.99) };
  };
  const of = (kind: 'write' | 'read') => {
    const all = latencies.filter((one) => one.kind === kind);
    const isDuring = ({ at }: { at: number }): boolean =>
      times.some(({ began, ended }) => at >= began && at <= ended);
    return {
      during: quantiles(all.filter(isDuring).map((one) => one.ms)),
      otherwise: quantiles(all.filter((one) => !isDuring(one)).map((one) => one.ms)),
    };
  };
  const lasted = times.map(({ began, ended }) => ended - began);
  return {
    writes: writes.length,
    failures,
    latency: { write: of('write'), read: of('read') },
    backupMs: { p50: quantiles(lasted).p50, max: Math.max(...lasted) },
  };
}
