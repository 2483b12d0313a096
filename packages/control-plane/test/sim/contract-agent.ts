/**
 * A contract-only agent: registers, polls every 5 s, works, completes. No lease, no container list.
 */
import type { TaskReport } from '@berth/wire/task';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import type { Agent, AgentDeps } from './agent.ts';
import type { Life } from './world.ts';

export function createContractAgent({
  world,
  history,
  controlPlane,
  hostname,
  role,
  engine,
  forge,
}: AgentDeps): Agent {
  const { random } = world;
  let life: Life = { name: hostname, alive: false };

  async function live(mine: Life): Promise<void> {
    const begun = new Set<string>();
    const ask = controlPlane.ask;
    const body = { hostname, role, host_ip: engine.address, max_storage: 1e9 };
    let nodeId: string | null = null;
    for (;;) {
      try {
        // Its registration is its only sign of life.
        const node: { id: string } = await ask(mine, (api) => api.register(body));
        nodeId = node.id;
        const id = node.id;
        for (const task of await ask(mine, (api) => api.tasks(id))) {
          if (begun.has(task.id)) continue;
          begun.add(task.id);
          void work(mine, task);
        }
      } catch (error) {
        if (!(error instanceof Error)) throw error;
      }
      await world.sleep(nodeId === null ? 1_000 : 5_000, mine);
    }
  }

  async function work(mine: Life, task: TaskRecord): Promise<void> {
    await world.sleep(random.int(300, 4_000), mine);
    const report = await perform(mine, task);
    const about = {
      task: task.id,
      kind: task.kind,
      deployment: task.deployment_id ?? '',
      lease: null,
      status: report.status,
    };
    const address =
      typeof report.host_port === 'number' ? `${engine.address}:${report.host_port}` : null;
    history.record({ type: 'reporting', ...about, project: task.project_id ?? '', address });
    for (;;) {
      try {
        const sent = world.now();
        await controlPlane.ask(mine, (api) => api.complete(task.id, null, report));
        history.record({ type: 'reported', ...about, content: JSON.stringify(report), sent });
        return;
      } catch (error) {
        if (error instanceof DomainError && error.code !== 'busy') return;
        await world.sleep(random.int(500, 3_000), mine);
      }
    }
  }

  async function perform(mine: Life, task: TaskRecord): Promise<TaskReport> {
    if (task.kind === 'build') {
      const { payload } = task as TaskRecord<'build'>;
      const sha = payload.commit ?? forge.tip(payload);
      return {
        status: 'completed',
        result: 'done',
        image_tag: `${payload.image_repository}:${sha}`,
      };
    }
    const { payload } = task as TaskRecord<'deploy'>;
    const name = `svc-${payload.domain_prefix}`;
    try {
      for (const old of engine.list()) if (old.name === name) engine.remove(old.id, 'contract');
      const spec = {
        name,
        project: payload.project_id,
        deployment: task.deployment_id ?? '',
        generation: payload.generation,
        instance: null,
        process: null,
        node: task.node_id,
        holder: { task: task.id, attempt: 0 },
        keepsPort: false,
        alone: payload.replace === 'recreate',
        devices: [],
      };
      const container = engine.run(spec, 'contract');
      engine.keepUp(container.id);
      await world.sleep(random.int(50, 500), mine);
      const present = engine.list().find((c) => c.id === container.id);
      return present === undefined
        ? { status: 'failed', result: 'gone' }
        : { status: 'completed', result: 'done', host_port: present.port };
    } catch (error) {
      return { status: 'failed', result: String(error) };
    }
  }

  return {
    hostname,
    role,
    engine,
    knownAt: () => 0,
    life: () => life,
    start() {
      if (life.alive || engine.isOff()) return;
      life = { name: hostname, alive: true };
      live(life).catch((error: unknown) =>
        history.record({ type: 'internal_error', message: `${hostname}: ${String(error)}` }),
      );
    },
    kill() {
      life.alive = false;
    },
    // Does nothing: the control plane could not recognise its containers under another name.
    rename() {},
    freeze() {},
    holdReports() {},
  };
}
