/**
 * Test helpers: the testbed's engine, registry and git server with an agent on them.
 * `missingParts`: why a machine cannot run them.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger, silentLogger } from '@berth/kit/log';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { toolsDir } from '@berth/testbed/config';
import { type Engine, startEngine, whyNoOwnEngine } from '@berth/testbed/engine';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { type Registry, registryProgram, startRegistry } from '@berth/testbed/registry';
import { type Agent, startAgent } from '../src/agent.ts';
import { readConfig } from '../src/config.ts';
import { type FakeControlPlane, startFakeControlPlane } from './fake-control-plane.ts';

export type RealParts = {
  engine: Engine;
  registry: Registry;
  git: GitServer;
  dir: string;
  stop(): Promise<void>;
};
export const missingParts =
  whyNoOwnEngine() ??
  (registryProgram() === undefined ? 'docker-registry is not installed' : undefined);

export async function startRealParts(): Promise<RealParts> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-agent-test-'));
  const engine = await startEngine({
    dir: join(toolsDir, 'testbed'),
    name: 'agent',
    private: true,
  });
  await ensureBaseImages(engine);
  const registry = await startRegistry({
    dir: join(dir, 'registry'),
    address: engine.gatewayIp,
    user: 'berth',
    password: 'a secret of the registry',
  });
  const git = await startGitServer({ root: join(dir, 'git') });
  return {
    engine,
    registry,
    git,
    dir,
    async stop() {
      await git.stop();
      await registry.stop();
      await engine.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export type Site = {
  agent: Agent;
  plane: FakeControlPlane;
  stateDir: string;
  stop(): Promise<void>;
};

export async function startSite(
  parts: RealParts,
  env: Record<string, string> = {},
  plane?: FakeControlPlane,
): Promise<Site> {
  const control =
    plane ??
    (await startFakeControlPlane({
      address: parts.engine.gatewayIp,
      secret: 'agents only',
      config: {
        registry_addr: parts.registry.address,
        registry_user: parts.registry.user ?? '',
        registry_password: parts.registry.password ?? '',
      },
    }));
  const stateDir = await mkdtemp(join(parts.dir, 'state-'));
  const config = readConfig({
    PATH: process.env['PATH'],
    NODE_ROLE: 'deploy',
    CONTROL_PLANE_URL: control.url,
    AGENT_SECRET: 'agents only',
    HOST_IP: parts.engine.hostIp,
    DOCKER_HOST: parts.engine.host,
    DOCKER_PLUGINS_DIR: join(toolsDir, 'docker-plugins'),
    STATE_DIR: stateDir,
    SVC_ROOT: join(parts.dir, 'svc'),
    LISTEN: '127.0.0.1:0',
    // The agent runs outside its engine's network: the rules would be those of this machine.
    FIREWALL: 'off',
    ...env,
  });
  const log =
    process.env['AGENT_TEST_LOG'] === undefined
      ? silentLogger()
      : createLogger({ name: 'agent', level: 'debug', format: 'pretty' });
  const agent = await startAgent(config, log);
  return {
    agent,
    plane: control,
    stateDir: join(config.STATE_DIR, config.NODE_ROLE),
    async stop() {
      await agent.stop();
      if (plane === undefined) await control.stop();
    },
  };
}
