/**
 * Berth renames a container itself after a switch. A report whose list is older than the rename
 * shows no drift.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { driverOn } from './driver.ts';
import {
  deploymentIn,
  NOW,
  open,
  projectIn,
  retirePayload,
  taskOf,
  tasksIn,
} from '../store/fixtures.ts';

let stores: AllStores;
let driver: Driver;
let now = NOW;
/** The last answer that the agent got. */
let answer: string | null = null;
let node = '';

type Reported = { name: string; labels: Record<string, string>; host_port: number; state: string };
const named = (name: string): Reported => ({
  name,
  labels: { [LABELS.deployment]: 'd2' },
  host_port: 4000,
  state: 'running',
});
const [OWN, FINAL] = [named('svc-shop-g2'), named('svc-shop')];

/** `saysAnswer`: the agent names the last answer that it had when it made the list. */
async function register(container: Reported, saysAnswer = true): Promise<void> {
  const { node: seen } = await stores.nodes.register(
    {
      hostname: 'h',
      role: 'deploy',
      host_ip: '10.0.0.1',
      max_storage: 1,
      agent_version: '1',
      containers: [container],
      ...(saysAnswer ? { last_answer_at: answer } : {}),
    },
    now,
  );
  node = seen.id;
  answer = new Date(seen.last_seen_at).toISOString();
  await driver.observed(seen);
}
const state = async () => {
  const { health } = await stores.deployments.get('d2');
  const drifts = ((await stores.deployments.events(['d2'])).get('d2') ?? []).filter((line) =>
    line.message.startsWith('drifted'),
  );
  return {
    health: health?.status,
    drifts: drifts.length,
    open: (await stores.tasks.openFor(node, now)).length,
  };
};
const QUIET = { health: 'healthy', drifts: 0, open: 0 };

/** The switch was one second ago: the retire task is open. */
beforeEach(async () => {
  [stores, now, answer] = [await open(undefined, () => now), NOW, null];
  driver = driverOn(stores, () => now);
  await register(OWN);
  const created = await projectIn(stores);
  const health = { status: 'healthy' as const, since: NOW, detail: null };
  await deploymentIn(stores, created, 'd2', {
    status: 'running',
    node_id: node,
    host_port: 4000,
    route_published_at: NOW,
    health,
  });
  const project = await stores.projects.get(created.id);
  const retire = taskOf(project, 't1', node, { kind: 'retire', deployment_id: 'd2' });
  const keep = { deployment_id: 'd2', name: 'svc-shop' };
  await tasksIn(stores, project, {
    ...retire,
    payload: { ...retirePayload(project), keep },
  } as typeof retire);
  now += 1000;
});

async function renamed(): Promise<void> {
  await stores.tasks.claim('t1', { token: 'lease', expires_at: now + 30_000 }, now, 5);
  now += 1000;
  await driver.report('t1', 'lease', { status: 'completed', result: null });
  now += 10;
}

test('a list that was made before the rename and arrives after it shows no drift', async () => {
  await renamed();
  await register(OWN);
  expect(await state()).toEqual(QUIET);
  now += 30_000;
  await register(FINAL);
  expect(await state()).toEqual(QUIET);
});

test.each([
  ['an agent that names its last answer', true],
  ['an agent that does not', false],
])('a rename that did not happen is shown, and tried once more: %s', async (_, saysAnswer) => {
  await renamed();
  if (saysAnswer) await register(OWN);
  now += 30_000;
  await register(OWN, saysAnswer);
  expect(await state()).toEqual({ health: 'drifted', drifts: 1, open: 1 });
});

test('every other drift in an old list is shown', async () => {
  await renamed();
  await register({ ...OWN, labels: { ...OWN.labels, [LABELS.generation]: '9' } });
  expect(await state()).toMatchObject({ health: 'drifted', drifts: 1 });
  expect((await stores.deployments.get('d2')).health?.detail).toMatch(
    /^its label berth\.generation is 9 instead of \d+$/,
  );
});
