/**
 * 100,000 deployments (500 a day for 200 days; `--deployments=N` for another number) on SQLite and
 * on PostgreSQL. Measures the size of the database before and after a retention pass, the pass'
 * longest step, and the slowest list and detail request of the real API before and after.
 *
 * Logs are scaled: a deployment has LINES lines here instead of some 500 (measured: 111 KB per
 * deployment), and KEEP_LOG_BYTES is smaller by the same factor, so the same share of all logs
 * stays. Everything else has its real size.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import { silentLogger } from '@berth/kit/log';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { type App, createApp } from '../packages/control-plane/src/app.ts';
import { readConfig } from '../packages/control-plane/src/config.ts';

const DAYS = 200;
const A_DAY = 500;
const PROJECTS = 20;
const LINES = 8;
const REAL_LINES = 500;
const DAY = 86_400_000;
const PASSWORD = 'correct horse battery staple';
/** The default settings; the log limit is scaled, and lower for fewer deployments. */
const keepOf = (deployments: number) => ({
  deployments: 100,
  ms: 90 * DAY,
  logBytes: Math.round((((2 ** 30 * LINES) / REAL_LINES) * deployments) / 100_000),
});

/** Bytes by table, the largest first. */
type Sizes = ReadonlyMap<string, number>;
export type Engine = {
  name: string;
  url: string;
  run(sql: string): Promise<unknown>;
  vacuum(how?: 'full'): Promise<void>;
  /** Bytes of each table with its indexes. */
  tables(): Promise<Sizes>;
};

/** `deployments`: spread over 200 days; 100,000 are 500 a day. */
export async function benchRetention({ deployments }: { deployments: number }): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const lines = [
    `retention: ${deployments} deployments of ${PROJECTS} projects in ${DAYS} days; logs ` +
      `scaled to ${LINES} of ${REAL_LINES} lines, KEEP_LOG_BYTES scaled to ` +
      mb(keepOf(deployments).logBytes),
  ];
  try {
    const path = join(dir, 'berth.db');
    lines.push(
      ...(await bench(deployments, {
        name: 'SQLite',
        url: `sqlite:${path}`,
        run: async (sql) => runIn(path, sql),
        vacuum: async () => undefined,
        tables: async () => sizesIn(path),
      })),
    );
    const reason = whyNoPostgres();
    if (reason !== undefined) return [...lines, `retention: PostgreSQL skipped: ${reason}`];
    const pg = await startPostgres();
    try {
      const url = await pg.createDatabase('bench');
      lines.push(
        ...(await bench(deployments, {
          name: 'PostgreSQL',
          url,
          run: (sql) => pg.query(sql, 'bench'),
          vacuum: async (how) => void (await pg.query(`vacuum ${how ?? ''} analyze`, 'bench')),
          tables: async () => {
            const rows = await pg.query(
              'select relname, pg_total_relation_size(oid) as bytes from pg_class where ' +
                "relkind = 'r' and relnamespace = 'public'::regnamespace order by 2 desc",
              'bench',
            );
            return new Map(
              rows.split('\n').map((row) => [row.split('|')[0] ?? '', Number(row.split('|')[1])]),
            );
          },
        })),
      );
    } finally {
      await pg.stop();
    }
    return lines;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

export function runIn(path: string, sql: string): void {
  const db = new DatabaseSync(path);
  try {
    db.exec('pragma synchronous = off');
    db.exec(sql);
  } finally {
    db.close();
  }
}

function sizesIn(path: string): Sizes {
  const db = new DatabaseSync(path, { readOnly: true });
  try {
    const rows = db
      .prepare(
        'select tbl_name, sum(pgsize) as bytes from dbstat join sqlite_master using (name) ' +
          'group by tbl_name order by 2 desc',
      )
      .all();
    return new Map(rows.map((row) => [String(row['tbl_name']), Number(row['bytes'])]));
  } finally {
    db.close();
  }
}

async function bench(deployments: number, engine: Engine): Promise<string[]> {
  const now = Date.now();
  const env = {
    BASE_DOMAIN: 'bench.test',
    DATABASE_URL: engine.url,
    ADMIN_EMAILS: 'a@bench.test',
    ADMIN_PASSWORD: PASSWORD,
    JWT_SECRET: 'x'.repeat(48),
  };
  const open = (): Promise<App> =>
    createApp(readConfig({ ...env, LISTEN: '127.0.0.1:0', REGISTRY_ADDR: 'registry.test:5000' }), {
      log: silentLogger(),
      loops: false,
    });
  let app = await open();
  for (const sql of await history(app, deployments, now)) await engine.run(sql);
  // Restart: a server that has just inserted this much is in another state than one that has just
  // started.
  await app.close();
  await engine.vacuum();
  app = await open();
  try {
    const before = await app.stores.metrics.size();
    const tables = await engine.tables();
    const asked = await slowest(app, deployments);
    const work = await app.stores.retention.begin(keepOf(deployments), () => now);
    const took: number[] = [];
    const began = performance.now();
    for (;;) {
      const from = performance.now();
      const step = await work.next();
      took.push(performance.now() - from);
      if (step.done !== true) {
        // The loop rests here. Without a turn of the event loop, the checkpoint thread's answers
        // would never arrive.
        await setImmediate();
        continue;
      }
      await engine.vacuum();
      const after = await app.stores.metrics.size();
      const askedAfter = await slowest(app, deployments);
      const sorted = took.toSorted((a, b) => a - b);
      const at = (share: number): string =>
        (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(1);
      // PostgreSQL keeps the space of rows that were inserted and removed in one run. Over a year,
      // autovacuum reuses it for new rows.
      await engine.vacuum('full');
      const packed = await engine.tables();
      return [
        `retention: ${engine.name}: ${mb(before.bytes)} before, ${mb(after.bytes)} after ` +
          `(${mb(after.free)} of it free); ${step.value.thinned} deployments reduced to their ` +
          `record, ${step.value.logs} more logs removed`,
        `retention: ${engine.name}: before: ${largest(tables)}`,
        `retention: ${engine.name}: after, packed: ${largest(packed)}`,
        `retention: ${engine.name}: ${sorted.length} steps in ` +
          `${((performance.now() - began) / 1000).toFixed(0)} s without rests; a step took p50 ` +
          `${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms`,
        `retention: ${engine.name}: slowest list before ${asked.list}, after ` +
          `${askedAfter.list}; slowest detail before ${asked.detail}, after ${askedAfter.detail}`,
        `retention: ${engine.name}: ` +
          yearOf({ deployments, thinned: step.value.thinned, tables, packed }),
      ];
    }
  } finally {
    await app.close();
  }
}

/** Returns the slowest kind of request, by the median of five of each kind. */
async function slowest(app: App, deployments: number): Promise<{ list: string; detail: string }> {
  const login = await app.server.inject({
    method: 'POST',
    url: '/api/auth/login',
    payload: { email: 'a@bench.test', password: PASSWORD },
  });
  const headers = { authorization: `Bearer ${login.json<{ token: string }>().token}` };
  const [project] = (await app.stores.projects.list({ limit: 1, cursor: null })).items;
  const id = (i: number): string => idOf(Math.floor((deployments * i) / 10) + 1);
  const deep = await app.stores.deployments
    .list(
      {},
      {
        limit: 50,
        cursor: Buffer.from(JSON.stringify([Date.now() - 190 * DAY, 'd'])).toString('base64url'),
      },
    )
    .catch(() => null);
  const list = [
    '/api/deployments',
    '/api/deployments?limit=200',
    '/api/deployments?status=failed&limit=200',
    '/api/deployments?status=pending',
    `/api/deployments?project_id=${project?.id}&limit=200`,
    `/api/deployments?project_id=${project?.id}&status=failed`,
    '/api/projects',
    '/api/nodes',
    '/api/audit',
    ...(deep?.next ? [`/api/deployments?limit=200&cursor=${deep.next}`] : []),
    '/metrics',
  ];
  const detail = [0, 1, 5, 9].flatMap((i) => [
    `/api/deployments/${id(i)}`,
    `/api/deployments/${id(i)}/logs?limit=5000`,
    `/api/projects/${project?.id}`,
  ]);
  const worst = async (urls: readonly string[]): Promise<string> => {
    let found = { ms: 0, url: '' };
    for (const url of urls) {
      const took: number[] = [];
      for (let i = 0; i < 5; i++) {
        const from = performance.now();
        const reply = await app.server.inject({ url, headers });
        took.push(performance.now() - from);
        if (reply.statusCode !== 200) throw new Error(`${url}: ${reply.statusCode} ${reply.body}`);
      }
      const ms = took.toSorted((a, b) => a - b)[2] ?? 0;
      if (ms > found.ms) found = { ms, url };
    }
    return (
      `${found.ms.toFixed(1)} ms ` +
      `(${found.url.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, '…').replace(/cursor=.*/, 'cursor=…')})`
    );
  };
  return { list: await worst(list), detail: await worst(detail) };
}

/** Extrapolates to a year with 500 deployments a day, from the bytes of each kind of row. */
function yearOf({
  deployments,
  thinned,
  tables,
  packed,
}: {
  deployments: number;
  thinned: number;
  tables: Sizes;
  packed: Sizes;
}): string {
  if (thinned === 0)
    return 'too few deployments for an estimate of a year: none was reduced to its record';
  const bytesOf = (sizes: Sizes, ...names: string[]): number =>
    names.reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0);
  const whole =
    bytesOf(tables, 'deployments', 'deployment_events', 'tasks', 'log_heads', 'log_marks') /
    deployments;
  const wholeLeft = ((deployments - thinned) * bytesOf(tables, 'deployments')) / deployments;
  const record = (bytesOf(packed, 'deployments', 'kept_settings') - wholeLeft) / thinned;
  const parts = {
    logs: (bytesOf(packed, 'log_lines') * REAL_LINES * 100_000) / LINES / deployments,
    'whole deployments': whole * A_DAY * 90,
    records: record * A_DAY * (365 - 90),
    'audit log': (bytesOf(packed, 'audit_log') / deployments) * A_DAY * 365,
  };
  const sum = Object.values(parts).reduce((a, b) => a + b);
  const figures = Object.entries(parts).map(([name, bytes]) => `${name} ${mb(bytes)}`);
  return (
    `${(whole / 1000).toFixed(1)} KB a whole deployment, ${(record / 1000).toFixed(1)} KB a ` +
    `record; a year of ${A_DAY} a day takes ${mb(sum)}: ${figures.join(', ')}`
  );
}

const largest = (tables: Sizes): string =>
  [...tables]
    .slice(0, 7)
    .map(([table, bytes]) => `${table} ${mb(bytes)}`)
    .join(', ');
const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(0)} MB`;
const idOf = (i: number): string => `8b1f2c3d-0000-4000-8000-${100_000_000_000 + i}`;

/**
 * Creates projects, and returns statements that both engines understand: the first inserts their
 * deployments, the second their generations, the others what belongs to deployments.
 */
export async function history(
  app: App,
  deployments: number,
  now: number,
  count = PROJECTS,
): Promise<string[]> {
  const env = Object.fromEntries(
    Array.from({ length: 20 }, (_, i) => [
      `VARIABLE_${i}`,
      `a value of forty characters or so, number ${i}`,
    ]),
  );
  const nodes = Array.from({ length: 10 }, (_, i) => ({
    node_id: idOf(900_000 + i),
    hostname: `worker-${i}`,
    score: 812.25 - i,
    refused: null,
    cached: 1,
    missing_bytes: 1e9,
    free_bytes: 1e11,
  }));
  const projects: string[] = [];
  for (let i = 0; i < count; i++) {
    const name = `project-${i}`;
    const { id } = await app.stores.projects.create(
      { name, domain_prefix: name, git_url: `https://git.example/${name}.git`, env },
      now - 300 * DAY,
    );
    projects.push(id);
  }
  const {
    id: _i,
    name: _n,
    flow_version: _f,
    last_generation: _l,
    deleting_at: _d,
    created_at: _c,
    updated_at: _u,
    ...settings
  } = await app.stores.projects.get(projects[0] ?? '');
  const text = (value: unknown): string =>
    `'${(typeof value === 'string' ? value : JSON.stringify(value)).replaceAll("'", "''")}'`;
  const origin = {
    created_by: { kind: 'user', id: idOf(700_000), name: 'a.developer@bench.test' },
    phases: ['queue', 'build', 'place', 'copy', 'start', 'route'].map((name) => ({
      name,
      started_at: now,
      ended_at: now,
    })),
  };
  const common = { project_id: projects[0], project: 'project-0', domain_prefix: 'project-0' };
  const reason = 'deployment 124 of project-0 is live';
  const payloads = {
    build: {
      ...common,
      git_url: 'https://git.example/project-0.git',
      branch: 'main',
      image_repository: 'registry.test:5000/project-0',
    },
    deploy: {
      ...common,
      generation: 123,
      // A deployment's end empties `env`.
      env: {},
      image: `registry/${'x'.repeat(80)}`,
      image_tag: 'x'.repeat(80),
      datasets: [],
      replace: 'rolling',
    },
    retire: {
      ...common,
      remove: [{ deployment_id: idOf(1), reason }],
      keep: null,
      drain_seconds: 5,
      stop_grace_seconds: 10,
    },
  };
  const id = `'8b1f2c3d-0000-4000-8000-' || (100000000000 + i)`;
  const hex = `'${'ab'.repeat(18)}' || (1000 + i % 9000)`;
  const at = `${now} - cast(${deployments} - i as bigint) * ${(DAYS * DAY) / deployments}`;
  const status =
    `case when i > ${deployments - count} then 'running' when i % 10 = 7 then 'failed' when i % ` +
    '50 ' +
    "= 3 then 'superseded' else 'retired' end";
  const project = `(select id from projects where name = 'project-' || (i % ${count}))`;
  const n = (): string =>
    `with recursive n(i) as (select 1 union all select i + 1 from n where i < ${deployments})`;
  const steps = (most: number): string =>
    `, k(j) as (select 1 union all select j + 1 from k where j < ${most})`;
  return [
    `insert into deployments (id, project_id, generation, status, settings, domain_prefix, note, error_code, error_message, "commit", image_tag,
       image_digest, builder_id, node_id, container_id, host_port, route_published_at, placement, losses, created_at, state_since, finished_at, ordinal,
       created_by, trigger, branch, commit_message, commit_author, phases)
     ${n()} select ${id}, ${project}, (i - 1) / ${count} + 1, ${status}, ${text(settings)}, 'project-' || (i % ${count}), null,
       case when i % 10 = 7 then 'build_step_failed' end, case when i % 10 = 7 then 'RUN npm test: exit code 1' end,
       ${hex}, 'registry.test:5000/project:' || ${hex}, 'sha256:${'cd'.repeat(32)}', ${text(idOf(800_000))}, ${text(idOf(900_000))},
       '${'ef'.repeat(32)}', 32768, ${at} + 60000, ${text({ chosen: idOf(900_000), nodes })}, '[]', ${at}, ${at} + 600000, ${at} + 90000, i,
       ${text(origin.created_by)}, 'api', 'main', 'Basket: the sum is right again after a coupon was taken off (#1234)', 'A. Developer', ${text(origin.phases)} from n`,
    `update projects set last_generation = ${deployments / count}`,
    `insert into deployment_events (deployment_id, at, kind, message)
     ${n()}${steps(9)} select ${id}, ${at}, 'step_' || j, 'worker-1 did what this line of the story says, and it took 12 s' from n, k`,
    `insert into tasks (id, kind, status, project_id, deployment_id, node_id, attempt, payload, report, queue_deadline_at, wall_deadline_at,
       created_at, started_at, finished_at, lease_token)
     ${n()}${steps(3)} select ${id} || '-' || j, case j when 1 then 'build' when 2 then 'deploy' else 'retire' end, 'completed', ${project}, ${id},
       ${text(idOf(900_000))}, 1, case j when 1 then ${text(payloads.build)} when 2 then ${text(payloads.deploy)} else ${text(payloads.retire)} end, '{"status":"completed","container_id":"${'ef'.repeat(32)}"}', ${at}, ${at}, ${at}, ${at}, ${at} + j, '${'t'.repeat(43)}' from n, k`,
    `insert into audit_log (at, email, via, action, target, address, outcome, status, request_id)
     ${n()} select ${at}, 'a.developer@bench.test', 'token', 'deploy', ${project}, '192.0.2.17', 'done', 201, ${id} from n`,
    `insert into log_lines (deployment_id, seq, at, stream, step, text)
     ${n()}${steps(LINES)} select ${id}, j, ${at}, 'stdout', '[4/9] RUN npm ci', 'added 412 packages, and audited 413 packages in 12s, of a log line like any other ' || j from n, k`,
    `insert into log_heads (deployment_id, last_seq, bytes, left_out) ${n()} select ${id}, ` +
      `${LINES}, ${LINES * 98}, 0 from n`,
    `insert into log_marks (task_id, attempt, deployment_id, next_line) ${n()} select ${id} || ` +
      `'-1', 1, ${id}, ${LINES} from n`,
  ];
}
