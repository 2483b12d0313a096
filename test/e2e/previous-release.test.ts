/**
 * The last landed release works with a database that this version migrated and used, and this
 * version continues after it.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryRoot } from '@berth/testbed/config';
import { type HandAgent, startHandAgent } from '@berth/testbed/hand-agent';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { provideRelease, type Release, whyNoRelease } from '@berth/testbed/release';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startEcho, type EchoApp } from './echo.ts';

const reason = await whyNoRelease();

describe.skipIf(reason !== undefined)(
  `the previous release${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let release: Release;
    let berth: Platform;
    let agent: HandAgent;
    let shop: EchoApp;
    let dir: string;
    beforeAll(async () => {
      release = await provideRelease();
      dir = await mkdtemp(join(tmpdir(), 'berth-previous-'));
      shop = await startEcho('shop');
      berth = await startPlatform({
        dir,
        registry: { address: '127.0.0.1:5000', user: '', password: '' },
        proxy: 'built-in',
        agents: [],
      });
      agent = await startHandAgent({
        url: berth.url,
        secret: berth.agentSecret,
        ports: { shop: shop.port, blog: shop.port },
      });
    });
    afterAll(async () => {
      await agent?.stop();
      await berth?.stop();
      await shop?.stop();
      await release?.remove();
      await rm(dir, { recursive: true, force: true });
    });

    async function use(name: string): Promise<void> {
      const project = await berth.createProject({
        name,
        git_url: 'https://git.example.org/app.git',
        domain_prefix: name,
        env: { A: 'ü' },
      });
      await berth.api.call('putSecret', {
        params: { id: project.id, name: 'TOKEN' },
        body: { value: `secret of ${name}` },
      });
      const body = {
        email: `${name}@example.org`,
        role: 'viewer' as const,
        password: 'correct horse',
      };
      await berth.api.call('createUser', { body });
      const done = await berth.settled(await berth.deploy(project), 60_000);
      expect([done.status, done.error]).toEqual(['running', null]);
    }
    const names = async (): Promise<unknown> => [
      (await berth.api.call('listProjects', { query: {} })).items
        .map(({ name, env }) => `${name} ${JSON.stringify(env)}`)
        .sort(),
      (await berth.api.call('listUsers', { query: {} })).items.map(({ email }) => email).sort(),
      (await berth.api.call('listDeployments', { query: {} })).items.map(({ status }) => status),
      (await berth.api.call('audit', { query: { limit: 1 } })).items.length,
    ];
    const restart = async (root: string): Promise<void> => {
      berth.controlPlane.use(root);
      expect(await berth.controlPlane.stop()).toBe(0);
      await berth.controlPlane.start();
    };

    it('reads and writes a database that this version migrated', async () => {
      await use('shop');
      const before = await names();
      await restart(release.root);
      expect(await names()).toEqual(before);
      await use('blog');
      const after = await names();
      await restart(repositoryRoot);
      expect(await names()).toEqual(after);
      expect((await berth.get('blog')).status).toBe(200);
    });
  },
);
