/** Faults while secrets are used, and faults of their keys. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { expect } from 'vitest';
import { pageApp } from '../../../e2e/world.ts';
import { createQuery } from '../database.ts';
import { filesWith } from '../files-with.ts';
import { fill } from '../fill.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

const canary = (what: string): string => `canary-${what}-${randomUUID()}`;
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const KEY_FILE = 'secrets-key';

type SecretBody = { value: string; as?: 'env' | 'file'; scope?: 'run' | 'build' };
const put = (stage: Stage, name: string, body: SecretBody) =>
  stage.berth.api.call('putSecret', { params: { id: stage.project.id, name }, body });

/** Sets secrets of the project while `play` runs. The next version has none again. */
async function withSecrets(
  stage: Stage,
  secrets: Record<string, SecretBody>,
  play: () => Promise<void>,
): Promise<void> {
  for (const [name, body] of Object.entries(secrets)) await put(stage, name, body);
  try {
    await play();
  } finally {
    const { items } = await stage.berth.api.call('listSecrets', {
      params: { id: stage.project.id },
    });
    for (const { name } of items)
      await stage.berth.api.call('deleteSecret', { params: { id: stage.project.id, name } });
  }
  await stage.ends(await stage.release(), 'running');
}

/** The page shows the version, and the digest of what the container got. */
const showing = (stage: Stage, step = 'RUN true'): Record<string, string> => ({
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    step,
    'EXPOSE 8080',
    'CMD ["sh", "-c", "(cat /run/secrets/CERT; echo; echo $TOKEN $GONE) 2>/dev/null | ' +
      'sha256sum >> /www/index.html; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
  'www/index.html': pageApp(stage.version() + 1)['www/index.html'] ?? '',
});
const shown = ({ cert = '', token = '', gone = '' }): string =>
  sha256(`${cert}\n${[token, gone].join(' ').trim()}\n`);

export const SECRET_ROWS: readonly Row[] = [
  {
    fault: 'deploy agent killed after it wrote secret files, before the container starts',
    answer:
      'no clear text is on a disk; the restarted agent claims the task again and the container ' +
      'gets its secrets; the files are removed with it',
    invariants: ['settles', 'one-serving', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const [cert, token] = [canary('file'), canary('env')];
      const node = stage.agent('node-1');
      await withSecrets(
        stage,
        { CERT: { value: cert, as: 'file' }, TOKEN: { value: token } },
        async () => {
          stage.shim.hold('before', 'run');
          const asked = await stage.release(showing(stage));
          await stage.shim.reached('before', 'run');
          await node.crash();
          stage.shim.clear();
          for (const value of [cert, token]) expect(await filesWith(stage.dir, value)).toEqual([]);
          // On tmpfs.
          expect(await filesWith(stage.secretsDir, cert)).toHaveLength(1);
          await node.start();
          await stage.ends(asked, 'running');
          expect((await stage.get()).body).toContain(shown({ cert, token }));
        },
      );
      await waitFor(
        'the secret files are removed',
        async () => (await filesWith(stage.secretsDir, cert)).length === 0,
        {
          deadlineMs: 30_000,
        },
      );
      for (const value of [cert, token]) expect(await filesWith(stage.dir, value)).toEqual([]);
    },
  },
  {
    fault: 'builder killed while a build with a build secret runs',
    answer:
      'the secret is in no file of the builder, in no layer, history or build cache; the ' +
      'restarted builder builds again, and the deployment ends `running`',
    invariants: ['settles', 'old-serves', 'one-lease'],
    stage: 'main',
    async run(stage) {
      const value = canary('build');
      const builder = stage.agent('builder-1');
      await withSecrets(stage, { NPM: { value, scope: 'build' } }, async () => {
        const step =
          'RUN --mount=type=secret,id=NPM test -s /run/secrets/NPM && echo slowly && sleep 4 # ' +
          randomUUID();
        const asked = await stage.release(showing(stage, step));
        await stage.says(asked, /^slowly/);
        await builder.crash();
        expect(await filesWith(stage.dir, value)).toEqual([]);
        await builder.start();
        const { image_tag } = await stage.ends(asked, 'running');
        const { build } = stage.engines;
        const texts = await Promise.all([
          build.docker(['history', '--no-trunc', '--format', '{{json .}}', image_tag ?? '']),
          build.docker(['image', 'inspect', image_tag ?? '']),
          build.docker(['buildx', 'du', '--verbose'], { mayFail: true }),
        ]);
        expect(texts.map(({ stdout }) => stdout).join('\n')).not.toContain(value);
        expect(await filesWith(stage.dir, value)).toEqual([]);
        // The layers themselves.
        const saved = join(stage.dir, 'image.tar');
        await build.docker(['save', '--output', saved, image_tag ?? '']);
        const { stdout } = await run(
          ['grep', '--binary-files=text', '--count', '--fixed-strings', value, saved],
          { mayFail: true },
        );
        await rm(saved);
        expect(stdout.trim()).toBe('0');
      });
    },
  },
  {
    fault:
      'the file `secrets-key` is lost, damaged, of another installation, or unreadable when ' +
      'the control plane starts',
    answer:
      'it does not start, and the error says what is wrong and what to do; it changes neither ' +
      'the file nor the database; with the right file it starts, and the secrets work',
    invariants: ['acknowledged-stays', 'nothing-destroyed'],
    stage: 'main',
    async run(stage) {
      const { controlPlane } = stage.berth;
      const file = join(stage.dir, KEY_FILE);
      const query = createQuery(join(stage.dir, 'berth.db'));
      const token = canary('kept');
      const present = (): string =>
        JSON.stringify(
          [
            `select * from project_keys order by project_id`,
            `select * from project_secrets`,
            `select * from meta where key = 'secrets_key_check'`,
          ].map(query),
        );
      await withSecrets(stage, { TOKEN: { value: token } }, async () => {
        await controlPlane.stop();
        const before = present();
        await rename(file, `${file}.kept`);
        const other = `${randomBytes(32).toString('base64')}\n`;
        const cases: [prepare: () => Promise<unknown>, error: RegExp][] = [
          [async () => undefined, /secrets-key is missing, and the database needs it/],
          [
            () => writeFile(file, 'half of a k', { mode: 0o600 }),
            /secrets-key is not 32 bytes in base64/,
          ],
          [
            () => writeFile(file, other, { mode: 0o600 }),
            /does not have the key that encrypts the secrets in the database \(missing key id/,
          ],
          // Root reads every file, but no folder.
          [() => mkdir(file), /secrets-key cannot be read/],
        ];
        for (const [prepare, error] of cases) {
          await prepare();
          const left = await readdir(file).catch(() => readFile(file, 'utf8').catch(() => null));
          await expect(controlPlane.start()).rejects.toThrow(error);
          expect(present()).toBe(before);
          expect(await readdir(file).catch(() => readFile(file, 'utf8').catch(() => null))).toEqual(
            left,
          );
          expect((await stage.get()).status).toBe(200);
          await rm(file, { recursive: true, force: true });
        }
        await rename(`${file}.kept`, file);
        await controlPlane.start();
        await stage.ends(await stage.release(showing(stage)), 'running');
        expect((await stage.get()).body).toContain(shown({ token }));
      });
    },
  },
  {
    fault:
      'two people set one secret at once, and another one is deleted, while a deployment starts',
    answer:
      'the container gets the value that the API shows, never a mix of both; it does not get the ' +
      'deleted secret, and the story says so',
    invariants: ['settles', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const node = stage.agent('node-1');
      const { controlPlane } = stage.berth;
      const gone = canary('gone');
      await withSecrets(
        stage,
        { TOKEN: { value: canary('first') }, GONE: { value: gone } },
        async () => {
          // The task must wait for its node until the secrets have changed.
          await controlPlane.stop();
          await controlPlane.start({ CLAIM_TIMEOUT: '120s' });
          await node.stop();
          const asked = await stage.release(showing(stage));
          await waitFor(
            'the task waits for its node',
            async () => (await stage.see(asked)).status === 'deploying',
            { deadlineMs: 60_000 },
          );
          const values = [canary('ann'), canary('bob')];
          const set = await Promise.all(values.map((value) => put(stage, 'TOKEN', { value })));
          await stage.berth.api.call('deleteSecret', {
            params: { id: stage.project.id, name: 'GONE' },
          });
          const { items } = await stage.berth.api.call('listSecrets', {
            params: { id: stage.project.id },
          });
          const token =
            values[set.findIndex(({ fingerprint }) => fingerprint === items[0]?.fingerprint)] ??
            'none';
          await node.start();
          await stage.ends(asked, 'running');
          expect((await stage.get()).body).toContain(shown({ token }));
          await stage.says(asked, /the project no longer has the secret GONE/);
        },
      );
      await controlPlane.stop();
      await controlPlane.start();
    },
  },
  {
    fault: 'tmpfs of a deploy node full when it writes secret files',
    answer: '`failed` (`disk_full`); no half-written file stays',
    invariants: ['settles', 'old-serves', 'bounded'],
    stage: 'disk',
    async run(stage) {
      const cert = canary('big') + randomBytes(20_000).toString('hex');
      await withSecrets(stage, { CERT: { value: cert, as: 'file' } }, async () => {
        const empty = await fill(stage.secretsDir);
        try {
          await stage.ends(
            await stage.releaseBroken({ 'www/index.html': 'no room for its secrets\n' }),
            'failed',
            'disk_full',
          );
        } finally {
          await empty();
        }
        await waitFor(
          'nothing half-written stays',
          async () => (await filesWith(stage.secretsDir, cert.slice(0, 40))).length === 0,
          {
            deadlineMs: 30_000,
          },
        );
        await stage.ends(await stage.release(showing(stage)), 'running');
        expect((await stage.get()).body).toContain(shown({ cert }));
      });
    },
  },
];
