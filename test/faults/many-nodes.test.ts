/**
 * A builder and three deploy nodes on separate machines: the effects of a network partition and of
 * a dead machine.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from '../e2e/many-nodes-world.ts';
import { pageApp } from '../e2e/world.ts';

const reason = whyNotManyNodes();

/** Longer than OFFLINE_AFTER plus the next registration. */
const SILENCE_MS = 80_000;

describe.skipIf(reason !== undefined)(
  `many nodes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let project: Project;
    let live: Deployment;
    beforeAll(async () => {
      world = await startManyNodes({ deployNodes: 3 });
    });
    afterAll(() => world?.stop());

    const see = (): Promise<Deployment> =>
      world.api.call('getDeployment', { params: { id: live.id } });
    const body = async (): Promise<string> => (await world.ask('page')).body;
    /** Returns ids and states of our containers on a node. */
    const containers = async (node: ManyNodesNode): Promise<string[]> => {
      const { stdout } = await node.docker([
        'ps',
        '--all',
        '--filter',
        'label=berth.project_name=page',
        '--format',
        '{{.ID}} {{.State}}',
      ]);
      return stdout.split('\n').filter((line) => line !== '');
    };
    const registered = async (node: ManyNodesNode) =>
      world.api.call('getNode', { params: { id: node.nodeId } });

    it('every node has its own address and sees the shared folder, and a project runs on one of them', async () => {
      const everyone = [world.builder, ...world.nodes];
      expect(new Set(everyone.map((n) => n.ip)).size).toBe(4);
      const shared = join(world.datasetBase, 'seen-by-all');
      await writeFile(shared, 'the same for all');
      for (const node of everyone)
        expect((await node.run(['cat', shared])).stdout, node.name).toBe('the same for all');

      const { url } = await world.git.createRepo('page', pageApp(1));
      project = await world.berth.createProject({
        name: 'page',
        git_url: url,
        domain_prefix: 'page',
        drain_seconds: 1,
        stop_grace_seconds: 1,
      });
      live = await world.berth.settled(await world.berth.deploy(project));
      expect(live).toMatchObject({ status: 'running', error: null });
      expect(await body()).toBe('version 1\n');
      const home = world.node(live.node_id);
      expect(live.host_ip).toBe(home.ip);
      for (const node of everyone) {
        expect(await containers(node), node.name).toEqual(
          node === home ? [expect.stringMatching(/ running$/)] : [],
        );
      }
    });

    it('a container reaches the published port of a project neither on its own node nor on another one', {
      timeout: 180_000,
    }, async () => {
      const home = world.node(live.node_id);
      const at = `http://${live.host_ip}:${live.host_port}/`;
      const others = world.nodes.filter((node) => node !== home);
      // Each of the other nodes gets a project, so that it has a network of its own and rules.
      for (const node of world.nodes)
        await world.api.call('cordonNode', { params: { id: node.nodeId } });
      for (const node of [home, ...others]) {
        await world.api.call('uncordonNode', { params: { id: node.nodeId } });
        const name = `neighbour-${node.name}`;
        const { url } = await world.git.createRepo(name, pageApp(1));
        const neighbour = await world.berth.createProject({
          name,
          git_url: url,
          domain_prefix: name,
        });
        const there = await world.berth.settled(await world.berth.deploy(neighbour));
        expect(there).toMatchObject({ status: 'running', node_id: node.nodeId });
        await world.api.call('cordonNode', { params: { id: node.nodeId } });
        const container = await waitFor('its container has its name', async () => {
          const { stdout } = await node.docker(['ps', '--quiet', '--filter', `name=^svc-${name}$`]);
          return stdout.trim() !== '' && `svc-${name}`;
        });
        const tries = async (from: readonly string[]): Promise<string> =>
          (
            await node.docker([...from, 'timeout', '3', 'wget', '-q', '-O', '-', at], {
              mayFail: true,
            })
          ).stdout.trim();
        // The rules about other nodes follow within two registrations.
        await waitFor(
          `${node.name} lets no container reach it`,
          async () => (await tries(['exec', container])) === '',
          {
            deadlineMs: 90_000,
          },
        );
        // Its machine does reach it: there is a way, and the rule closes it.
        expect((await node.run(['wget', '-q', '-O', '-', at])).stdout, node.name).toBe(
          'version 1\n',
        );
        expect((await world.ask(name)).body).toBe('version 1\n');
        await world.api.call('deleteProject', { params: { id: neighbour.id } });
      }
      for (const node of world.nodes)
        await world.api.call('uncordonNode', { params: { id: node.nodeId } });
    });

    it('a partitioned node keeps its route and its container, and is healthy again after the partition without a redeployment', async () => {
      const home = world.node(live.node_id);
      const before = await containers(home);
      await home.partition();
      await expect(world.ask('page', '/', { timeoutMs: 1_000 })).rejects.toThrow('timed out');
      await waitFor(
        'the health is unknown',
        async () => (await see()).health?.status === 'unknown',
        { deadlineMs: SILENCE_MS },
      );
      expect((await registered(home)).status).toBe('offline');
      expect(await see()).toMatchObject({ status: 'running', node_id: home.nodeId });
      expect(await (await fetch(`${world.berth.url}/api/traefik/config`)).text()).toContain(
        `http://${live.host_ip}:${live.host_port}`,
      );
      expect(await containers(home)).toEqual(before);

      await home.heal();
      await waitFor(
        'the project is healthy again',
        async () => (await see()).health?.status === 'healthy',
        { deadlineMs: SILENCE_MS },
      );
      await waitFor('a client is answered again', async () => (await body()) === 'version 1\n');
      expect((await registered(home)).status).toBe('online');
      expect(await containers(home)).toEqual(before);
      expect(
        (await world.api.call('listDeployments', { query: { project_id: project.id } })).items,
      ).toHaveLength(1);
    });

    it('after a machine died, the next deployment goes live on another; the machine removes the old version when it is back', async () => {
      const dead = world.node(live.node_id);
      await dead.kill();
      await world.git.commit('page', pageApp(2), 'version 2');
      live = await world.berth.settled(await world.berth.deploy(project));
      expect(live).toMatchObject({ status: 'running', error: null });
      expect(world.node(live.node_id).name).not.toBe(dead.name);
      expect(await body()).toBe('version 2\n');

      await dead.boot();
      await dead.startAgent();
      await waitFor(
        'the old container is gone',
        async () => (await containers(dead)).length === 0,
        { deadlineMs: 60_000 },
      );
      expect(await containers(world.node(live.node_id))).toEqual([
        expect.stringMatching(/ running$/),
      ]);
      expect(await body()).toBe('version 2\n');
    });
  },
);
