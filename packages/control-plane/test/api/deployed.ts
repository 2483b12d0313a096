/** A builder and a deploy node that act like their agents, so that deployments go live. */
import { expect } from 'vitest';
import { type Api, deploy, register, sha, tick } from './harness.ts';

type Payload = Record<string, unknown>;
type Report = Record<string, unknown>;
export type World = Awaited<ReturnType<typeof createWorld>>;

export async function createWorld(api: Api) {
  const builder = await register(api);
  const home = await register(api, { hostname: 'node-1', role: 'deploy' });

  /** Claims and reports the only open task of the node like its agent. Returns its payload. */
  async function work(
    node: string,
    report: Report | ((payload: Payload) => Report),
  ): Promise<Payload> {
    const [task] = (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as {
      id: string;
      payload: Payload;
    }[];
    if (task === undefined) throw new Error(`${node} has no task`);
    const claim = await api.call('agentStart', { params: { id: task.id } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const body = {
      status: 'completed',
      ...(typeof report === 'function' ? report(task.payload) : report),
    };
    expect(
      (await api.call('agentComplete', { params: { id: task.id }, body, headers })).status,
    ).toBe(200);
    return task.payload;
  }
  const built = (report: Report = {}): Promise<unknown> =>
    work(builder, ({ image_repository }) => ({
      image_tag: `${String(image_repository)}:${sha('c')}`,
      ...report,
    }));
  /**
   * Starts the deployment on its node and publishes its route. Returns the payload of the deploy
   * task.
   */
  async function started(id: string): Promise<Record<string, unknown>> {
    await tick(api, id);
    const payload = await work(home, { host_port: 32_001 });
    await api.driver.advance(id, {
      type: 'route_confirmed',
      host_ip: '10.0.0.7',
      host_port: 32_001,
    });
    await work(home, {});
    return payload;
  }
  return {
    builder,
    home,
    work,
    built,
    started,
    /** Builds and deploys a new deployment until it is live. Returns its id. */
    async live(project: string): Promise<string> {
      const id = await deploy(api, project);
      await tick(api, id);
      await built();
      await started(id);
      return id;
    },
    /**
     * Deploys a pending deployment that has an image already. Returns the payload of the deploy
     * task.
     */
    async deployedAgain(id: string): Promise<Record<string, unknown>> {
      await tick(api, id);
      return started(id);
    },
  };
}
