/**
 * Keeps the dataset versions of running deployments on as many nodes as their projects want
 * (domain/data/data-copies.ts decides). Several control planes can run this loop: they decide the
 * same, and a node has at most one open copy of a version.
 */
import {
  changedPins,
  copiesToStart,
  copiesQuestion,
  type DatasetPin,
  planCopies,
  RETRY_MS,
} from '../domain/data/data-copies.ts';
import type { DataCopyStore } from '../domain/data/data-copy-store.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../domain/data/volume-store.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import type { CacheIndex } from '../domain/nodes/cache-index.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Driver } from '../flow/driver.ts';
import { copyTask } from '../flow/prewarm.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  dataCopies: Pick<DataCopyStore, 'change' | 'pins' | 'projects'>;
  datasets: Pick<DatasetStore, 'facts'>;
  volumes: Pick<VolumeStore, 'ofProject'>;
  nodes: Pick<NodeStore, 'all'>;
  tasks: Pick<TaskStore, 'copyWork' | 'createSync'>;
  driver: Pick<Driver, 'newId'>;
  changes: Pick<Changes, 'notify'>;
  cacheIndex: CacheIndex;
  limits: Limits;
  uptime: Pick<UptimeClock, 'now'>;
  log: Logger;
  now: () => number;
};

type Plans = {
  pins: DatasetPin[];
  copies: { project: string; node_id: string; source: Parameters<typeof copyTask>[0]['dataset'] }[];
};

export const dataCopies =
  (deps: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    const { at, since } = await deps.uptime.now();
    // After a downtime, nodes count as silent until they had the time to report.
    if (at - since < deps.limits.offlineMs && (await isAnySilent(deps))) return;
    const stored = await deps.dataCopies.pins();
    const projects = await deps.dataCopies.projects();
    if (stored.length === 0 && projects.length === 0) return;
    const nodes = await deps.nodes.all();
    const { syncs, deploying } = await deps.tasks.copyWork(deps.now() - RETRY_MS);
    const plans = await plansOf(deps, { projects, stored, nodes, syncs });
    if (signal.aborted) return;
    const changed = changedPins(stored, plans.pins);
    if (changed.add.length > 0 || changed.remove.length > 0) {
      await deps.dataCopies.change(changed);
      // Answers to registrations read the pins again.
      deps.changes.notify('datasets');
      deps.log.info(
        { added: changed.add.length, removed: changed.remove.length },
        'changed which nodes keep datasets for projects',
      );
    }
    for (const copy of copiesToStart(plans.copies, syncs, deploying)) {
      if (signal.aborted) return;
      await startCopy(deps, copy, nodes);
    }
  };

async function isAnySilent({ nodes, limits, now }: Deps): Promise<boolean> {
  return (await nodes.all('deploy')).some((node) => !isOnline(node, now(), limits));
}

async function plansOf(
  deps: Deps,
  {
    projects,
    stored,
    nodes,
    syncs,
  }: {
    projects: Awaited<ReturnType<DataCopyStore['projects']>>;
    stored: readonly DatasetPin[];
    nodes: readonly NodeRecord[];
    syncs: Awaited<ReturnType<TaskStore['copyWork']>>['syncs'];
  },
): Promise<Plans> {
  const datasets = projects.length === 0 ? [] : await deps.datasets.facts();
  const context = { now: deps.now(), limits: deps.limits, cacheIndex: deps.cacheIndex };
  const plans: Plans = { pins: [], copies: [] };
  for (const project of projects) {
    const volumes = project.has_volumes ? await deps.volumes.ofProject(project.project_id) : [];
    const question = copiesQuestion(project, { datasets, stored, volumes, syncs });
    const { pins, copies } = planCopies(question, nodes, context);
    for (const pin of pins) plans.pins.push({ project_id: project.project_id, ...pin });
    for (const copy of copies) plans.copies.push({ project: project.project, ...copy });
  }
  return plans;
}

async function startCopy(
  { tasks, driver, changes, uptime, limits, log, now }: Deps,
  { project, node_id, source }: Plans['copies'][number],
  nodes: readonly NodeRecord[],
): Promise<void> {
  const node = nodes.find(({ id }) => id === node_id);
  if (node === undefined) return;
  const task = copyTask({ dataset: source, background: true }, node, {
    id: driver.newId(),
    uptime: await uptime.now(),
    limits,
  });
  try {
    const { created } = await tasks.createSync(task, now());
    if (!created) return;
    changes.notify(`node:${node_id}`);
    log.info(
      { node: node.hostname, project, dataset: source.name, version: source.version },
      'copying a dataset to another node for a project',
    );
  } catch (err) {
    // The node might have been deleted since. The next run decides again.
    log.warn({ err, node: node.hostname }, 'could not create the task of a copy; will retry');
  }
}
