/** Names of ssh servers, and the lines of known_hosts. */
import { createHmac } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { importKnownHosts } from '../../src/git/import-known-hosts.ts';
import { knownHosts, resolvedServer, sshServer } from '../../src/git/host-keys.ts';

/** The key that GitHub publishes, and its published fingerprint. */
const KEY = 'AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl';
const FINGERPRINT = 'SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU';
const hashed = (name: string): string => {
  const salt = Buffer.from('0123456789abcdef0123');
  return `|1|${salt.toString('base64')}|${createHmac('sha1', salt).update(name).digest('base64')}`;
};

it.each([
  ['git@Git.Example.org:a/b.git', 'git.example.org'],
  ['ssh://git@git.example.org/a', 'git.example.org'],
  ['ssh://git@git.example.org:22/a', 'git.example.org'],
  ['ssh://git@git.example.org.:2222/a', 'git.example.org:2222'],
  ['ssh://git@[::1]:2222/a', '[::1]:2222'],
  ['git@[::1]:a', '[::1]'],
  ['https://git.example.org/a', undefined],
  ['ssh://-oProxyCommand=x/a', undefined],
  ['git@-x:a', undefined],
])('the ssh server of %s is %s', (url, name) => {
  expect(sshServer(url)?.name).toBe(name);
});

it.each([
  [
    'hostname git.internal\nport 2222\n',
    { hostname: 'git.internal', port: 2222, name: 'git.internal:2222' },
  ],
  [
    'hostname git.internal\nport 22\nhostkeyalias Corp\n',
    { hostname: 'git.internal', port: 22, name: 'corp' },
  ],
  ['', { hostname: 'corp-git', port: 22, name: 'corp-git' }],
])('ssh_config can lead to another server: %j', (output, server) => {
  expect(resolvedServer({ hostname: 'corp-git', port: 22, name: 'corp-git' }, output)).toEqual(
    server,
  );
});

it('known_hosts is read with ports, several names and hashed names; certificates, revoked keys and patterns are skipped', () => {
  const text = [
    '# comment',
    `github.com,140.82.121.4 ssh-ed25519 ${KEY} comment`,
    `[git.example.org]:2222 ssh-ed25519 ${KEY}`,
    `${hashed('git.corp')} ssh-ed25519 ${KEY}`,
    `${hashed('[git.corp]:2222')} ssh-ed25519 ${KEY}`,
    `*.example.org ssh-ed25519 ${KEY}`,
    `@cert-authority ca.example.org ssh-ed25519 ${KEY}`,
    `@revoked bad.example.org ssh-ed25519 ${KEY}`,
    'broken ssh-ed25519 not!base64',
    'short',
  ].join('\n');
  const found = knownHosts(text, ['git.corp', 'other.corp']);
  expect(found.map((key) => key.host)).toEqual([
    'github.com',
    '140.82.121.4',
    'git.example.org:2222',
    'git.corp',
  ]);
  expect(new Set(found.map((key) => `${key.key_type} ${key.fingerprint}`))).toEqual(
    new Set([`ssh-ed25519 ${FINGERPRINT}`]),
  );
});

describe('the import of known hosts', () => {
  let homeDir: string;
  let sent: unknown[];
  let answer: () => Promise<{ imported: number }>;
  beforeEach(async () => {
    homeDir = await mkdtemp(join(tmpdir(), 'berth-known-'));
    sent = [];
    answer = async () => ({ imported: 1 });
  });
  afterEach(() => rm(homeDir, { recursive: true }));
  const send = (): Promise<void> => {
    const call = (name: string, input: unknown): unknown => {
      sent.push({ name, input });
      return answer();
    };
    const client = { call } as unknown as Client;
    return importKnownHosts({
      client,
      nodeId: 'n1',
      homeDir,
      sshKeyHosts: [],
      signal: AbortSignal.timeout(10_000),
      log: silentLogger(),
    });
  };

  it('happens once, and the file stays', async () => {
    await send();
    expect(sent).toEqual([]);
    await writeFile(join(homeDir, 'known_hosts'), `git.example.org ssh-ed25519 ${KEY}\n`);
    await send();
    await send();
    const keys = [{ host: 'git.example.org', key_type: 'ssh-ed25519', fingerprint: FINGERPRINT }];
    expect(sent).toMatchObject([
      { name: 'agentKnownHosts', input: { query: { node_id: 'n1' }, body: { keys } } },
    ]);
    expect((await readdir(homeDir)).sort()).toEqual(['known_hosts', 'known_hosts.imported']);
  });

  it('is repeated at the next start if the control plane is of an earlier version', async () => {
    await writeFile(join(homeDir, 'known_hosts'), `git.example.org ssh-ed25519 ${KEY}\n`);
    answer = () => Promise.reject(new ApiError(404, 'not_found', 'x', null));
    await send();
    answer = async () => ({ imported: 0 });
    await send();
    expect(sent).toHaveLength(2);
  });
});
