/**
 * 5,000 projects with 100,000 deployments on SQLite and on PostgreSQL, beside the same control
 * plane with 50 projects and 1,000 deployments (`--projects=N` for another number). Measures the
 * lists that people wait for, as an admin, as a member of 3 projects who may see no other one, and
 * with a token of 3 projects. A list that reads only its own page takes as long with many projects.
 *
 * Requests go to both control planes in turn, so that a busy machine slows down both.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { type App, createApp } from '../packages/control-plane/src/app.ts';
import { readConfig } from '../packages/control-plane/src/config.ts';
import { history, runIn } from './retention.ts';
import { summary } from './stats.ts';

const FEW = 50;
const DEPLOYMENTS_EACH = 20;
const EVENTS = 10_000;
const OWN = 3;
const REQUESTS = 30;
const GOAL_RATIO = 2;
const DAY = 86_400_000;
const PASSWORD = 'correct horse battery staple';
const MEMBER = 'member@bench.test';

type Callers = { admin: string; member: string; token: string };
type Loaded = { app: App; callers: Callers; own: string };

export async function benchProjects({ projects }: { projects: number }): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  try {
    const files = [FEW, projects].map((count) => join(dir, `${count}.db`));
    const lines = await compare('SQLite', projects, dir, (i) => ({
      url: `sqlite:${files[i]}`,
      run: async (sql) => runIn(files[i] ?? '', sql),
      // As after a day with a running control plane: SQLite gets its statistics from the schema
      // alone.
      analyze: async () => undefined,
    }));
    const reason = whyNoPostgres();
    if (reason !== undefined) return [...lines, `projects: PostgreSQL skipped: ${reason}`];
    const pg = await startPostgres();
    try {
      const urls = [await pg.createDatabase('few'), await pg.createDatabase('many')];
      const nameOf = (i: number): string => (i === 0 ? 'few' : 'many');
      return [
        ...lines,
        ...(await compare('PostgreSQL', projects, dir, (i) => ({
          url: urls[i] ?? '',
          run: (sql) => pg.query(sql, nameOf(i)),
          analyze: async () => void (await pg.query('vacuum analyze', nameOf(i))),
        }))),
      ];
    } finally {
      await pg.stop();
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

type Database = { url: string; run(sql: string): Promise<unknown>; analyze(): Promise<void> };

async function compare(
  engine: string,
  projects: number,
  dir: string,
  database: (i: number) => Database,
): Promise<string[]> {
  const [few, many] = [await load(database(0), FEW, dir), await load(database(1), projects, dir)];
  try {
    const lines = [
      `projects: ${engine}: ${projects} projects with ${projects * DEPLOYMENTS_EACH} ` +
        `deployments, beside ${FEW} with ${FEW * DEPLOYMENTS_EACH}; p50 of ${REQUESTS} requests ` +
        'each, in turn',
    ];
    for (const who of ['admin', 'member', 'token'] as const) {
      const found: { list: string; ratio: number; text: string }[] = [];
      for (const list of LISTS) {
        const [fast, slow]: [number[], number[]] = [[], []];
        // The first requests are not counted, because the compiler has not optimized the measured
        // code yet.
        for (let i = -5; i < REQUESTS; i++)
          for (const [side, took] of [
            [few, fast],
            [many, slow],
          ] as const) {
            const ms = await timed(side, who, list.replace('{own}', side.own));
            if (i >= 0) took.push(ms);
          }
        const [before, after] = [summary(fast).p50, summary(slow).p50];
        const ratio = after / before;
        found.push({
          list,
          ratio,
          text: `${list} ${before.toFixed(1)} to ${after.toFixed(1)} ms (${ratio.toFixed(2)})`,
        });
      }
      const missed = found.filter(({ ratio }) => ratio > GOAL_RATIO).map(({ list }) => list);
      lines.push(
        `projects: ${engine}: ${NAMES[who]}: ${found.map(({ text }) => text).join(', ')}; goal of ` +
          `each ratio <= ${GOAL_RATIO}: ` +
          (missed.length === 0 ? 'met' : `MISSED by ${missed.join(', ')}`),
      );
    }
    return lines;
  } finally {
    await few.app.close();
    await many.app.close();
  }
}

const NAMES = {
  admin: 'an admin',
  member: `a member of ${OWN} projects, the only visible ones`,
  token: `a token of ${OWN} projects`,
};
const LISTS = [
  '/api/projects',
  '/api/projects?name={own}',
  '/api/projects/{own}',
  '/api/deployments',
  '/api/deployments?status=running&limit=50',
  '/api/deployments?status=failed',
  '/api/deployments?project_id={own}',
  '/api/events',
  '/api/events?limit=1',
  '/api/nodes',
  '/api/datasets',
  '/api/notifications',
];

async function timed({ app, callers }: Loaded, who: keyof Callers, url: string): Promise<number> {
  const from = performance.now();
  const reply = await app.server.inject({
    url,
    headers: { authorization: `Bearer ${callers[who]}` },
  });
  if (reply.statusCode !== 200 && !(who !== 'admin' && reply.statusCode === 403))
    throw new Error(`${url}: ${reply.statusCode} ${reply.body}`);
  return performance.now() - from;
}

async function load(
  { url, run, analyze }: Database,
  projects: number,
  dir: string,
): Promise<Loaded> {
  const env = {
    BASE_DOMAIN: 'bench.test',
    DATABASE_URL: url,
    ADMIN_EMAILS: 'a@bench.test',
    ADMIN_PASSWORD: PASSWORD,
    JWT_SECRET: 'x'.repeat(48),
    STATE_DIR: dir,
  };
  const open = (): Promise<App> =>
    createApp(readConfig({ ...env, LISTEN: '127.0.0.1:0', REGISTRY_ADDR: 'registry.test:5000' }), {
      log: silentLogger(),
      loops: false,
    });
  let app = await open();
  const now = Date.now();
  const [deployments = '', generations = ''] = await history(
    app,
    projects * DEPLOYMENTS_EACH,
    now,
    projects,
  );
  const member = await app.stores.users.create(
    { email: MEMBER, role: 'developer', password_hash: null },
    now,
  );
  const other = await app.stores.users.create(
    { email: 'other@bench.test', role: 'developer', password_hash: null },
    now,
  );
  // The member's projects are in the middle: neither the first rows of a list nor the last ones.
  const middle = Math.floor(projects / 2);
  const own = Array.from({ length: OWN }, (_, i) => `project-${middle + i}`);
  const names = own.map((name) => `'${name}'`).join(', ');
  const list = (id: string): string => JSON.stringify([{ user_id: id, role: 'developer' }]);
  const n = `with recursive n(i) as (select 1 union all select i + 1 from n where i < ${EVENTS})`;
  for (const sql of [
    deployments,
    generations,
    `update projects set members = '${list(other.id)}' where name not in (${names})`,
    `update projects set members = '${list(member.id)}' where name in (${names})`,
    `insert into project_members (project_id, user_id, role)
     select id, case when name in (${names}) then '${member.id}' else '${other.id}' end, 'developer' from projects`,
    `insert into events (at, kind, message, project_id)
     ${n} select ${now} - ${EVENTS} + i, 'deployment.running', 'deployment 12 of a project is live',
       (select id from projects where name = 'project-' || (i % ${projects})) from n`,
  ])
    await run(sql);
  await app.close();
  await analyze();
  app = await open();
  const post = async (
    path: string,
    as: string | null,
    payload: object,
  ): Promise<Record<string, unknown>> => {
    const headers = as === null ? {} : { authorization: `Bearer ${as}` };
    const reply = await app.server.inject({ method: 'POST', url: path, headers, payload });
    if (reply.statusCode >= 300) throw new Error(`${path}: ${reply.statusCode} ${reply.body}`);
    return reply.json<Record<string, unknown>>();
  };
  const admin = String(
    (await post('/api/auth/login', null, { email: 'a@bench.test', password: PASSWORD }))['token'],
  );
  // Admins create users with a password.
  await app.server.inject({
    method: 'PATCH',
    url: `/api/users/${member.id}`,
    headers: { authorization: `Bearer ${admin}` },
    payload: { password: PASSWORD },
  });
  const session = String(
    (await post('/api/auth/login', null, { email: MEMBER, password: PASSWORD }))['token'],
  );
  const expires_at = new Date(now + DAY).toISOString();
  const { token } = await post('/api/tokens', session, {
    name: 'ci',
    role: 'developer',
    projects: own,
    expires_at,
  });
  for (let i = 0; i < 3; i++)
    await post('/api/notifications', session, {
      name: `n-${randomUUID()}`,
      kind: 'webhook',
      target: 'https://hooks.example.com/x',
      on: ['failed'],
      projects: own,
    });
  return { app, callers: { admin, member: session, token: String(token) }, own: own[0] ?? '' };
}
