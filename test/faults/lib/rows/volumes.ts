/** Faults while the volumes of a project move to another node. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import { fill } from '../fill.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

/** Its first start writes a file of 6 MB. Each start appends a line. */
const APP = {
  Dockerfile: [
    'FROM busybox:stable',
    'COPY run.sh /run.sh',
    'EXPOSE 8080',
    'CMD ["sh", "/run.sh"]',
    '',
  ].join('\n'),
  'run.sh': [
    '[ -e /data/big ] || head -c 6000000 /dev/urandom > /data/big',
    'sha256sum < /data/big > /data/sum',
    'echo start >> /data/starts',
    'exec httpd -f -p 8080 -h /data',
    '',
  ].join('\n'),
};

/** Names below `volumes` of a node's SVC_ROOT, without what it creates at its start. */
const below = async (svcRoot: string, ...path: string[]): Promise<string[]> =>
  readdir(join(svcRoot, 'volumes', ...path)).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });

async function isDrained(stage: Stage, node: { id: string }): Promise<boolean> {
  return (
    ((await stage.berth.api.call('getNode', { params: node })).drain?.finished_at ?? null) !== null
  );
}

export const VOLUME_ROWS: readonly Row[] = [
  {
    fault: 'disk full on the node to which the volumes of a project move',
    answer:
      'each of three tries ends `failed` (`disk_full`) and the drain says why; the project ' +
      'starts again where it was, with its data; no half copy remains; when there is room ' +
      'again, the next drain moves it',
    invariants: ['settles', 'old-serves'],
    stage: 'main',
    async run(stage) {
      const { berth } = stage;
      const { api } = berth;
      const nodes = (await api.call('listNodes', { query: {} })).items;
      const [target, source] = ['node-1', 'node-2'].map((name) => ({
        id: nodes.find((n) => n.hostname === name)?.id ?? '',
      }));
      if (target === undefined || source === undefined) throw new Error('no nodes');
      const { url } = await stage.git.createRepo('ledger', APP);
      const volumes = [{ name: 'data', mount_path: '/data' }];
      const settings = {
        name: 'ledger',
        git_url: url,
        domain_prefix: 'ledger',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      };
      const project: Project = await berth.createProject({ ...settings, volumes });
      const page = async (path: string): Promise<string> => (await berth.get('ledger', path)).body;
      const tries = async () =>
        (await api.call('listDeployments', { query: { project_id: project.id, limit: 100 } }))
          .items;

      await api.call('cordonNode', { params: target });
      await api.call('uncordonNode', { params: source });
      expect(await berth.settled(await berth.deploy(project), 60_000)).toMatchObject({
        status: 'running',
        node_id: source.id,
      });
      const sum = await waitFor('the first start has written its data', async () => {
        const body = await page('/sum');
        return /^[0-9a-f]{64}/.test(body) && body;
      });
      await api.call('uncordonNode', { params: target });

      const empty = await fill(stage.small.svc);
      try {
        await api.call('drainNode', { params: source });
        const problem = await waitFor(
          'the drain gave up',
          async () => {
            const failed = (await tries()).filter((d) => d.status === 'failed');
            const { drain } = await api.call('getNode', { params: source });
            return failed.length === 3 && (drain?.left[0]?.problem ?? false);
          },
          { deadlineMs: 120_000 },
        );
        expect(problem).toMatch(/disk is full/);
        const failed = (await tries()).filter((d) => d.status === 'failed');
        expect(failed.map((d) => d.error?.code)).toEqual(['disk_full', 'disk_full', 'disk_full']);
        expect(await isDrained(stage, source)).toBe(false);
        // It runs where it was. Each of its starts found the data of all starts before.
        await waitFor(
          'the project serves its own data again',
          async () => (await page('/sum')) === sum && /^(start\n)+$/.test(await page('/starts')),
        );
        const [running, ...others] = (await tries()).filter((d) => d.status === 'running');
        expect([running?.node_id, others.length]).toEqual([source.id, 0]);
        const isClean = async (): Promise<boolean> =>
          (await below(stage.svc.svcRoot, '.incoming')).length === 0 &&
          !(await below(stage.svc.svcRoot)).includes(project.id);
        await waitFor('nothing of the copy is left', isClean);
      } finally {
        await empty();
      }

      const before = await page('/starts');
      await api.call('drainNode', { params: source });
      await waitFor('the node is drained', () => isDrained(stage, source), { deadlineMs: 60_000 });
      await waitFor(
        'the moved project serves',
        async () => (await page('/starts')) === `${before}start\n`,
      );
      expect(await page('/sum')).toBe(sum);
      const [moved] = (await tries()).filter((d) => d.status === 'running');
      expect(moved?.node_id).toBe(target.id);
      expect(
        await readFile(join(stage.svc.svcRoot, 'volumes', project.id, 'data', 'starts'), 'utf8'),
      ).toBe(`${before}start\n`);

      await api.call('deleteProject', { params: project, query: { volumes: true } });
      await waitFor(
        'the project is gone',
        async () =>
          (await api.call('listProjects', { query: {} })).items.every((p) => p.id !== project.id),
        {
          deadlineMs: 60_000,
        },
      );
      // The next row expects a node-2 that takes no work.
      await api.call('uncordonNode', { params: source });
      await api.call('cordonNode', { params: source });
    },
  },
];
