/** A project on several machines whose machines stop, under requests through the real proxy. */
import type { Deployment } from '@berth/wire/deployment';
import type { Project, ProjectCreate } from '@berth/wire/project';
import { type Prober, startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import { type ManyNodes, type ManyNodesNode, startManyNodes } from '../../e2e/many-nodes-world.ts';
import { pageApp, versionOf } from '../../e2e/world.ts';

const MINUTE = 60_000;
/** Requests a second to the project. */
export const PER_SECOND = 50;

export type Instance = Deployment['instances'][number];
export type Container = { id: string; node: string; state: string };

/** A project `name` of which `count` instances run. */
export type Application = {
  project: Project;
  /** Starts requests to the project (PER_SECOND). */
  load(): Prober;
  live(): Promise<Deployment>;
  /** Returns the instances that serve; the first one is first. */
  serving(): Promise<Instance[]>;
  /** Returns the node of the first instance. */
  home(): Promise<ManyNodesNode>;
  /** Returns its containers on all machines, also on those that are cut off. */
  containers(): Promise<Container[]>;
  /** Waits until exactly `count` instances serve, and no other container of the project exists. */
  settledAt(count: number, deadlineMs?: number): Promise<void>;
  /** Waits until `count` instances serve; lost ones can exist beside them. */
  servesWith(count: number, deadlineMs?: number): Promise<void>;
  /** Returns the sentences of the story about moved instances. */
  story(): Promise<string[]>;
  /** Waits for the next answer with status 200. Returns after how many ms it came. */
  nextAnswer(deadlineMs?: number): Promise<number>;
};

/** Starts `deployNodes` machines; `env`: further settings of the control plane. */
export const startFailoverWorld = (
  deployNodes: number,
  env: Record<string, string>,
): Promise<ManyNodes> => startManyNodes({ deployNodes, env });

export async function deployApplication(
  world: ManyNodes,
  name: string,
  count: number,
  settings: Partial<ProjectCreate> = {},
): Promise<Application> {
  const { url } = await world.git.createRepo(name, pageApp(1));
  const project = await world.berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    drain_seconds: 1,
    stop_grace_seconds: 1,
    processes: [{ name: 'web', count }],
    ...settings,
  });
  const done = await world.berth.settled(await world.berth.deploy(project), 2 * MINUTE);
  if (done.status !== 'running') throw new Error(`${name}: ${JSON.stringify(done.error)}`);
  const application = applicationOf(world, project);
  await application.settledAt(count);
  return application;
}

function applicationOf(world: ManyNodes, project: Project): Application {
  const live = async (): Promise<Deployment> => {
    const { items } = await world.api.call('listDeployments', {
      query: { project_id: project.id, status: 'running' },
    });
    return world.api.call('getDeployment', { params: { id: items[0]?.id ?? '' } });
  };
  const containers = async (): Promise<Container[]> =>
    (await Promise.all(world.nodes.map((node) => containersOn(node, project)))).flat();
  return {
    project,
    live,
    containers,
    load: () =>
      startProber({
        entry: world.berth.entry,
        host: `${project.domain_prefix}.${world.berth.baseDomain}`,
        perSecond: PER_SECOND,
        versionOf,
        timeoutMs: 2_000,
      }),
    async servesWith(count, deadlineMs = 2 * MINUTE) {
      await waitFor(
        `${count} instances of ${project.name} serve`,
        async () => {
          const { health, instances } = await live();
          const serving = instances.filter(({ state }) => state === 'serving');
          return health?.status === 'healthy' && serving.length === count;
        },
        { deadlineMs, intervalMs: 250 },
      );
    },
    serving: async () => (await live()).instances.filter(({ state }) => state === 'serving'),
    home: async () => world.node((await live()).node_id),
    async settledAt(count, deadlineMs = 2 * MINUTE) {
      await waitFor(
        `${count} instances of ${project.name} serve, and no other container is left`,
        async () => isSettledAt(await live(), await containers(), count),
        { deadlineMs, intervalMs: 250 },
      ).catch(async (error: unknown) => {
        const { health, instances, events } = await live();
        const seen = [health, instances, await containers(), events?.slice(-20)];
        throw new Error(`${String(error)}\n${JSON.stringify(seen, null, 1)}`);
      });
    },
    story: async () =>
      ((await live()).events ?? [])
        .filter(({ kind }) => kind === 'failover')
        .map(({ message }) => message),
    async nextAnswer(deadlineMs = 2 * MINUTE) {
      const from = performance.now();
      await waitFor(
        `${project.name} answers`,
        async () =>
          (await world.ask(project.domain_prefix, '/', { timeoutMs: 1_000 })).status === 200,
        { deadlineMs, intervalMs: 50 },
      );
      return performance.now() - from;
    },
  };
}

const isSettledAt = (d: Deployment, all: readonly Container[], count: number): boolean =>
  d.health?.status === 'healthy' &&
  d.instances.length === count &&
  all.length === count &&
  d.instances.every(
    ({ state, container_id }) =>
      state === 'serving' &&
      all.some((one) => one.state === 'running' && one.id.startsWith(container_id ?? '-')),
  );

/** A machine without power has no engine that answers, so its containers are not listed. */
async function containersOn(node: ManyNodesNode, project: Project): Promise<Container[]> {
  const { stdout } = await node.docker(
    [
      'ps',
      '--all',
      '--no-trunc',
      '--filter',
      `label=berth.project=${project.id}`,
      '--format',
      '{{.ID}} {{.State}}',
    ],
    { mayFail: true },
  );
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [id = '', state = ''] = line.split(' ');
      return { id, node: node.name, state };
    });
}
