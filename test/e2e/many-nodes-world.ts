/**
 * A builder and several deploy nodes, each a host with an address and an engine of its own (`@berth/testbed/hosts`), one control
 * plane, one proxy, and a folder of datasets that all of them see at the same path.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { findTraefik, toolsDir } from '@berth/testbed/config';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import type { History } from '@berth/testbed/history';
import { type Host, type Hosts, startHosts, whyNoHosts } from '@berth/testbed/hosts';
import { type Answer, type Platform, type ProxyKind, type Service, startPlatform } from '@berth/testbed/platform';
import type { Finished, RunOptions } from '@berth/testbed/process';
import { registryProgram, type Registry, startRegistry } from '@berth/testbed/registry';
import type { Client } from '@berth/wire/client';

/** partition(), heal(), kill(), boot(), run() and enter are the host's own. */
export type ManyNodesNode = Host & {
  /** As registered. */
  nodeId: string;
  role: 'builder' | 'deploy';
  /** The docker client on its engine; goes on working while the node is cut off. */
  docker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /**
   * Absolute, and the same path from here: what the agent keeps of datasets. A small disk: `run(['mount', '-t', 'tmpfs', '-o',
   * 'size=8m', 'tmpfs', svcRoot])`, which this node alone sees; so does one at `datasetBase`, a share that is not there.
   */
  svcRoot: string;
  /** Its process: `process().kill('SIGSTOP')`, `logFile`, `crash()`. kill() ends it too, and boot() does not start it. */
  agent: Service;
  /** SIGTERM, and waits for its end. */
  stopAgent(): Promise<number | null>;
  /** Waits until it is ready, which it is only once it has registered. `extraEnv` holds for this start alone. */
  startAgent(extraEnv?: Record<string, string>): Promise<void>;
};

export type ManyNodes = {
  /** As the first admin. */
  api: Client;
  berth: Platform;
  builder: ManyNodesNode;
  /** The deploy nodes, `node-1` first. */
  nodes: readonly ManyNodesNode[];
  /** The one with this id. Throws when there is none. */
  node(id: string | null): ManyNodesNode;
  git: GitServer;
  registry: Registry;
  /** Absolute; DATASET_NFS_BASE_PATH of the control plane and of all nodes. Empty at first. */
  datasetBase: string;
  /** Of the proxy, for clients that set the Host header themselves. */
  proxyUrl: string;
  /** Asks `<prefix>.<BASE_DOMAIN>` through the proxy. Throws when no answer came. */
  ask(prefix: string, path?: string, options?: { timeoutMs?: number }): Promise<Answer>;
  /** Of this run; removed at stop(). */
  dir: string;
  stop(): Promise<void>;
};

export type ManyNodesOptions = {
  deployNodes: number;
  /** Default: Traefik where there is one. */
  proxy?: ProxyKind;
  /** Further settings of the control plane. */
  env?: Record<string, string>;
  /** Further settings of an agent, by its name (`builder`, `node-1`, …). */
  agentEnv?: (name: string) => Record<string, string>;
  /** What agents say and are told is written here. */
  history?: History;
  images?: ('busybox:stable' | 'node:24-slim')[];
};

/**
 * Short, so that what takes minutes in production takes seconds here; but an agent registers every 30 s, and one that does is
 * not offline.
 */
const SHORT = { LEASE_TTL: '5s', CLAIM_TIMEOUT: '6s', PROBE_TIMEOUT: '20s', ROUTE_TIMEOUT: '20s', OFFLINE_AFTER: '40s' };
/** The same on each node, so that placement does not depend on how full this machine's disk is just now. */
const MAX_STORAGE = '1000000000';

/** Why these tests cannot run here; undefined when they can. */
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
      startRegistry({ dir: join(dir, 'registry'), address, user: 'berth', password: 'sesame-opens-nothing' }),
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
        env: { DATASET_NFS_BASE_PATH: datasetBase, MAX_STORAGE, PULL_TIMEOUT: '30s', ...options.agentEnv?.(name) },
      })),
      env: { ...SHORT, DATASET_NFS_BASE_PATH: datasetBase, ...options.env },
      ...(options.history === undefined ? {} : { history: options.history }),
    });
    stops.push(() => berth.stop());
    // Agents that are cut off would go on trying to say that they end.
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
        if (found === undefined) throw new Error(`no deploy node has the id ${id}`);
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
  if (host === undefined) throw new Error(`no host ${name} was started`);
  return host;
}

const describeNode = (host: Host, nodeId: string, agent: Service, svcRoot: string): ManyNodesNode => ({
  ...host,
  nodeId,
  role: roleOf(host.name),
  docker: host.engine.docker,
  svcRoot,
  agent,
  stopAgent: () => agent.stop(),
  startAgent: (extraEnv) => agent.start(extraEnv),
});
