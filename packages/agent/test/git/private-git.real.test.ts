/**
 * Private repositories with real servers: Debian's sshd with deploy keys and host keys, git over
 * https with tokens.
 */
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import type { GitAccess } from '@berth/wire/git';
import { makeCertificate } from '@berth/testbed/certificate';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import {
  newKeyPair,
  noSshd,
  type SshGitServer,
  startSshGitServer,
} from '@berth/testbed/ssh-git-server';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { createPrivateFolder } from '../../src/state/private-folder.ts';
import { openStateFolder } from '../../src/state/state-folder.ts';
import type { TaskFailure } from '../../src/failures.ts';
import type { Cloned, CloneSpec } from '../../src/git/clone.ts';
import { cloneInto } from '../clone-into.ts';

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-private-'));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

let count = 0;
/** Where this file's keys are while a clone runs. */
const keysOf = async (): Promise<string[]> => {
  const [mine] = (await readdir('/dev/shm')).filter((name) => name === keyFolder());
  return mine === undefined ? [] : readdir(join('/dev/shm', mine));
};
let folderName = '';
const keyFolder = (): string => folderName;
type Outcome = { cloned: Cloned; root: string; log: string };
type Settings = {
  inherit?: NodeJS.ProcessEnv;
  sshKeyHosts?: readonly string[];
  home?: string;
  duringSsh?: string;
};

async function clone(
  spec: Partial<CloneSpec> & { url: string; access: GitAccess | null },
  settings: Settings = {},
): Promise<Outcome> {
  const root = join(dir, `clone-${(count += 1)}`);
  const before = new Set(await readdir('/dev/shm'));
  try {
    const { cloned, log } = await cloneInto(root, dir, spec, {
      home: join(dir, `home-${count}`),
      ...settings,
    });
    return { cloned, root, log: log.join('\n') };
  } catch (error) {
    throw Object.assign(error as Error, { log: (error as { log: string[] }).log.join('\n') });
  } finally {
    folderName =
      (await readdir('/dev/shm')).find((name) => !before.has(name) && name.startsWith('berth-')) ??
      folderName;
    expect(await keysOf()).toEqual([]);
  }
}
type Refused = TaskFailure & { log: string };
const refused = (...given: Parameters<typeof clone>): Promise<Refused> =>
  clone(...given).then(
    () => expect.unreachable('it was cloned'),
    (error: Refused) => error,
  );
afterAll(async () => {
  if (folderName !== '') await rm(join('/dev/shm', folderName), { recursive: true, force: true });
});

const modules = (...urls: [path: string, url: string][]): string =>
  urls.map(([path, url]) => `[submodule "${path}"]\n\tpath = ${path}\n\turl = ${url}\n`).join('');
/** Every file below a folder that contains the text. */
async function containing(root: string, text: string): Promise<string[]> {
  const entries = (await readdir(root, { recursive: true, withFileTypes: true })).filter((entry) =>
    entry.isFile(),
  );
  const found = await Promise.all(
    entries.map(async (entry) =>
      (await readFile(join(entry.parentPath, entry.name))).includes(text) ? [entry.name] : [],
    ),
  );
  return found.flat();
}

describe.skipIf(noSshd !== '')(`over ssh${noSshd}`, () => {
  let ssh: SshGitServer;
  let far: SshGitServer;
  let key: { path: string; publicKey: string };
  let privateKey: string;
  beforeAll(async () => {
    await mkdir(join(dir, 'ssh'));
    await mkdir(join(dir, 'far'));
    ssh = await startSshGitServer({ root: join(dir, 'ssh'), hostKeys: ['ed25519', 'ecdsa'] });
    far = await startSshGitServer({ root: join(dir, 'far'), address: '127.0.0.2' });
    key = await newKeyPair(join(dir, 'deploy'));
    privateKey = await readFile(key.path, 'utf8');
  });
  beforeEach(async () => {
    await ssh.authorize(key.publicKey);
    await far.authorize(key.publicKey);
    ssh.log();
    far.log();
  });
  afterAll(async () => {
    await ssh?.stop();
    await far?.stop();
  });

  const KEY_ID = 'SHA256:of-the-deploy-key';
  const access = (...servers: SshGitServer[]): GitAccess => ({
    hosts: servers.map((server) => ({ host: server.name, fingerprints: server.fingerprints() })),
    deploy_key: { private_key: privateKey, fingerprint: KEY_ID },
  });

  it('a deploy key fetches the branch, a commit, and submodules of the same host; nothing of it stays', async () => {
    const lib = await ssh.createRepo('lib', { 'lib.txt': 'l' });
    const { url, sha } = await ssh.createRepo('app', {
      '.gitmodules': modules(['lib', '../lib.git']),
      lib: { submodule: lib.sha },
    });
    const { cloned, root, log } = await clone({ url, access: access(ssh) });
    expect(cloned.sha).toBe(sha);
    expect(await readFile(join(root, 'lib/lib.txt'), 'utf8')).toBe('l');
    expect((await clone({ url, commit: sha, access: access(ssh) })).cloned.sha).toBe(sha);
    expect(ssh.log()).toContain('Accepted publickey');
    expect(await containing(root, 'PRIVATE KEY')).toEqual([]);
    expect(log).not.toContain('PRIVATE');
    const none = await clone({ url, access: access(ssh), submodules: false });
    expect(none.log).toContain('submodules stay empty: the project has submodules=false');
    expect(await readdir(join(none.root, 'lib'))).toEqual([]);
  });

  it('a host that nobody trusts is refused before ssh connects, with every fingerprint that it presents', async () => {
    const { url } = await ssh.createRepo('unknown', { 'a.txt': '1' });
    const error = await refused({ url, access: access() });
    expect(error.code).toBe('git_host_unknown');
    for (const fingerprint of ssh.fingerprints()) expect(error.message).toContain(fingerprint);
    expect(error.message).toContain(`PUT /api/git-hosts/${encodeURIComponent(ssh.name)}`);
    expect(
      new Set(error.report.host_keys?.map((seen) => `${seen.host} ${seen.fingerprint}`)),
    ).toEqual(new Set(ssh.fingerprints().map((fingerprint) => `${ssh.name} ${fingerprint}`)));
    expect(ssh.log()).not.toContain('publickey');
  });

  it('a changed host key is refused although an earlier build used the old one, and works when the new one is trusted', async () => {
    const { url } = await ssh.createRepo('changed', { 'a.txt': '1' });
    const home = join(dir, 'home-of-changed');
    const before = access(ssh);
    expect((await clone({ url, access: before }, { home })).cloned.hostKeys).toHaveLength(2);
    expect((await clone({ url, access: before }, { home })).cloned.hostKeys).toEqual([]);
    const [now = ''] = await ssh.newHostKeys('ed25519');
    const error = await refused({ url, access: before }, { home });
    expect(error.code).toBe('git_host_changed');
    expect(error.message).toContain(now);
    expect(error.message).toContain(before.hosts[0]?.fingerprints[0]);
    expect(ssh.log()).not.toContain('Accepted');
    expect((await clone({ url, access: access(ssh) }, { home })).cloned.sha).not.toBe('');
  });

  it('a server that presents only another trusted key than before is asked again', async () => {
    const { url } = await ssh.createRepo('other-type', { 'a.txt': '1' });
    const home = join(dir, 'home-of-type');
    const first = access(ssh);
    await clone({ url, access: first }, { home });
    const [rsa = ''] = await ssh.newHostKeys('rsa');
    const both: GitAccess = {
      ...first,
      hosts: [{ host: ssh.name, fingerprints: [...(first.hosts[0]?.fingerprints ?? []), rsa] }],
    };
    expect((await clone({ url, access: both }, { home })).cloned.hostKeys).toMatchObject([
      { key_type: 'ssh-rsa', fingerprint: rsa },
    ]);
  });

  it('a deploy key that the repository does not have is named', async () => {
    const { url } = await ssh.createRepo('refused', { 'a.txt': '1' });
    await ssh.authorize();
    const error = await refused({ url, access: access(ssh) });
    expect(error.code).toBe('git_key_refused');
    expect(error.message).toContain(KEY_ID);
  });

  it('without a deploy key the builder offers no key of its own', async () => {
    const { url } = await ssh.createRepo('keyless', { 'a.txt': '1' });
    const { deploy_key: _none, ...hosts } = access(ssh);
    const error = await refused({ url, access: hosts });
    expect(error.code).toBe('git_credentials');
    expect(error.message).toContain('create a deploy key');
    expect(ssh.log()).not.toMatch(/(Failed|Accepted) publickey/);
  });

  it('another host does not get the deploy key, also for a submodule', async () => {
    const lib = await far.createRepo('private-lib', { 'a.txt': '1' });
    const { url } = await ssh.createRepo('of-far', {
      '.gitmodules': modules(['vendor', lib.url]),
      vendor: { submodule: lib.sha },
    });
    const error = await refused({ url, access: access(ssh, far) });
    expect(error.code).toBe('git_submodule_credentials');
    expect(error.message).toContain('submodule vendor');
    expect(error.message).toContain('go to 127.0.0.1 only');
    const seen = far.log();
    expect(seen).toContain('Connection from');
    expect(seen).not.toMatch(/(Failed|Accepted) publickey/);
  });

  it('a submodule on a host that nobody trusts is refused with the keys of that host', async () => {
    const lib = await far.createRepo('strange-lib', { 'a.txt': '1' });
    const { url } = await ssh.createRepo('of-strange', {
      '.gitmodules': modules(['vendor', lib.url]),
      vendor: { submodule: lib.sha },
    });
    const error = await refused({ url, access: access(ssh) });
    // The keys of the repository's own server are reported too.
    expect(error).toMatchObject({
      code: 'git_host_unknown',
      report: { host_keys: expect.arrayContaining([expect.objectContaining({ host: far.name })]) },
    });
    expect(error.message).toContain('submodule vendor');
  });

  it('a key file of the builder that others can read is named', async () => {
    const bin = join(dir, 'bin-readable');
    await mkdir(bin);
    const readable = await newKeyPair(join(dir, 'readable'));
    await ssh.authorize(readable.publicKey);
    await chmod(readable.path, 0o644);
    // The builder's own keys are in the home folder of its user. This wrapper adds such a key to
    // the real ssh.
    await writeFile(
      join(bin, 'ssh'),
      `#!/bin/sh\nexec /usr/bin/ssh -i ${readable.path} -oIdentitiesOnly=yes "$@"\n`,
    );
    await chmod(join(bin, 'ssh'), 0o755);
    const { url } = await ssh.createRepo('readable', { 'a.txt': '1' });
    const { deploy_key: _none, ...hosts } = access(ssh);
    const settings = {
      sshKeyHosts: ['127.0.0.1'],
      inherit: { PATH: `${bin}:${process.env['PATH']}` },
    };
    const error = await refused({ url, access: hosts }, settings);
    expect(error.code).toBe('git_key_readable');
    expect(error.message).toContain(readable.path);
    expect(error.message).toContain('0644');
    await chmod(readable.path, 0o600);
    expect((await clone({ url, access: hosts }, settings)).cloned.sha).not.toBe('');
  });

  it('a host name that only ssh_config of the builder knows works for a host of SSH_KEY_HOSTS', async () => {
    const bin = join(dir, 'bin-alias');
    await mkdir(bin);
    const { url } = await ssh.createRepo('alias', { 'a.txt': '1' });
    const { hostname, port, username, pathname } = new URL(url);
    await writeFile(
      join(bin, 'config'),
      `Host corp-git\n  HostName ${hostname}\n  Port ${port}\n  IdentityFile ${key.path}\n`,
    );
    // The configuration of the user is in the home folder of its account, so the wrapper names
    // another one.
    await writeFile(join(bin, 'ssh'), `#!/bin/sh\nexec /usr/bin/ssh -F ${bin}/config "$@"\n`);
    await chmod(join(bin, 'ssh'), 0o755);
    const { deploy_key: _none, ...hosts } = access(ssh);
    const settings = {
      sshKeyHosts: ['corp-git'],
      inherit: { PATH: `${bin}:${process.env['PATH']}` },
    };
    const aliased = `ssh://${username}@corp-git${pathname}`;
    expect((await clone({ url: aliased, access: hosts }, settings)).cloned.sha).not.toBe('');
    expect(await refused({ url: aliased, access: { hosts: [] } }, settings)).toMatchObject({
      code: 'git_host_unknown',
    });
  });

  it('an earlier control plane, which keeps no host keys, works as before', async () => {
    const { url } = await ssh.createRepo('before', { 'a.txt': '1' });
    const error = await refused({ url, access: null });
    expect(error.code).toBe('git_credentials');
    expect(ssh.log()).toContain('Connection from');
  });
});

describe('over https', () => {
  const TOKEN = 'glpat-canary-of-the-token';
  const BASIC = Buffer.from(`bot:${TOKEN}`).toString('base64');
  let git: GitServer;
  let other: GitServer;
  let inherit: NodeJS.ProcessEnv;
  beforeAll(async () => {
    const { certFile, keyFile } = await makeCertificate(dir, 'git.test', [
      'IP:127.0.0.1',
      'IP:127.0.0.2',
    ]);
    const tls = { key: await readFile(keyFile, 'utf8'), cert: await readFile(certFile, 'utf8') };
    git = await startGitServer({
      root: join(dir, 'https'),
      tls,
      credentials: { user: 'bot', password: TOKEN },
    });
    other = await startGitServer({ root: join(dir, 'other'), tls, address: '127.0.0.2' });
    inherit = { GIT_SSL_CAINFO: certFile };
  });
  afterEach(() => {
    git.behave('serve');
    git.require({ user: 'bot', password: TOKEN });
    git.authorizations();
    other.authorizations();
  });
  afterAll(async () => {
    await git?.stop();
    await other?.stop();
  });
  const access = (over: Partial<GitAccess> = {}): GitAccess => ({
    hosts: [],
    token: { host: new URL(git.url).host, username: 'bot', token: TOKEN },
    ...over,
  });

  it('a token fetches the repository and submodules of its host; it is in no argument, file or line', async () => {
    const bin = join(dir, 'bin-git');
    await mkdir(bin);
    await writeFile(
      join(bin, 'git'),
      `#!/bin/sh\necho "$@" >> ${bin}/arguments\nexec /usr/bin/git "$@"\n`,
    );
    await chmod(join(bin, 'git'), 0o755);
    const lib = await git.createRepo('lib', { 'lib.txt': 'l' });
    const { url, sha } = await git.createRepo('app', {
      '.gitmodules': modules(['lib', '../lib.git']),
      lib: { submodule: lib.sha },
    });
    const { cloned, root, log } = await clone(
      { url, access: access() },
      { inherit: { ...inherit, PATH: `${bin}:${process.env['PATH']}` } },
    );
    expect(cloned.sha).toBe(sha);
    expect(await readFile(join(root, 'lib/lib.txt'), 'utf8')).toBe('l');
    expect(git.authorizations().every((header) => header === `Basic ${BASIC}`)).toBe(true);
    for (const secret of [TOKEN, BASIC]) {
      expect(await containing(root, secret)).toEqual([]);
      expect(log).not.toContain(secret);
      expect(await readFile(join(bin, 'arguments'), 'utf8')).not.toContain(secret);
    }
  });

  it('another host does not get the token, also for a submodule', async () => {
    const lib = await other.createRepo('far-lib', { 'lib.txt': 'l' });
    const { url } = await git.createRepo('of-far', {
      '.gitmodules': modules(['lib', lib.url]),
      lib: { submodule: lib.sha },
    });
    await clone({ url, access: access() }, { inherit });
    expect(new Set(other.authorizations())).toEqual(new Set(['']));
    other.require({ user: 'x', password: 'y' });
    const error = await refused({ url, access: access() }, { inherit });
    other.require(undefined);
    expect(error.code).toBe('git_submodule_credentials');
    expect(error.message).toContain('submodule lib');
    expect(new Set(other.authorizations())).not.toContain(`Basic ${BASIC}`);
  });

  it('another port, and http, do not get the token', async () => {
    const { url } = await git.createRepo('elsewhere', { 'a.txt': '1' });
    for (const host of ['127.0.0.1', '127.0.0.1:1']) {
      const error = await refused(
        { url, access: access({ token: { host, username: 'bot', token: TOKEN } }) },
        { inherit },
      );
      expect(error.code).toBe('git_credentials');
      expect(error.message).toContain('set a git token');
    }
    expect(new Set(git.authorizations())).toEqual(new Set(['']));
  });

  it('a redirect to another host is refused, and that host gets nothing', async () => {
    const { url } = await git.createRepo('leads-away', { 'a.txt': '1' });
    git.behave({ redirect: (_, path) => `${other.url}${path}` });
    const before = other.requests();
    expect(await refused({ url, access: access() }, { inherit })).toMatchObject({
      code: 'git_redirect_refused',
    });
    expect(other.requests()).toBe(before);
  });

  it('a redirect within the host keeps the token', async () => {
    const { sha } = await git.createRepo('moved', { 'a.txt': '1' });
    git.behave({
      redirect: (_, path) =>
        path.startsWith('/old.git') ? path.replace('/old.git', '/moved.git') : undefined,
    });
    expect(
      (await clone({ url: git.repoUrl('old'), access: access() }, { inherit })).cloned.sha,
    ).toBe(sha);
  });

  it.each([401, 403])('a wrong or expired token is named: %i', async (status) => {
    const { url } = await git.createRepo(`expired-${status}`, { 'a.txt': '1' });
    if (status === 401) git.require({ user: 'bot', password: 'the next one' });
    else git.behave({ status: 403, text: `the token ${TOKEN} has expired` });
    const error = await refused({ url, access: access() }, { inherit });
    expect(error.code).toBe('git_token_refused');
    expect(error.message).toContain('set a new git token');
    for (const secret of [TOKEN, BASIC])
      expect(`${error.message}\n${error.log}`).not.toContain(secret);
  });

  it('a private repository without a token says what to set', async () => {
    const { url } = await git.createRepo('tokenless', { 'a.txt': '1' });
    const error = await refused({ url, access: { hosts: [] } }, { inherit });
    expect(error.code).toBe('git_credentials');
    expect(error.message).toContain('set a git token');
  });
});

describe('the folder for keys', () => {
  it('is refused where others could read it, or where it would be on a disk', async () => {
    await expect(createPrivateFolder(dir, 'x').with((make) => make())).rejects.toThrow(
      'is not in memory (tmpfs)',
    );
    const base = await mkdtemp('/dev/shm/test-');
    try {
      const folder = createPrivateFolder(base, 'x');
      await folder.with((make) => make());
      const [name = ''] = await readdir(base);
      await chmod(join(base, name), 0o755);
      await expect(folder.with((make) => make())).rejects.toThrow('is not a folder of mode 0700');
    } finally {
      await rm(base, { recursive: true });
    }
  });

  it('is emptied at the start of the agent', async () => {
    const base = await mkdtemp('/dev/shm/test-');
    try {
      let left = '';
      const folder = createPrivateFolder(base, 'x');
      await folder.with(async (make) => {
        left = await make();
        await writeFile(join(left, 'key'), 'secret');
        await createPrivateFolder(base, 'another agent').removeLeftovers();
        expect(await readFile(join(left, 'key'), 'utf8')).toBe('secret');
        await createPrivateFolder(base, 'x').removeLeftovers();
        await expect(readFile(join(left, 'key'))).rejects.toThrow('ENOENT');
      });
      const env = {
        NODE_ROLE: 'builder',
        CONTROL_PLANE_URL: 'http://127.0.0.1:9',
        STATE_DIR: join(dir, 'state'),
        KEYS_DIR: base,
      };
      const before = await openStateFolder(readConfig(env), silentLogger());
      await before.keys.with(async (make) => {
        left = await make();
        await openStateFolder(readConfig(env), silentLogger());
        await expect(readdir(left)).rejects.toThrow('ENOENT');
      });
    } finally {
      await rm(base, { recursive: true });
    }
  });
});
