/**
 * The dashboard in Chromium with a real control plane (`npm run bench -- dashboard --real`), whose
 * database has 5,000 projects and 100,000 deployments. For each page: first paint, time until its
 * data are there, requests, their bytes, and the longest task; and the requests that one event of a
 * deployment causes on the page. The loops of the control plane do not run.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as pause } from 'node:timers/promises';
import { silentLogger } from '@berth/kit/log';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { type BrowserContext, chromium, type Page } from 'playwright-core';
import { type App, createApp } from '../packages/control-plane/src/app.ts';
import { readConfig } from '../packages/control-plane/src/config.ts';
import { buildDashboard } from '../scripts/lib/dashboard.ts';

const PROJECTS = 5_000;
const DEPLOYMENTS = 100_000;
const NODES = 60;
/** Projects that run on the dataset. */
const USES = 100;
const NOT_WELL = 12;
const FAILED = 25;
const DAY = 86_400_000;
const ADMIN = { email: 'a@bench.test', password: 'correct horse battery staple' };
const GOALS = { paintMs: 1_000, taskMs: 200, requests: 15, kib: 1_024, liveMs: 1_000 };
/** A page is quiet when it got no answer for this long, and is given up after the longest time. */
const QUIET_MS = 1_000;
const LONGEST_MS = 20_000;
/**
 * After an event the page asks again within 200 ms. A page that asks for everything is busy for
 * longer than this.
 */
const AFTER_EVENT_MS = 2_500;

export async function benchDashboardReal(): Promise<string[]> {
  const executablePath = findProgram('chromium');
  if (executablePath === undefined)
    return ['dashboard: skipped: no Chromium (Debian package chromium)'];
  const folder = await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-bench'));
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const path = join(dir, 'berth.db');
  const open = (): Promise<App> =>
    createApp(
      readConfig({
        BASE_DOMAIN: 'bench.test',
        DATABASE_URL: `sqlite:${path}`,
        STATE_DIR: dir,
        ADMIN_EMAILS: ADMIN.email,
        ADMIN_PASSWORD: ADMIN.password,
        JWT_SECRET: 'x'.repeat(48),
        LISTEN: '127.0.0.1:0',
        REGISTRY_ADDR: 'registry.test:5000',
        DASHBOARD_DIR: folder,
      }),
      { log: silentLogger(), loops: false },
    );
  let app = await open();
  const deploymentOf = await fill(app, path);
  await app.close();
  app = await open();
  const url = await app.listen();
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run'],
  });
  try {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
    const login = await context.request.post(`${url}/api/auth/login`, {
      data: ADMIN,
      headers: { 'x-session': 'cookie', origin: url },
    });
    if (!login.ok()) throw new Error(`sign-in: ${login.status()} ${await login.text()}`);
    const pages: Record<string, { at: string; has: string }> = {
      overview: { at: '/', has: `${NOT_WELL + FAILED} things need attention` },
      projects: { at: '/projects', has: 'project-0049' },
      project: { at: '/projects/project-0100', has: 'serves' },
      deployment: { at: `/deployments/${deploymentOf(100)}`, has: 'project-0100 #' },
      activity: { at: '/activity', has: 'Events' },
      deployments: { at: '/activity?kind=deployment', has: '#20' },
      datasets: { at: '/datasets', has: 'Datasets' },
      routes: { at: '/routes', has: 'project-' },
      nodes: { at: '/nodes', has: 'worker-0' },
      node: { at: '/nodes/worker-0', has: 'Containers' },
      dataset: { at: '/datasets/reference', has: 'project-0000' },
    };
    const lines = [
      `dashboard: ${PROJECTS} projects, ${DEPLOYMENTS} deployments, ${NODES} nodes; goals for ` +
        `each page: first paint ${GOALS.paintMs} ms, longest task ${GOALS.taskMs} ms, ` +
        `${GOALS.requests} requests, ${GOALS.kib} KiB of answers`,
    ];
    for (const [name, page] of Object.entries(pages))
      lines.push(`dashboard: ${name}: ${await measure(context, app, url, page)}`);
    lines.push(`dashboard: ${await liveChange(context, app, url)}`);
    return lines;
  } finally {
    await browser.close();
    await app.close();
    await rm(dir, { recursive: true, force: true });
  }
}

async function measure(
  context: BrowserContext,
  app: App,
  url: string,
  { at, has }: { at: string; has: string },
): Promise<string> {
  const page: Page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await page.addInitScript(
    'window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of ' +
      'list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ ' +
      'type: "longtask", buffered: true });',
  );
  let requests: Promise<number>[] = [];
  page.on('requestfinished', (request) => {
    if (!new URL(request.url()).pathname.startsWith('/api/')) return;
    const size = request.sizes().then(({ responseBodySize }) => responseBodySize);
    // The answer may still be on its way when the page closes.
    requests.push(size.catch(() => 0));
  });
  const began = performance.now();
  await page.goto(url + at);
  await page.getByText(has).first().waitFor();
  const ready = performance.now() - began;
  const quiet = (await untilQuiet(() => requests.length)) - began;
  const [count, bytes] = [requests.length, await sum(requests)];
  const paint = await page.evaluate<number>(
    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0",
  );
  const longest = await page.evaluate<number>('window.longest');
  requests = [];
  await page.evaluate('window.longest = 0');
  await request(app, 'project-0000');
  await pause(AFTER_EVENT_MS);
  const after =
    `${requests.length} requests, ${kib(await sum(requests))} KiB, longest task ` +
    `${Math.round(await page.evaluate<number>('window.longest'))} ms`;
  await page.close();
  return (
    `first paint ${Math.round(paint)} ms, data ${Math.round(ready)} ms, quiet ` +
    `${Math.round(quiet)} ms, longest task ${Math.round(longest)} ms, ${count} requests, ` +
    `${kib(bytes)} KiB; after an event ${after}`
  );
}

async function request(app: App, name: string): Promise<void> {
  const [project] = (await app.stores.projects.list({ limit: 1, cursor: null }, { name })).items;
  if (project === undefined) throw new Error(`no project ${name}`);
  await app.driver.request({
    projectId: project.id,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  });
  app.changes.notify('events');
}

/** From a deployment that another client requests until it is on a page that nobody touches. */
async function liveChange(context: BrowserContext, app: App, url: string): Promise<string> {
  const took: number[] = [];
  for (const name of ['project-0200', 'project-0201', 'project-0202']) {
    const page = await context.newPage();
    await page.goto(`${url}/projects/${name}`);
    await page.getByRole('link', { name: '#20' }).waitFor();
    await untilQuiet(() => 0);
    const began = performance.now();
    await request(app, name);
    await page.getByRole('link', { name: '#21' }).waitFor();
    took.push(performance.now() - began);
    await page.close();
  }
  return (
    'a change of another client is on the page after ' +
    `${took.map((ms) => Math.round(ms)).join(', ')} ms (goal: at most ${GOALS.liveMs})`
  );
}

/** Returns the time of the last answer. */
async function untilQuiet(count: () => number): Promise<number> {
  const deadline = performance.now() + LONGEST_MS;
  let last = { at: performance.now(), count: count() };
  while (performance.now() < deadline && performance.now() - last.at < QUIET_MS) {
    await pause(50);
    if (count() !== last.count) last = { at: performance.now(), count: count() };
  }
  return last.at;
}

const sum = async (sizes: readonly Promise<number>[]): Promise<number> =>
  (await Promise.all(sizes)).reduce((a, b) => a + b, 0);
const kib = (bytes: number): number => Math.round(bytes / 1_024);
const idOf = (i: number): string => `8b1f2c3d-0000-4000-8000-${100_000_000_000 + i}`;

/** Returns the id of the newest deployment of a project. */
async function fill(app: App, path: string): Promise<(project: number) => string> {
  const now = Date.now();
  const { id } = await app.stores.projects.create(
    {
      name: 'project-0000',
      domain_prefix: 'project-0000',
      git_url: 'https://git.example/team/project.git',
      env: { LOG_LEVEL: 'info' },
    },
    now - 300 * DAY,
  );
  const nodes: string[] = [];
  for (let i = 0; i < NODES; i++) {
    const body = {
      hostname: `worker-${i}`,
      role: 'deploy' as const,
      host_ip: `10.0.0.${i + 1}`,
      max_storage: 2e12,
      agent_version: '0.1.0',
    };
    nodes.push((await app.stores.nodes.register(body, now)).node.id);
  }
  const dataset = await app.stores.datasets.create(
    { name: 'reference', nfs_path: 'reference' },
    now,
  );
  const pinned = [{ dataset_id: dataset.id, name: dataset.name, mode: 'dependency', version: 1 }];
  const record = await app.stores.projects.get(id);
  const {
    id: _i,
    name: _n,
    flow_version: _f,
    last_generation: _l,
    deleting_at: _d,
    created_at: _c,
    updated_at: _u,
    ...settings
  } = record;
  const text = (value: unknown): string =>
    `'${(typeof value === 'string' ? value : JSON.stringify(value)).replaceAll("'", "''")}'`;
  const db = new DatabaseSync(path);
  try {
    db.exec('pragma synchronous = off');
    const columns = db.prepare('select name from pragma_table_info(?)').all('projects') as {
      name: string;
    }[];
    const name = "'project-' || substr('000' || i, -4)";
    const given: Readonly<Record<string, string>> = {
      id: `'9b1f2c3d-0000-4000-8000-' || (100000000000 + i)`,
      name,
      domain_prefix: name,
    };
    const n = (from: number, to: number): string =>
      `with recursive n(i) as (select ${from} union all select i + 1 from n where i < ${to})`;
    db.exec(`insert into projects (${columns.map((column) => column.name).join(', ')})
      ${n(1, PROJECTS - 1)} select ${columns.map((column) => given[column.name] ?? `p.${column.name}`).join(', ')} from n, projects p where p.id = ${text(id)}`);
    db.exec(`update projects set last_generation = ${DEPLOYMENTS / PROJECTS}`);
    db.exec(
      'create temp table numbered as select id, name, row_number() over (order by name) - 1 as ' +
        'place from projects',
    );
    db.exec('create index temp.place on numbered (place)');
    db.exec(`create temp table hosts (place integer primary key, id text)`);
    for (const [place, node] of nodes.entries())
      db.prepare('insert into hosts values (?, ?)').run(place, node);
    const newest = `i > ${DEPLOYMENTS - PROJECTS}`;
    const place = `(i - 1) % ${PROJECTS}`;
    const at = `${now} - (${DEPLOYMENTS} - i) * ${Math.round((200 * DAY) / DEPLOYMENTS)}`;
    // The newest deployment of FAILED projects failed; the one before still runs.
    const failed = `${newest} and ${place} % ${PROJECTS / FAILED} = 7`;
    const status =
      `case when ${failed} then 'failed' when ${newest} then 'running' when i % 10 = 8 then ` +
      "'failed' else 'retired' end";
    const sick =
      `${newest} and ${place} % ${Math.floor(PROJECTS / NOT_WELL)} = 11 and ${place} / ` +
      `${Math.floor(PROJECTS / NOT_WELL)} < ${NOT_WELL}`;
    db.exec(`insert into deployments (id, project_id, generation, status, settings, domain_prefix, error_code, error_message, "commit", image_tag,
        image_digest, node_id, container_id, host_port, route_published_at, losses, created_at, state_since, finished_at, ordinal, created_by,
        trigger, branch, commit_message, commit_author, health_status, health_since, health_detail)
      ${n(1, DEPLOYMENTS)} select '8b1f2c3d-0000-4000-8000-' || (100000000000 + i), p.id, (i - 1) / ${PROJECTS} + 1, ${status}, ${text(settings)}, p.name,
        case when ${status} = 'failed' then 'build_step_failed' end, case when ${status} = 'failed' then 'RUN npm test: exit code 1' end,
        '${'ab'.repeat(18)}' || (1000 + i % 9000), 'registry.test:5000/project:' || i, 'sha256:${'cd'.repeat(32)}', h.id, '${'ef'.repeat(32)}', 32768, ${at},
        '[]', ${at}, ${at}, ${at} + 90000, i, ${text({ kind: 'user', id: idOf(700_000), name: 'a.developer@bench.test' })}, 'api', 'main',
        'Basket: the sum is right again after a coupon was taken off (#1234)', 'A. Developer',
        case when ${status} = 'running' then case when ${sick} then 'unhealthy' else 'healthy' end end, ${at},
        case when ${sick} then 'GET /healthz answers 500' end
      from n join numbered p on p.place = ${place} join hosts h on h.place = ${place} % ${NODES}`);
    db.exec(
      `update deployments set datasets = ${text(pinned)} where id in ` +
        `(${n(DEPLOYMENTS - PROJECTS + 1, DEPLOYMENTS - PROJECTS + USES)} select ` +
        "'8b1f2c3d-0000-4000-8000-' || (100000000000 + i) from n)",
    );
    db.exec(`insert into events (at, kind, project_id, deployment_id, message)
      ${n(DEPLOYMENTS - 20_000, DEPLOYMENTS)} select ${at}, 'deployment.running', p.id, '8b1f2c3d-0000-4000-8000-' || (100000000000 + i), 'deployment of ' || p.name || ' is live'
      from n join numbered p on p.place = ${place}`);
    return (project) => idOf(DEPLOYMENTS - PROJECTS + project + 1);
  } finally {
    db.close();
  }
}
