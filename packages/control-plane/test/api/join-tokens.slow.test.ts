/**
 * How machines join: with tokens, or by admission for contract-only agents while
 * REQUIRE_NODE_SECRETS is on.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openFilesBelow } from '@berth/testbed/open-files';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { joinCommand } from '../../src/api/join-command.ts';
import { readConfig } from '../../src/config.ts';
import {
  AGENT_SECRET,
  type Api,
  createApi,
  ENV,
  type Input,
  NODE,
  onceOnly,
  type Reply,
  rulesOf,
} from './harness.ts';

const CAN = { ...NODE, capabilities: ['node_secret'] };
const PLAIN = { hostname: 'plain', role: 'deploy', host_ip: '10.0.0.9', max_storage: 5 };
const secret = (text: string): Input => ({ as: null, headers: { 'x-agent-secret': text } });
async function start(env: Record<string, string> = {}): Promise<Api> {
  const api = await createApi({ env });
  onTestFinished(() => api.close());
  return api;
}
const enter = (api: Api, body: object, by = AGENT_SECRET): Promise<Reply> =>
  api.call('agentRegister', { body, ...secret(by) });
const outcome = ({ status, json }: Reply) => [status, json['code']];
const REFUSED = [401, 'agent_secret'];
const make = async (
  api: Api,
  body: object = { role: 'builder' },
): Promise<{ id: string; token: string; command: string; notes: string[]; expires_at: string }> => {
  const reply = await api.call('createJoinToken', { body });
  expect(reply.status, reply.text).toBe(201);
  return reply.json as never;
};

onceOnly.describe('the package for a new machine', () => {
  const folder = (): string => {
    const made = mkdtempSync(join(tmpdir(), 'berth-packages-'));
    onTestFinished(() => rmSync(made, { recursive: true, force: true }));
    return made;
  };
  const get = (api: Api, file: string): Promise<Reply> =>
    api.call('getPackage', { params: { file }, as: null });

  test('is served to everybody, and the command checks it', async () => {
    const dir = folder();
    writeFileSync(join(dir, `berth_${BERTH_VERSION}_amd64.deb`), 'a package');
    writeFileSync(join(dir, 'berth_0.0.9_amd64.deb'), 'an earlier package');
    const api = await start({
      PACKAGE_DIR: dir,
      CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
      REGISTRY_ADDR: 'registry.example.org',
    });
    const fetched = await get(api, `berth_${BERTH_VERSION}_amd64.deb`);
    expect([
      fetched.status,
      fetched.text,
      fetched.headers['content-type'],
      fetched.headers['content-length'],
    ]).toEqual([...[200, 'a package', 'application/vnd.debian.binary-package', '9']]);
    const { command, token, notes } = await make(api, { role: 'deploy', name: 'node-2' });
    const sha256 = createHash('sha256').update('a package').digest('hex');
    expect(command).toContain(`amd64) f=berth_${BERTH_VERSION}_amd64.deb s=${sha256};;`);
    expect(command).toContain(
      'curl -fsSO http://10.0.0.1:8080/api/packages/$f; echo "$s  $f" | sha256sum -c --quiet; ' +
        'apt-get install',
    );
    expect(command).toContain(
      'berth install agent --role deploy --name node-2 --control-plane http://10.0.0.1:8080 ' +
        '--join-token-file - --start',
    );
    expect(command).not.toMatch(/\n|0\.0\.9/);
    expect(command).not.toContain(token);
    expect(notes).toEqual([]);
    writeFileSync(join(dir, `berth_${BERTH_VERSION}_amd64.deb`), 'another package');
    expect((await make(api)).command).toContain(
      createHash('sha256').update('another package').digest('hex'),
    );
  });

  test.each([
    '..%2Fsecret',
    '../secret',
    'secret',
    `berth_${BERTH_VERSION}_amd64.deb/`,
    `berth_${BERTH_VERSION}_link.deb`,
    `berth_${BERTH_VERSION}_folder.deb`,
    'berth_.._amd64.deb',
  ])('nothing else in the folder or outside is served: %s', async (file) => {
    const dir = folder();
    writeFileSync(join(dir, 'secret'), 'hidden');
    symlinkSync(join(dir, 'secret'), join(dir, `berth_${BERTH_VERSION}_link.deb`));
    const api = await start({ PACKAGE_DIR: dir });
    const reply = await get(api, file);
    expect([reply.status, reply.text.includes('hidden')]).toEqual([404, false]);
  });

  describe('downloads that clients do not read', () => {
    const MIB = 1_048_576;
    const FILE = `berth_${BERTH_VERSION}_amd64.deb`;
    async function serve(): Promise<{
      api: Api;
      from: (address: string, method?: string) => Promise<IncomingMessage>;
      /** Number of open files of the package in this process. */
      openFiles: () => number;
    }> {
      const dir = folder();
      writeFileSync(join(dir, FILE), '');
      truncateSync(join(dir, FILE), 64 * MIB);
      const api = await start({ PACKAGE_DIR: dir });
      const url = `${await api.server.listen({ host: '127.0.0.1', port: 0 })}/api/packages/${FILE}`;
      const from = (localAddress: string, method = 'GET'): Promise<IncomingMessage> =>
        new Promise((resolve, reject) => {
          const asked = request(url, { method, localAddress, agent: false }, (reply) =>
            resolve(reply.on('error', () => undefined)),
          );
          asked.on('error', reject).end();
          onTestFinished(() => void asked.destroy());
        });
      const openFiles = (): number => openFilesBelow(dir).length;
      return { api, from, openFiles };
    }
    const good = (replies: IncomingMessage[]): number =>
      replies.filter((reply) => reply.statusCode === 200).length;
    const burst = (count: number, ask: (i: number) => Promise<IncomingMessage>) =>
      Promise.all(Array.from({ length: count }, (_, i) => ask(i)));

    test('a burst from one client gets two, and from many clients eight; others get 429', async () => {
      const { from } = await serve();
      const first = await burst(50, () => from('127.0.0.2'));
      expect(good(first)).toBe(2);
      expect(first.filter((reply) => reply.statusCode === 429)).toHaveLength(48);
      // The other client still downloads.
      const other = await from('127.0.0.3');
      let bytes = 0;
      for await (const part of other) bytes += (part as Buffer).length;
      expect([other.statusCode, bytes]).toEqual([200, 64 * MIB]);
      expect(good(await burst(50, (i) => from(`127.0.0.${4 + (i % 10)}`)))).toBe(6);
    });

    test('a stalled download ends after 30 s and frees its place', async () => {
      const { from } = await serve();
      vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
      onTestFinished(() => void vi.useRealTimers());
      const stalled = await burst(2, () => from('127.0.0.2'));
      expect(good(stalled)).toBe(2);
      // Bytes in the buffers of the system count as moved in the first 30 s.
      await sleep(500);
      vi.advanceTimersByTime(30_000);
      expect((await from('127.0.0.2')).statusCode).toBe(429);
      vi.advanceTimersByTime(30_000);
      await vi.waitFor(async () => expect((await from('127.0.0.2')).statusCode).toBe(200), {
        timeout: 20_000,
        interval: 50,
      });
    });

    test('the file of a download that its client aborts is closed', async () => {
      const { from, openFiles } = await serve();
      const reply = await from('127.0.0.2');
      await once(reply, 'readable');
      expect(openFiles()).toBe(1);
      reply.destroy();
      await expect.poll(openFiles).toBe(0);
    });

    test('HEAD answers with the headers, and needs no place and no read', async () => {
      const { from } = await serve();
      const probe = await open(import.meta.filename);
      const reads = vi.spyOn(Object.getPrototypeOf(probe) as typeof probe, 'createReadStream');
      onTestFinished(() => reads.mockRestore());
      await probe.close();
      const heads = await burst(20, () => from('127.0.0.2', 'HEAD'));
      expect(good(heads)).toBe(20);
      expect(heads[0]?.headers['content-length']).toBe(String(64 * MIB));
      expect(reads).not.toHaveBeenCalled();
    });
  });

  test('without a folder, the command is for a machine that has Berth', async () => {
    const api = await start({ CONTROL_PLANE_URL: 'http://127.0.0.1:8080' });
    expect((await get(api, `berth_${BERTH_VERSION}_amd64.deb`)).status).toBe(404);
    const { command, notes } = await make(api, { role: 'builder' });
    expect(command).toBe(
      'berth install agent --role builder --control-plane http://127.0.0.1:8080 ' +
        '--join-token-file - --start',
    );
    expect(notes[0]).toMatch(
      new RegExp(
        `^PACKAGE_DIR has no package of version ${BERTH_VERSION}: copy berth_${BERTH_VERSION}_ARCH.deb ` +
          `to the machine .* apt-get install ./berth_${BERTH_VERSION}_ARCH.deb`,
      ),
    );
    expect(notes[1]).toMatch(
      /^CONTROL_PLANE_URL is http:\/\/127\.0\.0\.1:8080, which only the machine of the control plane reaches: run/,
    );
  });

  const joining = {
    role: 'deploy',
    name: null,
    version: '1',
    packages: [{ name: 'berth_1_amd64.deb', version: '1', arch: 'amd64', sha256: 'a' }],
  };
  test.each([
    ['http://127.0.0.1:8080', '127.0.0.1:5000', ['CONTROL_PLANE_URL', 'REGISTRY_ADDR']],
    ['http://localhost:8080', 'localhost:5000', ['CONTROL_PLANE_URL', 'REGISTRY_ADDR']],
    ['http://[::1]:8080', '[::1]:5000', ['CONTROL_PLANE_URL', 'REGISTRY_ADDR']],
    ['http://10.0.0.1:8080', '127.0.0.1:5000', ['REGISTRY_ADDR']],
    ['https://berth.example.org', 'registry.example.org', []],
  ])(
    'a new machine cannot use the loopback addresses of another one: %s, %s',
    (controlPlaneUrl, registryAddr, named) => {
      const { notes } = joinCommand({ ...joining, controlPlaneUrl, registryAddr });
      expect(notes.map((note) => note.split(' ')[0])).toEqual(named);
      expect(notes.filter((note) => !note.includes('--internal-address'))).toEqual([]);
    },
  );

  test.each(["http://10.0.0.1:8080/'; reboot; '", 'http://10.0.0.1:8080/$(reboot)'])(
    'an address is never a command: %s',
    (controlPlaneUrl) => {
      const { command } = joinCommand({ ...joining, controlPlaneUrl, registryAddr: '' });
      expect(command).not.toMatch(/^\(/);
      const shown = execFileSync(
        'sh',
        ['-c', command.replace('berth', String.raw`printf '%s\n'`)],
        { encoding: 'utf8' },
      );
      expect(shown.split('\n')).toContain(controlPlaneUrl);
    },
  );
});

describe('a join token', () => {
  test('admits one machine, which gets its own secret; it is listed without the token until it expires', async () => {
    const api = await start();
    const { id, token, command } = await make(api, {
      role: 'builder',
      name: 'worker-1',
      ttl: '10m',
    });
    expect(token).toMatch(new RegExp(`^berthjoin_${id}_[\\w-]{43}$`));
    expect(command).toContain(
      'berth install agent --role builder --name worker-1 --control-plane http://',
    );
    expect(command).not.toContain(token);
    const joined = await enter(api, CAN, token);
    expect(joined.json).toMatchObject({ hostname: 'worker-1', has_secret: true });
    const own = String(joined.json['node_secret']);
    expect((await enter(api, CAN, own)).status).toBe(200);
    const listed = await api.call('listJoinTokens');
    expect(listed.json['items']).toMatchObject([
      {
        id,
        role: 'builder',
        name: 'worker-1',
        node_id: joined.json['id'],
        created_by: 'admin@example.com',
      },
    ]);
    expect(listed.text).not.toContain(token.slice(-43));
    api.pass(600_001);
    expect((await api.call('listJoinTokens')).json['items']).toEqual([]);
  });

  test('works once; the same process may repeat the request while it has not received the answer', async () => {
    const api = await start();
    const { token } = await make(api);
    const lost = await enter(api, CAN, token);
    expect(outcome(await enter(api, { ...CAN, boot_id: 'another' }, token))).toEqual(REFUSED);
    expect(outcome(await enter(api, { ...CAN, hostname: 'another', boot_id: 'x' }, token))).toEqual(
      REFUSED,
    );
    const again = await enter(api, CAN, token);
    expect(again.json['id']).toBe(lost.json['id']);
    expect((await enter(api, CAN, String(again.json['node_secret']))).status).toBe(200);
    expect(outcome(await enter(api, CAN, token))).toEqual(REFUSED);
  });

  test.each<[string, object, object, number]>([
    ['that has expired', { role: 'builder', ttl: '1m' }, CAN, 60_001],
    ['for another role', { role: 'deploy' }, CAN, 0],
    ['for another name', { role: 'builder', name: 'worker-9' }, CAN, 0],
    ['from an agent that cannot have a secret', { role: 'builder' }, NODE, 0],
  ])('%s: 401, and the answer does not say why', async (_, body, node, later) => {
    const api = await start();
    const { token } = await make(api, body);
    api.pass(later);
    const reply = await enter(api, node, token);
    expect(outcome(reply)).toEqual(REFUSED);
    expect(reply.json['detail']).toBe('The X-Agent-Secret header is missing or wrong');
  });

  test('is refused after its deletion; a node that joined with it stays', async () => {
    const api = await start();
    const [used, unused] = [await make(api), await make(api)];
    const own = String((await enter(api, CAN, used.token)).json['node_secret']);
    for (const { id } of [used, unused])
      expect((await api.call('deleteJoinToken', { params: { id } })).status).toBe(204);
    expect(outcome(await enter(api, { ...CAN, hostname: 'new' }, unused.token))).toEqual(REFUSED);
    expect((await enter(api, CAN, own)).status).toBe(200);
    expect((await api.call('deleteJoinToken', { params: { id: used.id } })).status).toBe(404);
  });

  test('cannot take over a registered node unless it names the node, and is valid only for a registration', async () => {
    const api = await start();
    await enter(api, { ...NODE, boot_id: 'there' });
    const { token } = await make(api);
    expect(outcome(await enter(api, CAN, token))).toEqual(REFUSED);
    expect(outcome(await api.call('agentConfig', secret(token)))).toEqual(REFUSED);
    const named = await make(api, { role: 'builder', name: NODE.hostname });
    expect((await enter(api, CAN, named.token)).status).toBe(200);
    // The node has a secret now, and no token replaces it.
    const later = await make(api, { role: 'builder', name: NODE.hostname });
    expect(outcome(await enter(api, { ...CAN, boot_id: 'z' }, later.token))).toEqual(REFUSED);
  });

  test('is created only by admins, with a valid role, name and lifetime', async () => {
    const api = await start();
    expect(
      (await api.call('createJoinToken', { body: { role: 'builder' }, as: 'developer' })).status,
    ).toBe(403);
    for (const [body, rule] of [
      [{ role: 'boss' }, 'role:enum'],
      [{ role: 'deploy', ttl: 'soon' }, 'ttl:duration'],
      [{ role: 'deploy', ttl: '1s' }, 'ttl:duration'],
      [{ role: 'deploy', ttl: '400d' }, 'ttl:duration'],
      [{ role: 'deploy', name: 'a b; rm' }, 'name:pattern'],
      [{ role: 'deploy', x: 1 }, 'x:unknown_field'],
    ] as const)
      expect(rulesOf(await api.call('createJoinToken', { body }))).toEqual([rule]);
  });
});

describe('REQUIRE_NODE_SECRETS', () => {
  const strict = { REQUIRE_NODE_SECRETS: 'true' };
  test('AGENT_SECRET is refused and a join token accepted', async () => {
    const api = await start(strict);
    expect(outcome(await enter(api, CAN))).toEqual(REFUSED);
    expect(outcome(await enter(api, NODE))).toEqual(REFUSED);
    expect(outcome(await enter(api, PLAIN))).toEqual(REFUSED);
    expect(outcome(await api.call('agentConfig'))).toEqual(REFUSED);
    const { token } = await make(api);
    const own = String((await enter(api, CAN, token)).json['node_secret']);
    expect((await api.call('agentConfig', secret(own))).status).toBe(200);
  });

  test('a contract-only node that an admin admitted works with AGENT_SECRET until the admission is deleted', async () => {
    const api = await start(strict);
    const admitted = await api.call('createAdmission', {
      body: { hostname: 'plain', role: 'deploy' },
    });
    expect(admitted.status).toBe(201);
    expect(
      (await api.call('createAdmission', { body: { hostname: 'plain', role: 'deploy' } })).json[
        'id'
      ],
    ).toBe(admitted.json['id']);
    expect(outcome(await api.call('agentConfig'))).toEqual(REFUSED);
    const node = await enter(api, PLAIN);
    expect(node.status).toBe(200);
    expect((await api.call('agentConfig')).status).toBe(200);
    const ask = (): Promise<Reply> =>
      api.call('agentTasks', { query: { node_id: String(node.json['id']) } });
    expect((await ask()).status).toBe(200);
    expect((await api.call('listAdmissions')).json['items']).toMatchObject([
      { hostname: 'plain', address: '127.0.0.1' },
    ]);
    // An agent that supports node secrets is not contract-only.
    expect(outcome(await enter(api, { ...PLAIN, capabilities: ['node_secret'] }))).toEqual(REFUSED);
    expect(outcome(await enter(api, { ...PLAIN, role: 'builder' }))).toEqual(REFUSED);
    await api.call('deleteAdmission', { params: { id: String(admitted.json['id']) } });
    expect(outcome(await ask())).toEqual(REFUSED);
    expect(outcome(await enter(api, PLAIN))).toEqual(REFUSED);
    expect(outcome(await api.call('agentConfig'))).toEqual(REFUSED);
  });

  test('a node that lost its admitted name to another machine is refused everywhere until an admin admits its present name', async () => {
    const api = await start(strict);
    await api.call('createAdmission', { body: { hostname: 'plain', role: 'deploy' } });
    const first = String((await enter(api, PLAIN)).json['id']);
    api.pass(121_000);
    const second = await enter(api, { ...PLAIN, host_ip: '10.0.0.10' });
    expect(second.json).toMatchObject({ hostname: 'plain', host_ip: '10.0.0.10' });
    const ask = (id: string): Promise<Reply> => api.call('agentTasks', { query: { node_id: id } });
    // Were it accepted, it would be online and get work that it may not ask for.
    expect([outcome(await enter(api, PLAIN)), outcome(await ask(first))]).toEqual([
      REFUSED,
      REFUSED,
    ]);
    expect((await api.call('getNode', { params: { id: first } })).json).toMatchObject({
      hostname: 'plain~10.0.0.9',
      status: 'offline',
    });
    expect((await ask(String(second.json['id']))).status).toBe(200);

    expect(
      (await api.call('createAdmission', { body: { hostname: 'plain~10.0.0.9', role: 'deploy' } }))
        .status,
    ).toBe(201);
    expect((await enter(api, PLAIN)).json).toMatchObject({
      id: first,
      hostname: 'plain~10.0.0.9',
      status: 'online',
    });
    expect((await ask(first)).status).toBe(200);
  });

  test('a node that gets its admitted name back is accepted again', async () => {
    const api = await start(strict);
    await api.call('createAdmission', { body: { hostname: 'plain', role: 'deploy' } });
    const first = String((await enter(api, PLAIN)).json['id']);
    api.pass(121_000);
    const second = String((await enter(api, { ...PLAIN, host_ip: '10.0.0.10' })).json['id']);
    await api.call('deleteNode', { params: { id: second }, query: { force: true } });
    await vi.waitFor(async () =>
      expect((await api.call('getNode', { params: { id: second } })).status).toBe(404),
    );
    expect((await enter(api, PLAIN)).json).toMatchObject({ id: first, hostname: 'plain' });
    expect((await api.call('agentTasks', { query: { node_id: first } })).status).toBe(200);
  });

  test('requires AGENT_SECRET: without it every agent would be accepted', () => {
    expect(() =>
      readConfig({ ...ENV, AGENT_SECRET: undefined, REQUIRE_NODE_SECRETS: 'true' }),
    ).toThrow(/REQUIRE_NODE_SECRETS: requires AGENT_SECRET/);
  });
});
