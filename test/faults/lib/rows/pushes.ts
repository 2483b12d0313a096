/** Faults of pushes, commit statuses and git access. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noSshd, startSshGitServer } from '@berth/testbed/ssh-git-server';
import { startStatusReceiver } from '@berth/testbed/status-receiver';
import { waitFor } from '@berth/testbed/wait';
import { expect } from 'vitest';
import { pageApp } from '../../../e2e/world.ts';
import { filesWith } from '../files-with.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

/**
 * Requests a deployment that cannot be built, at an ssh address where nobody listens. Its statuses
 * go to `apiUrl`.
 */
async function deployWithStatus(
  stage: Stage,
  name: string,
  apiUrl: string,
): Promise<{ id: string; project: string }> {
  const { berth } = stage;
  const project = await berth.createProject({
    name,
    git_url: 'ssh://git@127.0.0.1:1/team/app.git',
    domain_prefix: name,
  });
  const params = { id: project.id };
  await berth.api.call('putHook', { params, body: { forge: 'gitea' } });
  await berth.api.call('putGitToken', {
    params,
    body: { token: 'token-of-the-forge', api_url: apiUrl },
  });
  const { id } = await berth.deploy(project, { commit: 'c0'.repeat(20) });
  return { id, project: project.id };
}
const statusOf = async (stage: Stage, id: string) => (await stage.see({ id })).commit_status;

export const PUSH_ROWS: readonly Row[] = [
  {
    fault: 'control plane killed between the answer to a delivery and its deployment',
    answer:
      'the restarted control plane checks the branch and deploys it; the delivery has one ' +
      'verdict and one deployment',
    invariants: ['acknowledged-stays', 'settles', 'push-once', 'last-push'],
    stage: 'main',
    async run(stage) {
      const { controlPlane } = stage.berth;
      const delivery = await stage.push();
      await controlPlane.crash();
      await controlPlane.start();
      await stage.ends(await stage.causedBy(delivery), 'running');
      await stage.serves(stage.version());
    },
  },
  {
    fault: 'git server accepts the connection and says nothing while Berth checks a push',
    answer:
      'the builder gives up after `GIT_STALL_TIMEOUT`; Berth checks again after a pause; the ' +
      'push is deployed when the server answers',
    invariants: ['settles', 'old-serves', 'push-once', 'last-push'],
    stage: 'main',
    async run(stage) {
      const before = stage.git.requests();
      stage.git.behave('mute');
      try {
        const delivery = await stage.push();
        await waitFor(
          'two checks have asked the git server',
          () => stage.git.requests() >= before + 2,
          { deadlineMs: 60_000 },
        );
        stage.git.behave('serve');
        await stage.ends(await stage.causedBy(delivery), 'running');
      } finally {
        stage.git.behave('serve');
      }
    },
  },
  {
    fault: 'git server redirects to another host',
    answer: '`failed` (`git_redirect_refused`): nothing is sent to the other host',
    invariants: ['settles', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const other = await startStatusReceiver();
      try {
        stage.git.behave({
          redirect: (_, path) => other.apiUrl.replace('127.0.0.1', 'localhost') + path,
        });
        await stage.ends(await stage.releaseBroken({}), 'failed', 'git_redirect_refused');
        expect(other.requests()).toBe(0);
      } finally {
        stage.git.behave('serve');
        await other.stop();
      }
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'forge down while a commit status waits, and the control plane is killed meanwhile',
    answer:
      'the deployment does not wait and shows the problem; Berth tries again with growing ' +
      'pauses, for an hour; when the forge answers, it gets the last status',
    invariants: ['last-status', 'settles'],
    stage: 'main',
    async run(stage) {
      const forge = await startStatusReceiver();
      try {
        forge.behave('down');
        const { id, project } = await deployWithStatus(stage, 'forge-down', forge.apiUrl);
        expect((await stage.berth.settled({ id }, 90_000)).status).toBe('failed');
        await waitFor(
          'the deployment shows the problem',
          async () => /answered 503/.test((await statusOf(stage, id))?.error ?? ''),
          {
            deadlineMs: 30_000,
          },
        );
        await stage.berth.controlPlane.crash();
        forge.behave('serve');
        await stage.berth.controlPlane.start();
        await waitFor(
          'the status is sent',
          async () => (await statusOf(stage, id))?.sent_at ?? false,
          { deadlineMs: 90_000 },
        );
        expect(await statusOf(stage, id)).toMatchObject({
          state: 'failure',
          error: null,
          given_up: false,
        });
        expect(forge.received.map(({ state }) => state)).toEqual(['failure']);
        await stage.berth.api.call('deleteProject', { params: { id: project } });
      } finally {
        await forge.stop();
      }
    },
  },
  {
    fault: 'forge accepts the connection and says nothing, then redirects to another host',
    answer:
      'each try ends after 10 s or at once; the redirect is not followed, so the token does ' +
      'not reach the other host; deployments do not wait',
    invariants: ['settles', 'last-status'],
    stage: 'main',
    async run(stage) {
      const [forge, other] = [await startStatusReceiver(), await startStatusReceiver()];
      try {
        forge.behave('mute');
        const { id, project } = await deployWithStatus(stage, 'forge-mute', forge.apiUrl);
        await stage.ends(await stage.release(), 'running');
        await waitFor(
          'the try has ended',
          async () => /no answer within 10 s/.test((await statusOf(stage, id))?.error ?? ''),
          {
            deadlineMs: 60_000,
          },
        );
        forge.behave({ redirect: other.apiUrl });
        await waitFor(
          'the redirect is refused',
          async () => /answered 307/.test((await statusOf(stage, id))?.error ?? ''),
          {
            deadlineMs: 60_000,
          },
        );
        expect(other.requests()).toBe(0);
        await stage.berth.api.call('deleteProject', { params: { id: project } });
      } finally {
        await forge.stop();
        await other.stop();
      }
    },
  },
  {
    fault: 'builder killed in a clone with a deploy key; then the git host has another key',
    answer:
      'no private key is on a disk, and the restarted builder builds; with another host key ' +
      '`failed` (`git_host_changed`), until an admin trusts the new key',
    invariants: ['settles', 'old-serves'],
    stage: 'main',
    skip: () => (noSshd === '' ? undefined : 'no sshd'),
    async run(stage) {
      const { berth } = stage;
      // Outside the folder that is searched: the server has private keys too.
      const root = await mkdtemp(join(tmpdir(), 'berth-ssh-'));
      const ssh = await startSshGitServer({ root });
      try {
        const { url } = await ssh.createRepo('keyed', pageApp(1));
        const project = await berth.createProject({
          name: 'keyed',
          git_url: url,
          domain_prefix: 'keyed',
          drain_seconds: 0,
        });
        const params = { id: project.id };
        await ssh.authorize((await berth.api.call('createDeployKey', { params })).public_key);
        const trust = async (): Promise<void> => {
          const [fingerprint = ''] = ssh.fingerprints();
          await berth.api.call('putGitHost', {
            params: { host: ssh.name },
            body: { fingerprint, key_type: 'ssh-ed25519' },
          });
        };
        const deploy = async () => berth.settled(await berth.deploy(project), 90_000);
        await trust();
        const builder = stage.agent('builder-1');
        await builder.stop();
        await builder.start({ BERTH_FAIL_POINTS: 'clone.after=kill' });
        const first = await berth.deploy(project);
        await waitFor('the builder dies in the clone', () => builder.process().exit(), {
          deadlineMs: 60_000,
        });
        expect(await filesWith(stage.dir, 'OPENSSH PRIVATE KEY')).toEqual([]);
        await builder.start();
        expect(await berth.settled(first, 90_000)).toMatchObject({ status: 'running' });
        await ssh.newHostKeys('ed25519');
        expect(await deploy()).toMatchObject({
          status: 'failed',
          error: { code: 'git_host_changed' },
        });
        expect((await berth.get('keyed')).body).toContain('version 1');
        await trust();
        await ssh.commit('keyed', pageApp(2), 'two');
        expect(await deploy()).toMatchObject({ status: 'running' });
        await berth.api.call('deleteProject', { params });
      } finally {
        await ssh.stop();
        await rm(root, { recursive: true, force: true });
      }
    },
  },
];
