/**
 * A node that was deleted and registers again has a new id; its containers still belong to the
 * agent.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { NodeRegister } from '@berth/wire/node';
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest';
import { createEngineStatus } from '../../src/engine/engine-status.ts';
import { createImages } from '../../src/disk/old-images.ts';
import { createLocks } from '../../src/locks.ts';
import { createNodeIds, listNodeContainers } from '../../src/engine/node-ids.ts';
import { createRegistration } from '../../src/link/registration.ts';
import { createRetireHandler } from '../../src/tasks/retire.ts';
import { retireTask } from '../fake-control-plane.ts';
import { type FakeEngine, startFakeEngine } from '../fake-engine.ts';

let engine: FakeEngine;
let path: string;
beforeEach(async () => {
  engine = await startFakeEngine();
  const dir = mkdtempSync(join(tmpdir(), 'agent-ids-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  path = join(dir, 'node-ids.json');
});
afterEach(() => engine.stop());

const never = new AbortController().signal;
const put = (id: string, node: string) =>
  engine.put({
    id,
    labels: { 'berth.node': node, 'berth.project': 'prj-1', 'berth.deployment': `of-${id}` },
  });

/** An agent whose control plane returns this node id. */
async function agent(given: { id: string }) {
  const sent: NodeRegister[] = [];
  const call = async (_: string, { body }: { body: NodeRegister }) => {
    sent.push(body);
    return { id: given.id };
  };
  const ids = await createNodeIds(path, silentLogger());
  const list = listNodeContainers(engine.docker, ids);
  const registration = createRegistration({
    client: { call } as unknown as Client,
    list,
    ids,
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
    role: 'deploy',
    maxBuilds: 1,
    capabilities: () => [],
    credentials: {
      bootId: 'boot',
      headers: () => ({}),
      use: () => {},
      register: (send) => send({}, true),
    },
    hostIp: async () => '127.0.0.1',
    storage: async () => ({ max: 1, free: 1 }),
    engine: createEngineStatus(engine.docker),
    machine: async () => ({}),
    labels: undefined,
    disk: () => null,
    limits: { publishIp: undefined, defaultMemory: undefined },
  });
  const register = async (): Promise<string[]> => {
    await registration.register(never);
    return (sent.at(-1)?.containers ?? []).map((c) => c.name).sort();
  };
  return { register, ids, list };
}

it('containers of the old id are reported under the new one, also after a restart; those of other nodes are not', async () => {
  const given = { id: 'old' };
  const first = await agent(given);
  expect(await first.register()).toEqual([]);
  put('before', 'old');
  put('neighbour', 'somebody');
  given.id = 'new';
  expect(await first.register()).toEqual(['before']);
  put('after', 'new');
  expect(await (await agent(given)).register()).toEqual(['after', 'before']);
});

it('an id without containers is dropped at the next start of the agent, not while a task may use it', async () => {
  const given = { id: 'old' };
  const first = await agent(given);
  await first.register();
  given.id = 'new';
  await first.register();
  expect(first.ids.all()).toEqual(['old', 'new']);
  const second = await agent(given);
  await second.register();
  expect(second.ids.all()).toEqual(['new']);
  expect((await agent(given)).ids.all()).toEqual(['new']);
});

it('the agent starts although its saved ids are unreadable', async () => {
  writeFileSync(path, '{"no": "list"');
  const { register, ids } = await agent({ id: 'new' });
  await register();
  expect(ids.all()).toEqual(['new']);
});

it('a retire task of the new id removes containers of the old one', async () => {
  put('before', 'old');
  put('other', 'somebody');
  const ids = await createNodeIds(path, silentLogger());
  await ids.add('old');
  await ids.add('node-1');
  const handler = createRetireHandler({
    docker: engine.docker,
    listContainers: listNodeContainers(engine.docker, ids),
    images: createImages({ docker: engine.docker, keepNewest: () => 1, log: silentLogger() }),
    locks: createLocks(),
    networks: { cleanLater: () => undefined },
    secretFiles: { cleanLater: () => undefined },
    data: null,
    repositoryOf: () => null,
  });
  const remove = [
    { deployment_id: 'of-before', reason: 'its deployment is retired' },
    { deployment_id: 'of-other', reason: 'as if' },
  ];
  await handler(retireTask({ remove }), {
    attempt: 1,
    signal: never,
    log: () => undefined,
    logStep: () => undefined,
    secrets: [],
    secretsDigest: null,
    progress: () => undefined,
    learned: () => undefined,
    room: () => null,
    note: () => undefined,
  });
  expect(engine.all()).toEqual(['other running']);
});
