/**
 * A builder and several deploy nodes on separate hosts (`@berth/testbed/hosts`), each with its own
 * address and engine; one control plane, one proxy, and a folder of datasets at the same path on
 * all of them.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { findTraefik, toolsDir } from '@berth/testbed/config';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import type { History } from '@berth/testbed/history';
import { type Host, type Hosts, startHosts, whyNoHosts } from '@berth/testbed/hosts';
import {
  type Answer,
  type Platform,
  type ProxyKind,
  type Service,
  startPlatform,
} from '@berth/testbed/platform';
import type { Finished, RunOptions } from '@berth/testbed/process';
import { registryProgram, type Registry, startRegistry } from '@berth/testbed/registry';
import type { Client } from '@berth/wire/client';

/** A deploy node. partition(), heal(), kill(), boot(), run() and enter are those of its host. */
export type ManyNodesNode = Host & {
  /** Id from the registration. */
  nodeId: string;
  role: 'builder' | 'deploy';
  /** Runs the docker client on its engine; works also while the node is cut off. */
  docker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /**
   * Absolute path of the folder in which the agent keeps datasets, the same from here. To make its
   * disk small: `run(['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', svcRoot])`. Only this node
   * sees that mount. A mount at `datasetBase` hides the share.
   */
  svcRoot: string;
  /**
   * Its agent: `process().kill('SIGSTOP')`, `logFile`, `crash()`. kill() of the host ends it too;
   * boot() does not start it.
   */
  agent: Service;
  /** Sends SIGTERM to the agent and waits for its end. */
  stopAgent(): Promise<number | null>;
  /**
   * Starts the agent and waits until it is ready, that is, registered. `extraEnv` applies to this
   * start only.
   */
  startAgent(extraEnv?: Record<string, string>): Promise<void>;
};

export type ManyNodes = {
  /** API client of the first admin. */
  api: Client;
  berth: Platform;
  builder: ManyNodesNode;
  /** The deploy nodes, `node-1` first. */
  nodes: readonly ManyNodesNode[];
  /** Returns the node with this id. Throws when there is none. */
  node(id: string | null): ManyNodesNode;
  git: GitServer;
  registry: Registry;
  /**
   * Absolute path of DATASET_NFS_BASE_PATH, for the control plane and all nodes. Empty at first.
   */
  datasetBase: string;
  /** Address of the proxy, for clients that set the Host header themselves. */
  proxyUrl: string;
  /** Requests `<prefix>.<BASE_DOMAIN>` through the proxy. Throws when no answer comes. */
  ask(prefix: string, path?: string, options?: { timeoutMs?: number }): Promise<Answer>;
  /** Folder of this run; removed at stop(). */
  dir: string;
  stop(): Promise<void>;
};

export type ManyNodesOptions = {
  deployNodes: number;
  /** Default: Traefik where it is installed. */
  proxy?: ProxyKind;
  /** Further settings of the control plane. */
  env?: Record<string, string>;
  /** Further settings of an agent, by its name (`builder`, `node-1`, …). */
  agentEnv?: (name: string) => Record<string, string>;
  /** Records the agents' requests and answers. */
  history?: History;
  images?: ('busybox:stable' | 'node:24-slim')[];
  /** Root folder of another version of Berth (release.ts). */
  release?: string;
};

/**
 * Short timeouts: seconds here instead of minutes in production. An agent registers every 30 s, so
 * OFFLINE_AFTER is longer.
 */
const SHORT = {
  LEASE_TTL: '5s',
  CLAIM_TIMEOUT: '6s',
  PROBE_TIMEOUT: '20s',
  ROUTE_TIMEOUT: '20s',
  OFFLINE_AFTER: '40s',
  // A test of failover sets it; in the others a silent node keeps its projects.
  FAILOVER_AFTER: 'none',
};
/**
 * The same size on each node, so that placement does not depend on the free space of this machine's
 * disk.
 */
const MAX_STORAGE = '1000000000';

/** Returns why these tests cannot run here; undefined when they can. */
export function whyNotManyNodes(): string | undefined {
  return registryProgram() === undefined ? 'no docker-registry' : whyNoHosts();
}

export async function startManyNodes(options: ManyNodesOptions): Promise<ManyNodes> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-nodes-'));
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).toReversed()) await end();
  };
  try {
    const names = Array.from({ length: options.deployNodes }, (_, i) => `node-${i + 1}`);
    const wanted = [{ name: 'builder', keeps: true }, ...names.map((name) => ({ name }))];
    const hosts = await startHosts({ dir: join(toolsDir, 'testbed'), hosts: wanted });
    stops.push(() => hosts.stop());
    const address = hosts.gatewayIp;
    const [registry, git] = await Promise.all([
      startRegistry({
        dir: join(dir, 'registry'),
        address,
        user: 'berth',
        password: 'sesame-opens-nothing',
      }),
      startGitServer({ root: join(dir, 'git'), address }),
      ensureBaseImages(hostOf(hosts, 'builder').engine, options.images ?? ['busybox:stable']),
    ]);
    stops.push(
      () => registry.stop(),
      () => git.stop(),
    );
    const datasetBase = join(dir, 'share');
    await mkdir(datasetBase);
    const berth = await startPlatform({
      dir,
      address,
      registry,
      proxy: options.proxy ?? (findTraefik() === undefined ? 'built-in' : 'traefik'),
      agents: wanted.map(({ name }) => ({
        name,
        role: roleOf(name),
        engine: hostOf(hosts, name).engine,
        enter: hostOf(hosts, name).enter,
        env: {
          DATASET_NFS_BASE_PATH: datasetBase,
          MAX_STORAGE,
          PULL_TIMEOUT: '30s',
          ...options.agentEnv?.(name),
        },
      })),
      env: { ...SHORT, DATASET_NFS_BASE_PATH: datasetBase, ...options.env },
      ...defined({ history: options.history, release: options.release }),
    });
    stops.push(() => berth.stop());
    // Agents that are cut off would keep trying to report their end.
    stops.push(() => hosts.heal());

    const registered = (await berth.api.call('listNodes', { query: {} })).items;
    const describe = (name: string): ManyNodesNode => {
      const nodeId = registered.find((n) => n.hostname === name)?.id;
      const agent = berth.agents[name];
      if (nodeId === undefined || agent === undefined) throw new Error(`${name} did not register`);
      return describeNode(hostOf(hosts, name), nodeId, agent, join(dir, 'agents', name, 'svc'));
    };
    const [builder, nodes] = [describe('builder'), names.map(describe)];
    return {
      api: berth.api,
      berth,
      builder,
      nodes,
      node(id) {
        const found = nodes.find((n) => n.nodeId === id);
        if (found === undefined) throw new Error(`unknown deploy node ${id}`);
        return found;
      },
      git,
      registry,
      datasetBase,
      proxyUrl: `${berth.entry.secure ? 'https' : 'http'}://${berth.entry.host}:${berth.entry.port}`,
      ask: berth.get,
      dir,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

const roleOf = (name: string): 'builder' | 'deploy' => (name === 'builder' ? 'builder' : 'deploy');

function hostOf(hosts: Hosts, name: string): Host {
  const host = hosts.hosts[name];
  if (host === undefined) throw new Error(`host ${name} was not started`);
  return host;
}

const describeNode = (
  host: Host,
  nodeId: string,
  agent: Service,
  svcRoot: string,
): ManyNodesNode => ({
  ...host,
  nodeId,
  role: roleOf(host.name),
  docker: host.engine.docker,
  svcRoot,
  agent,
  stopAgent: () => agent.stop(),
  startAgent: (extraEnv) => agent.start(extraEnv),
});
