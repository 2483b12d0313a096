/**
 * The part of the demo about a whole application: a migration before the version, a worker beside
 * the web server, and a nightly job, with their data on a volume.
 */
import { join } from 'node:path';
import type { Deployment } from '@berth/wire/deployment';
import { isOpenRun } from '@berth/wire/run';
import type { GitServer } from '@berth/testbed/git-server';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import type { Platform } from '@berth/testbed/platform';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';

export const APP = {
  name: 'app',
  title: 'a whole application: web, worker, migration and nightly job',
  path: '/healthz',
} as const;

export type AppDemo = {
  berth: Platform;
  git: GitServer;
  printLine: (text: string) => void;
  follow: (name: string, asked: Deployment) => Promise<Deployment>;
};

/** Returns whether the worker priced an order and the job counted it. */
export async function demonstrateApp({ berth, git, printLine, follow }: AppDemo): Promise<boolean> {
  const { url } = await git.createRepo(APP.name, join(repositoryRoot, 'examples', APP.name));
  const project = await berth.createProject({
    name: APP.name,
    git_url: url,
    domain_prefix: APP.name,
    volumes: [{ name: 'data', mount_path: '/data' }],
    replace: 'recreate',
    drain_seconds: 1,
    stop_grace_seconds: 3,
  });
  const done = await follow(APP.name, await berth.deploy(project, { note: 'the demo' }));
  if (done.status !== 'running') return false;
  printLine(
    `${APP.name}: ${done.instances.map((i) => `${i.process} ${i.number}`).join(' and ')} run`,
  );
  await order(berth, 'teapot');
  const priced = await waitFor(
    'the worker prices the order',
    async () => (await stateOf(berth)).orders.find(({ status }) => status === 'done'),
    { deadlineMs: 30_000, intervalMs: 100 },
  );
  printLine(`${APP.name}: the worker priced the order of a ${priced.item}: ${priced.price}`);
  const { id } = await berth.api.call('runJob', { params: { id: project.id, name: 'report' } });
  const run = await waitFor(
    'the job ends',
    async () => {
      const now = await berth.api.call('getRun', { params: { id } });
      return !isOpenRun(now.status) && now;
    },
    { deadlineMs: 60_000, intervalMs: 100 },
  );
  const { report } = await stateOf(berth);
  printLine(
    `${APP.name}: the nightly job ran now: ${run.status}, ${report?.orders ?? 'no'} order counted`,
  );
  return run.status === 'succeeded' && report?.orders === 1;
}

async function order(berth: Platform, item: string): Promise<void> {
  const answer = await new PlainBrowser().open(`${berth.address(APP.name)}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ item, amount: '1' }).toString(),
    follow: false,
  });
  if (answer.status !== 303) throw new Error(`POST /orders answered ${answer.status}`);
}

type State = {
  orders: { item: string; status: string; price: number | null }[];
  report: { orders: number } | null;
};
const stateOf = async (berth: Platform): Promise<State> =>
  JSON.parse((await berth.get(APP.name, '/orders.json')).body) as State;
