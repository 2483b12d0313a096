/**
 * Everything on one machine, for one test file: an engine, a registry, a git server and Berth's own
 * processes.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { findTraefik, toolsDir, userDockerHost } from '@berth/testbed/config';
import { startEngine, whyNoOwnEngine } from '@berth/testbed/engine';
import { type Engine, engineAnswers } from '@berth/testbed/engine-handle';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import type { History } from '@berth/testbed/history';
import { type Platform, type ProxyKind, startPlatform } from '@berth/testbed/platform';
import { registryProgram, type Registry, startRegistry } from '@berth/testbed/registry';

export type World = {
  engine: Engine;
  registry: Registry;
  git: GitServer;
  berth: Platform;
  dir: string;
  stop(): Promise<void>;
};

/** Returns why these tests cannot run here; undefined when they can. */
export async function whyNot(proxy: ProxyKind = 'built-in'): Promise<string | undefined> {
  if (proxy !== 'built-in' && findTraefik() === undefined) return 'no Traefik: set TRAEFIK_BIN';
  if (registryProgram() === undefined) return 'no docker-registry';
  if (await engineAnswers(userDockerHost())) return undefined;
  return whyNoOwnEngine();
}

type Agents = Parameters<typeof startPlatform>[0]['agents'];
export type WorldOptions = {
  /** Settings of the gateway; left out: no gateway. */
  gateway?: Parameters<typeof startPlatform>[0]['gateway'];
  proxy: ProxyKind;
  env?: Record<string, string>;
  agentEnv?: Record<string, string>;
  /** Address on which the control plane and the git server listen. Default: 127.0.0.1. */
  address?: (engine: Engine) => string;
  /** Default: one builder and one deploy node. */
  agents?: (engine: Engine) => Agents | Promise<Agents>;
  /** A private engine without images, of which nothing is kept (needs root). */
  freshEngine?: true;
  /** Devices of the engine (engine-handle.ts); needs `freshEngine`. */
  devices?: Readonly<Record<string, string>>;
  /**
   * A separate registry, which a test may kill. The default registry keeps the images of earlier
   * runs, so base layers are pushed once.
   */
  ownRegistry?: boolean;
  /** Records the agents' requests and answers. */
  history?: History;
  relay?: boolean;
  /** Port of the built-in proxy (default: a free one). */
  proxyPort?: number;
  /** Root folder of another version of Berth (release.ts). */
  release?: string;
  /** The first builder cleans the registry. */
  cleans?: true;
  images?: ('busybox:stable' | 'node:24-slim')[];
};

export async function startWorld(options: WorldOptions): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-e2e-'));
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).toReversed()) await end();
  };
  try {
    const fresh = options.freshEngine === true;
    const engine = await startEngine({
      dir: join(toolsDir, 'testbed'),
      private: fresh,
      fresh,
      ...(options.devices === undefined ? {} : { devices: options.devices }),
    });
    stops.push(() => engine.stop());
    await ensureBaseImages(engine, options.images ?? ['busybox:stable']);
    const registry = await startRegistry({
      dir: join(dir, 'registry'),
      address: engine.gatewayIp,
      user: 'berth',
      password: 'sesame-opens-nothing',
      ...(options.cleans === true ? { restarts: true } : {}),
    });
    stops.push(() => registry.stop());
    const git = await startGitServer({
      root: join(dir, 'git'),
      ...(options.address === undefined ? {} : { address: options.address(engine) }),
    });
    stops.push(() => git.stop());
    const agents = (await options.agents?.(engine)) ?? [
      { name: 'builder-1', role: 'builder' as const, engine },
      { name: 'node-1', role: 'deploy' as const, engine },
    ];
    const cleaning =
      registry.restart === undefined
        ? {}
        : { REGISTRY_CONFIG: registry.config, REGISTRY_RESTART: registry.restart.join(' ') };
    const cleaner = agents.find((agent) => agent.role === 'builder');
    const berth = await startPlatform({
      dir,
      registry,
      proxy: options.proxy,
      relay: options.relay ?? false,
      ...(options.address === undefined ? {} : { address: options.address(engine) }),
      ...(options.proxyPort === undefined ? {} : { proxyPort: options.proxyPort }),
      agents: agents.map((agent) => ({
        ...agent,
        env: { ...(agent === cleaner ? cleaning : {}), ...options.agentEnv, ...agent.env },
      })),
      // A test of failover sets FAILOVER_AFTER; in the others a silent node keeps its projects.
      env: { PROBE_TIMEOUT: '20s', FAILOVER_AFTER: 'none', ...options.env },
      ...(options.history === undefined ? {} : { history: options.history }),
      ...(options.gateway === undefined ? {} : { gateway: options.gateway }),
      ...(options.release === undefined ? {} : { release: options.release }),
    });
    stops.push(() => berth.stop());
    const nodes = (await berth.api.call('listNodes', { query: {} })).items.map((node) => node.id);
    stops.push(() => removeContainers(engine, nodes));
    return { engine, registry, git, berth, dir, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Removes only what these nodes created, because an existing engine may run another Berth. */
async function removeContainers(engine: Engine, nodes: readonly string[]): Promise<void> {
  for (const node of nodes) {
    const { stdout } = await engine.docker(['ps', '-aq', '--filter', `label=berth.node=${node}`]);
    const ids = stdout.split('\n').filter((id) => id !== '');
    if (ids.length > 0) await engine.docker(['rm', '-f', ...ids], { mayFail: true });
  }
}

/**
 * As first process httpd ignores SIGTERM, so each stop would take the whole stop_grace_seconds.
 * Requests end in drain_seconds before it.
 */
export const ENDS_AT_ONCE = 'STOPSIGNAL SIGKILL';

/** A web server whose only page is its version. Most of these tests deploy it. */
export const pageApp = (
  version: number | string,
  dockerfile: string[] = [],
): Record<string, string> => ({
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    ...dockerfile,
    ENDS_AT_ONCE,
    'EXPOSE 8080',
    'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
    '',
  ].join('\n'),
  'www/index.html': `version ${version}\n`,
});
export const versionOf = (body: string): number =>
  Number(/version (\d+)/.exec(body)?.[1] ?? Number.NaN);
