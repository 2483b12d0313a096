/**
 * Runs at the start of the control plane. An older version of Berth, which does not know instances,
 * might have run meanwhile and removed the containers of further instances. This ends such
 * instances; otherwise the proxy would get their addresses until their nodes report.
 */
import { isContainerOf } from '../domain/deployments/instance.ts';
import type { Driver } from './driver.ts';
import type { FlowStores } from './flow-stores.ts';

export async function endAbsentInstances(
  { instances, nodes }: Pick<FlowStores, 'instances' | 'nodes'>,
  driver: Pick<Driver, 'advance'>,
): Promise<void> {
  await instances.repair();
  const serving = (await instances.all()).filter(({ state }) => state === 'serving');
  if (serving.length === 0) return;
  const byId = new Map((await nodes.all('deploy')).map((node) => [node.id, node]));
  for (const instance of serving) {
    const node = byId.get(instance.node_id ?? '');
    // A container list that is older than the instance does not prove that it is gone.
    if (node === undefined || node.last_seen_at <= instance.since) continue;
    if (node.containers.some((container) => isContainerOf(instance, container, node.id))) continue;
    await driver.advance(instance.deployment_id, {
      type: 'observed',
      node_id: node.id,
      container: null,
      instance_id: instance.id,
    });
  }
}
