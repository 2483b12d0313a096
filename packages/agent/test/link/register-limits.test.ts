/** The settings in a registration that the control plane's /readyz warns about. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { NodeRegister } from '@berth/wire/node';
import { LABELS, type NodeRole } from '@berth/wire/vocabulary';
import { expect, it, onTestFinished } from 'vitest';
import { createNodeIds } from '../../src/engine/node-ids.ts';
import { createRegistration, type RegistrationDeps } from '../../src/link/registration.ts';
import { container } from '../fake-engine.ts';

const NO_LIMITS = { publishIp: undefined, defaultMemory: undefined };

async function registered(
  role: NodeRole,
  limits: RegistrationDeps['limits'],
  over: Partial<RegistrationDeps> = {},
): Promise<Partial<NodeRegister>> {
  const dir = mkdtempSync(join(tmpdir(), 'agent-register-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const sent: NodeRegister[] = [];
  const call = async (_: string, { body }: { body: NodeRegister }) => {
    sent.push(body);
    return { id: 'node' };
  };
  const registration = createRegistration({
    client: { call } as unknown as Client,
    list: async () => [],
    ids: await createNodeIds(join(dir, 'node-ids.json'), silentLogger()),
    inventory: null,
    pins: null,
    volumes: null,
    usage: null,
    restarts: { of: () => 0 },
    health: async () => new Map(),
    probe: null,
    neighbours: null,
    revive: async () => false,
    log: silentLogger(),
    nodeName: 'node',
    role,
    maxBuilds: 1,
    capabilities: () => [],
    credentials: {
      bootId: 'boot',
      headers: () => ({}),
      use: () => {},
      register: (send) => send({}, true),
    },
    hostIp: async () => '127.0.0.1',
    machine: async () => ({}),
    labels: undefined,
    storage: async () => ({ max: 1, free: 1 }),
    engine: {
      ask: async () => undefined,
      answered: async () => undefined,
      failed: () => undefined,
      now: () => null,
      arch: () => 'amd64',
    },
    disk: () => null,
    limits,
    ...over,
  });
  await registration.register(new AbortController().signal);
  return sent.at(-1) ?? {};
}

it('a deploy node sends its publish address and default memory, or null', async () => {
  expect(
    await registered('deploy', { publishIp: undefined, defaultMemory: undefined }),
  ).toMatchObject({
    publish_ip: null,
    default_memory: null,
  });
  expect(await registered('deploy', { publishIp: '10.0.0.7', defaultMemory: 5e8 })).toMatchObject({
    publish_ip: '10.0.0.7',
    default_memory: 5e8,
  });
});

it('a builder sends neither', async () => {
  const body = await registered('builder', { publishIp: undefined, defaultMemory: undefined });
  expect(
    Object.keys(body).filter((name) => name === 'publish_ip' || name === 'default_memory'),
  ).toEqual([]);
});

it('a node lists the containers of runs that have devices, without the labels of their project', async () => {
  const run = (name: string, labels: Record<string, string>) => ({
    ...container({ hostPort: null, fixedPort: null }),
    name,
    labels: { [LABELS.run]: name, [LABELS.run_node]: 'node', [LABELS.project]: 'p', ...labels },
  });
  const listRuns = async () => [
    run('train', { [LABELS.devices]: 'nvidia.com/gpu=0' }),
    run('migrate', {}),
  ];
  const body = await registered('deploy', NO_LIMITS, { listRuns });
  expect(body.containers).toMatchObject([
    {
      name: 'train',
      state: 'running',
      labels: {
        [LABELS.run]: 'train',
        [LABELS.run_node]: 'node',
        [LABELS.devices]: 'nvidia.com/gpu=0',
      },
    },
  ]);
  expect(body.containers?.[0]?.labels[LABELS.project]).toBeUndefined();
});

it('a node that cannot list its runs lists no containers at all', async () => {
  const listRuns = () => Promise.reject(new Error('the engine is down'));
  const body = await registered('deploy', NO_LIMITS, { listRuns });
  expect(body.containers).toBeUndefined();
});
