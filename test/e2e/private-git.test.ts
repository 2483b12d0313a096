/**
 * Private repositories from the API to a live address: real sshd, https with a token, control
 * plane, builder, registry and proxy.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ApiError } from '@berth/wire/client';
import { makeCertificate } from '@berth/testbed/certificate';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { noSshd, type SshGitServer, startSshGitServer } from '@berth/testbed/ssh-git-server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENDS_AT_ONCE, pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = (await whyNot()) ?? (noSshd === '' ? undefined : noSshd);
const TOKEN = 'glpat-canary-of-the-git-token';
const BASIC = Buffer.from(`bot:${TOKEN}`).toString('base64');

describe.skipIf(reason !== undefined)(
  `private repositories${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let ssh: SshGitServer;
    let https: GitServer;
    let certificates = '';
    let trace = '';
    const created: { keys: string[] } = { keys: [] };
    beforeAll(async () => {
      certificates = await mkdtemp(join(tmpdir(), 'berth-e2e-ca-'));
      const { certFile, keyFile } = await makeCertificate(certificates, 'git.test', [
        'IP:127.0.0.1',
      ]);
      trace = join(certificates, 'trace');
      // An operator who traces git must not get the token.
      const traced = {
        GIT_TRACE: trace,
        GIT_TRACE_CURL: trace,
        GIT_TRACE_REDACT: '0',
        GIT_CURL_VERBOSE: '1',
      };
      world = await startWorld({
        proxy: 'built-in',
        agentEnv: { GIT_SSL_CAINFO: certFile, ...traced },
      });
      const tls = { key: await readFile(keyFile, 'utf8'), cert: await readFile(certFile, 'utf8') };
      https = await startGitServer({
        root: join(world.dir, 'https'),
        tls,
        credentials: { user: 'bot', password: TOKEN },
      });
      ssh = await startSshGitServer({
        root: join(world.dir, 'ssh'),
        hostKeys: ['ed25519', 'ecdsa'],
      });
    }, 180_000);
    afterAll(async () => {
      await ssh?.stop();
      await https?.stop();
      await world?.stop();
      if (certificates !== '') await rm(certificates, { recursive: true });
    });

    it('a deploy key and a trusted host key bring a private repository live, with its build settings', {
      timeout: 180_000,
    }, async () => {
      const { berth } = world;
      const { url } = await ssh.createRepo('shop', {
        'deploy/Dockerfile': [
          'FROM busybox:stable AS base',
          'ARG GREETING',
          'COPY www /www',
          'RUN echo "version $GREETING" > /www/index.html',
          ENDS_AT_ONCE,
          'EXPOSE 8080',
          'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
          'FROM base AS broken',
          'RUN exit 1',
          '',
        ].join('\n'),
        'app/www/other.html': 'x\n',
      });
      const project = await berth.createProject({
        name: 'shop',
        git_url: url,
        domain_prefix: 'shop',
        dockerfile_path: 'deploy/Dockerfile',
        build_context: 'app',
        build_target: 'base',
        build_args: { GREETING: '7 from a build argument' },
      });
      const key = await berth.api.call('createDeployKey', { params: { id: project.id } });
      created.keys.push(key.fingerprint);
      await ssh.authorize(key.public_key);

      const unknown = await berth.settled(await berth.deploy(project));
      expect(unknown).toMatchObject({ status: 'failed', error: { code: 'git_host_unknown' } });
      for (const fingerprint of ssh.fingerprints())
        expect(unknown.error?.message).toContain(fingerprint);
      const host = await berth.api.call('getGitHost', { params: { host: ssh.name } });
      expect(host.keys).toEqual([]);
      expect(new Set(host.presented.map((seen) => seen.fingerprint))).toEqual(
        new Set(ssh.fingerprints()),
      );

      const [fingerprint = ''] = ssh.fingerprints();
      const trusted = await berth.api.call('putGitHost', {
        params: { host: ssh.name },
        body: { fingerprint },
      });
      expect(trusted.keys).toMatchObject([
        { fingerprint, key_type: 'ssh-ed25519', source: 'admin' },
      ]);
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      expect((await berth.get('shop')).body).toContain('version 7 from a build argument');

      await berth.api.call('patchProject', {
        params: { id: project.id },
        body: { build_target: 'nowhere' },
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'build_target_missing' },
      });
      await berth.api.call('patchProject', {
        params: { id: project.id },
        body: { build_target: 'base', build_context: 'nowhere' },
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'build_context_missing' },
      });

      await ssh.newHostKeys('ed25519');
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'git_host_changed' },
      });
    });

    it('a git token brings a private repository live over https', {
      timeout: 120_000,
    }, async () => {
      const { berth } = world;
      const { url } = await https.createRepo('private', pageApp(3));
      const project = await berth.createProject({
        name: 'private',
        git_url: url,
        domain_prefix: 'private',
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'git_credentials' },
      });
      await berth.api.call('putGitToken', {
        params: { id: project.id },
        body: { token: TOKEN, username: 'bot' },
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      expect((await berth.get('private')).body).toContain('version 3');
      https.require({ user: 'bot', password: 'another' });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({
        status: 'failed',
        error: { code: 'git_token_refused' },
      });
    });

    it('neither the private key nor the token is in the database, a log, an event, an answer or the image', {
      timeout: 60_000,
    }, async () => {
      const { berth, engine, dir } = world;
      const texts: [where: string, text: string][] = [];
      expect(existsSync(trace)).toBe(false);
      for (const folder of ['.', 'logs'])
        for (const entry of await readdir(join(dir, folder), { withFileTypes: true }))
          if (entry.isFile() && entry.name !== 'secrets-key')
            texts.push([
              entry.name,
              (await readFile(join(dir, folder, entry.name))).toString('latin1'),
            ]);
      expect(texts.some(([where]) => where.includes('.db') || where.includes('sqlite'))).toBe(true);
      texts.push([
        'events',
        JSON.stringify(await berth.api.call('events', { query: { limit: 1000 } })),
      ]);
      for (const { id } of (await berth.api.call('listProjects', { query: {} })).items) {
        texts.push([
          'project',
          JSON.stringify(await berth.api.call('getProject', { params: { id } })),
        ]);
        for (const deployment of (
          await berth.api.call('projectDeployments', { params: { id }, query: {} })
        ).items) {
          texts.push([
            'deployment',
            JSON.stringify(
              await berth.api.call('getDeployment', { params: { id: deployment.id } }),
            ),
          ]);
          texts.push([
            'log',
            JSON.stringify(
              await berth.api.call('deploymentLogs', {
                params: { id: deployment.id },
                query: { limit: 5000 },
              }),
            ),
          ]);
          if (deployment.image_tag !== null)
            texts.push([
              'image',
              (
                await engine.docker(['history', '--no-trunc', deployment.image_tag], {
                  mayFail: true,
                })
              ).stdout,
            ]);
        }
        for (const name of ['getDeployKey', 'getGitToken'] as const)
          texts.push([
            name,
            await berth.api
              .call(name, { params: { id } })
              .then(JSON.stringify, (error: unknown) => {
                if (error instanceof ApiError && error.status === 404) return '';
                throw error;
              }),
          ]);
      }
      // The fingerprint of the key is public: it shows that the search finds what is there.
      expect(
        texts.filter(([, text]) => text.includes(created.keys[0] ?? 'nothing')).length,
      ).toBeGreaterThan(0);
      const found = texts.filter(([, text]) =>
        [TOKEN, BASIC, 'OPENSSH PRIVATE KEY'].some((secret) => text.includes(secret)),
      );
      expect(found.map(([where]) => where)).toEqual([]);
    });
  },
);
