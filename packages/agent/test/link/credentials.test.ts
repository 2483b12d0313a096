/** The node's own secret: requested, saved, and used instead of the shared secret. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { ApiError } from '@berth/wire/client';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { type Credentials, readCredentials } from '../../src/link/credentials.ts';

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'agent-secret-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true }));
});

const start = (
  given: { shared?: string; joinToken?: string } = { shared: 'shared' },
): Promise<Credentials> =>
  readCredentials({
    stateDir,
    shared: given.shared === undefined ? [] : [given.shared],
    joinToken: given.joinToken,
    log: silentLogger(),
  });
const refused = (): Error => new ApiError(401, 'agent_secret', 'wrong', null);

/**
 * A control plane that accepts these secrets, and hands out `gives` to a registration with another
 * one.
 */
function plane(accepts: string[], gives: string | null = null) {
  const seen: (string | undefined)[] = [];
  const send = async (
    headers: Record<string, string>,
    maySave: boolean,
  ): Promise<{ node_secret?: string }> => {
    const shown = headers['x-agent-secret'];
    seen.push(shown);
    if (!accepts.includes(shown ?? '')) throw refused();
    return gives !== null && maySave && shown !== gives ? { node_secret: gives } : {};
  };
  return { seen, send };
}

it('saves the secret with mode 0600 and uses it from then on, also after a restart', async () => {
  const { seen, send } = plane(['shared', 'berthnode_n_1'], 'berthnode_n_1');
  const first = await start();
  await first.register(send);
  expect(first.headers()).toEqual({ 'x-agent-secret': 'berthnode_n_1' });
  expect(statSync(join(stateDir, 'node-secret')).mode & 0o777).toBe(0o600);
  expect(readFileSync(join(stateDir, 'node-secret'), 'utf8')).toBe('berthnode_n_1');
  const second = await start();
  expect(second.bootId).not.toBe(first.bootId);
  await second.register(send);
  expect(seen).toEqual(['shared', 'berthnode_n_1']);
});

it('a join token is tried first, and is sufficient', async () => {
  const { seen, send } = plane(['token', 'berthnode_n_1'], 'berthnode_n_1');
  const agent = await start({ joinToken: 'token', shared: 'shared' });
  await agent.register(send);
  await agent.register(send);
  expect(seen).toEqual(['token', 'berthnode_n_1']);
  const restarted = await start({ joinToken: 'token' });
  await restarted.register(send);
  expect(seen.at(-1)).toBe('berthnode_n_1');
});

it('after a reset of its secret it registers with the shared one and saves the new one', async () => {
  writeFileSync(join(stateDir, 'node-secret'), 'berthnode_n_old');
  const { seen, send } = plane(['shared', 'berthnode_n_new'], 'berthnode_n_new');
  const agent = await start();
  await agent.register(send);
  expect(seen).toEqual(['berthnode_n_old', 'shared']);
  expect(readFileSync(join(stateDir, 'node-secret'), 'utf8')).toBe('berthnode_n_new');
  expect(agent.headers()).toEqual({ 'x-agent-secret': 'berthnode_n_new' });
});

it('keeps its own secret if all secrets are refused, because a restored database may accept it later', async () => {
  writeFileSync(join(stateDir, 'node-secret'), 'berthnode_n_1');
  const agent = await start();
  await expect(agent.register(plane([]).send)).rejects.toMatchObject({ status: 401 });
  expect(readFileSync(join(stateDir, 'node-secret'), 'utf8')).toBe('berthnode_n_1');
  await agent.register(plane(['berthnode_n_1']).send);
  expect(agent.headers()).toEqual({ 'x-agent-secret': 'berthnode_n_1' });
});

it('a process killed before it saved the secret asks again with the same boot id', async () => {
  const first = await start();
  await expect(first.register(async () => Promise.reject(new Error('killed')))).rejects.toThrow(
    'killed',
  );
  const second = await start();
  expect(second.bootId).toBe(first.bootId);
  await second.register(plane(['shared']).send);
  // This control plane is older and hands out no secret, so the next start has a new boot id.
  expect((await start()).bootId).not.toBe(first.bootId);
});

it('with a read-only state folder it asks for no secret and uses the shared one', async () => {
  mkdirSync(join(stateDir, 'node-secret-boot'));
  mkdirSync(join(stateDir, 'node-secret-boot', 'in-the-way'));
  const { send } = plane(['shared'], 'berthnode_n_1');
  const agent = await start().catch(() => null);
  if (agent === null) return;
  await agent.register(send);
  expect(agent.headers()).toEqual({ 'x-agent-secret': 'shared' });
});

it('without a secret it sends no header', async () => {
  const { seen, send } = plane(['']);
  const agent = await start({});
  await agent.register(send);
  expect([seen, agent.headers()]).toEqual([[undefined], {}]);
});
