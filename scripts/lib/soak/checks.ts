/** Checks of npm run soak when it is idle again, and the rollbacks after them. */
import { missingParts } from '@berth/testbed/images';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment } from '@berth/wire/deployment';
import { isSettled, isTerminal } from '@berth/wire/vocabulary';
import { versionOn } from './application.ts';
import { printLine, violated } from './report.ts';
import { settled, type Soak } from './world.ts';

const ENDS: ReadonlySet<string> = new Set(['retired', 'failed', 'cancelled', 'superseded']);

/** Checks every accepted deployment, the containers and pages, and the history. */
export async function checkIdle(soak: Soak): Promise<void> {
  const { world, accepted, recorder, targets } = soak;
  const all: Deployment[] = [];
  for (const id of accepted) {
    const found = await world.berth.api.call('getDeployment', { params: { id } }).catch(() => null);
    if (found === null) violated(`deployment ${id} was acknowledged and is lost`);
    else all.push(found);
  }
  for (const d of all) {
    if (!isSettled(d.status)) violated(`deployment ${d.id} never ended: ${d.status}`);
    const ends = d.events.filter(({ kind }) => ENDS.has(kind));
    if (ends.length > 1) violated(`deployment ${d.id} ended ${ends.length} times`);
  }
  for (const { project, live } of targets) {
    const { name, id } = project;
    const running = all.filter((d) => d.project_id === id && !isTerminal(d.status));
    if (running.length !== 1) violated(`${running.length} deployments of ${name} are running`);
    await checkPage(soak, name, live);
  }
  const names = targets.map(({ project }) => `svc-${project.domain_prefix}`).toSorted();
  const list = ['ps', '-a', '--filter', 'label=berth.project', '--format', '{{.Names}}'];
  await waitFor(
    'one container of each project is left, under its final name',
    async () =>
      (await soak.node.docker(list)).stdout.trim().split('\n').toSorted().join() === names.join(),
    { deadlineMs: 120_000, intervalMs: 500 },
  ).catch((error: unknown) => violated(String(error)));
  for (const broken of await recorder.judge()) violated(broken);
  const statuses = Object.entries(Object.groupBy(all, ({ status }) => status));
  printLine(`deployments: ${statuses.map(([name, some]) => `${some.length} ${name}`).join(', ')}`);
}

/** Waits until the project shows this version. */
const checkPage = ({ world }: Soak, name: string, version: number): Promise<unknown> =>
  waitFor(
    `${name} shows version ${version}`,
    async () => versionOn((await world.berth.get(name)).body, name) === version,
  ).catch((error: unknown) => violated(String(error)));

/**
 * Every kept release must be whole in the registry, a rollback to a removed one is refused before
 * it begins, and rollbacks go through: of the first project to each kept release, of the others to
 * the oldest one, whose image the node has most likely evicted.
 */
export async function checkRollbacks(soak: Soak): Promise<void> {
  const { size, world, targets } = soak;
  const { api } = world.berth;
  const sum = { kept: 0, removed: 0, refused: 0, back: 0 };
  for (const { project } of targets) {
    const { id, name } = project;
    const query = { limit: 200 };
    const { items } = await api.call('projectDeployments', { params: { id }, query });
    const ran = items.filter((d) => d.status === 'running' || d.status === 'retired');
    const kept = ran.filter((d) => d.image_removed_at === null);
    if (kept.length < Math.min(size.keep, ran.length))
      violated(`${name} keeps ${kept.length} of ${ran.length} releases`);
    for (const d of kept)
      for (const missing of await missingParts(world.registry, name, d.image_digest ?? ''))
        violated(`a rollback of ${name} to ${d.generation} needs ${missing}`);
    const rollback = (to: string): Promise<Deployment> =>
      api.call('rollback', { params: { id }, body: { deployment_id: to } });
    const removed = ran.find((d) => d.image_removed_at !== null);
    if (removed !== undefined)
      await rollback(removed.id).then(
        () => violated(`a rollback of ${name} to a removed image began`),
        () => (sum.refused += 1),
      );
    const others = kept.filter((d) => d.status !== 'running');
    for (const to of project === targets[0]?.project ? others : others.slice(-1)) {
      const done = await settled(soak, (await rollback(to.id)).id);
      if (done.status !== 'running')
        violated(`rollback of ${name}: ${done.status} ${done.error?.message ?? ''}`);
      await checkPage(soak, name, Number(/^version (\d+) /.exec(to.note ?? '')?.[1]));
      sum.back += 1;
    }
    sum.kept += kept.length;
    sum.removed += ran.length - kept.length;
  }
  printLine(
    `rollbacks: ${sum.kept} releases whole in the registry, ${sum.removed} removed, ` +
      `${sum.refused} refused in advance, ${sum.back} rollbacks went through`,
  );
}
