/**
 * A drain with many stopped projects whose volumes cannot move: what one step costs, and that each
 * has its turn.
 */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type {
  DeploymentRecord,
  DrainRecord,
  NodeRecord,
} from '../../src/domain/platform/records.ts';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { newDrain, TRIED_AT_ONCE } from '../../src/flow/drain.ts';
import { type Deps, drains } from '../../src/loops/drains.ts';
import { node, NOW, on, project, SETTINGS } from '../flow/fixtures.ts';

const volumes = [{ name: 'data', mount_path: '/data' }];
const go = new AbortController().signal;

/**
 * A drained node with the volumes of so many stopped projects. `begins`: whether a move begins.
 * `finishedAt`: of the drain.
 */
function drainOf(count: number, begins = false, finishedAt: number | null = null) {
  const projects = Array.from({ length: count }, (_, i) => ({
    ...project({ volumes }),
    id: `p${i}`,
  }));
  const settings = { ...SETTINGS, volumes };
  const resting = projects.map((p) =>
    on.running({
      id: `d-${p.id}`,
      project_id: p.id,
      settings,
      health: null,
      stopped_first: 'stopped',
    }),
  );
  const record: NodeRecord = {
    ...node({ id: 'n1' }),
    drain: { ...newDrain(NOW - 9), finished_at: finishedAt },
  };
  const written: (DrainRecord | null)[] = [];
  let reads = 0;
  const tried: string[] = [];
  const read =
    <A extends unknown[], R>(answer: (...given: A) => R) =>
    async (...given: A): Promise<R> => {
      reads += 1;
      return answer(...given);
    };
  const stores = {
    nodes: {
      listDraining: read(() => [record]),
      setDrain: read((_: string, drain: DrainRecord) => (written.push(drain), null)),
    },
    deployments: {
      servingOn: read((): DeploymentRecord[] => []),
      inProgress: read(() => []),
      getMany: read((ids: string[]) => resting.filter((d) => ids.includes(d.id))),
    },
    instances: { onNode: read(() => []), ofDeployments: read(() => []) },
    volumes: {
      onNode: read(() =>
        projects.map((p) => ({ project_id: p.id, state: 'current', names: ['data'] })),
      ),
    },
    projects: {
      runningDeployments: read(() => new Map(resting.map((d) => [d.project_id, d.id]))),
      getMany: read(() => projects),
    },
    tasks: { moving: read(() => new Set()) },
    runs: { onNode: read(() => []) },
    unmanaged: { left: read(() => []) },
  };
  const moveVolumes = (id: string): Promise<boolean> => {
    tried.push(id);
    return Promise.resolve(begins);
  };
  const reviewMoves = (): Promise<void> => Promise.resolve();
  const deps = {
    ...stores,
    driver: { moveVolumes, reviewMoves, newId: () => 'x' },
    now: () => NOW,
    log: silentLogger(),
  };
  return {
    step: drains(deps as unknown as Deps),
    tried,
    all: resting.map((d) => d.id),
    reads: () => reads,
    written,
  };
}

test('each waiting project has its turn, a few in one step', async () => {
  const { step, tried, all } = drainOf(TRIED_AT_ONCE * 2 + 2);
  for (let i = 1; i <= 3; i++) {
    await step(go);
    expect(tried).toHaveLength(TRIED_AT_ONCE * i);
  }
  expect(new Set(tried)).toEqual(new Set(all));
});

test('as many moves begin as there is room for', async () => {
  const { step, tried } = drainOf(TRIED_AT_ONCE, true);
  await step(go);
  expect(tried).toHaveLength(2);
});

test('a step makes the same number of reads for one waiting project as for many', async () => {
  const [one, many] = [drainOf(1), drainOf(200)];
  await one.step(go);
  await many.step(go);
  expect(many.reads()).toBe(one.reads());
});

test('a finished drain goes on when volumes have come to the node, and otherwise keeps its end', async () => {
  const [returned, empty] = [drainOf(1, true, NOW - 5), drainOf(0, false, NOW - 5)];
  await returned.step(go);
  expect(returned.tried).toEqual(returned.all);
  expect(returned.written).toMatchObject([{ finished_at: null }]);
  await empty.step(go);
  expect(empty.written).toEqual([]);
});

/** A drain of n1 with one deployment, whose instances and runs each step gives. */
function drainBeside(d: DeploymentRecord) {
  const record: NodeRecord = { ...node({ id: 'n1' }), drain: newDrain(NOW - 9) };
  const asked: unknown[] = [];
  const stepWith = async (
    instances: InstanceRecord[],
    runs: unknown[] = [],
  ): Promise<DrainRecord | null> => {
    let drain: DrainRecord | null = null;
    const onNode = instances.filter(({ node_id }) => node_id === 'n1');
    await drains({
      nodes: {
        listDraining: async () => [record],
        setDrain: async (_: string, next: DrainRecord) => ((drain = next), record),
      },
      deployments: {
        servingOn: async () => (d.node_id === 'n1' ? [d] : []),
        inProgress: async () => [],
        getMany: async (ids: string[]) => (ids.includes(d.id) ? [d] : []),
      },
      instances: { onNode: async () => onNode, ofDeployments: async () => instances },
      volumes: { onNode: async () => [] },
      runs: { onNode: async () => runs },
      unmanaged: { left: async () => [] },
      driver: {
        advance: async (...given: unknown[]) => void asked.push(given),
        redeploy: async (id: string, { trigger }: { trigger: string }) =>
          void asked.push([id, trigger]),
        reviewMoves: async () => undefined,
        newId: () => 'x',
      },
      now: () => NOW,
      log: silentLogger(),
    } as unknown as Deps)(go);
    return drain;
  };
  return { stepWith, asked };
}
const second = (d: DeploymentRecord, over: Partial<InstanceRecord> = {}): InstanceRecord =>
  ({
    id: 'i2',
    deployment_id: d.id,
    process: 'web',
    number: 2,
    state: 'serving',
    node_id: 'n1',
    ...over,
  }) as InstanceRecord;

test('of a deployment with several instances, the drain moves those on the node, and deploys nothing', async () => {
  const d = on.running({ node_id: 'n2' });
  const { stepWith, asked } = drainBeside(d);
  const row = second(d);
  await stepWith([row]);
  expect(asked).toEqual([[d.id, { type: 'node_drained', node_id: 'n1' }]]);
  const waiting = { ...row, id: 'r', node_id: null, state: 'waiting', detail: 'n2: full' } as const;
  await stepWith([row, waiting]);
  expect(asked).toHaveLength(1);
  expect(await stepWith([{ ...row, state: 'draining' }])).toBeNull();
  expect(await stepWith([], [{ run_id: 'r1' }]), 'a command still works there').toBeNull();
  expect(await stepWith([])).toMatchObject({ finished_at: NOW });
});

test('the only web of a project with recreate stops before another one starts, also beside workers', async () => {
  const moves = async (replace: 'recreate' | 'rolling', process: string): Promise<unknown> => {
    const d = on.running({ node_id: 'n1', settings: { ...SETTINGS, replace } });
    const { stepWith, asked } = drainBeside(d);
    await stepWith([second(d, { process, node_id: 'n2' })]);
    return asked[0];
  };
  const byInstance = ['d2', { type: 'node_drained', node_id: 'n1' }];
  expect(await moves('recreate', 'worker')).toEqual(['d2', 'drain']);
  expect(await moves('rolling', 'worker')).toEqual(byInstance);
  expect(await moves('recreate', 'web'), 'several run at once anyway').toEqual(byInstance);
});
