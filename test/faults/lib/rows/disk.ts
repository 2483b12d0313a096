/** Full disks. */
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { ApiError } from '@berth/wire/client';
import { fill } from '../fill.ts';
import type { Row } from '../row.ts';

/** Maximum length of a value. */
const BIG = 30_000;

export const DISK_ROWS: readonly Row[] = [
  {
    fault: 'disk full on the builder',
    answer:
      '`failed` (`disk_full`); the agent deletes the workspace, so the next deployment has room',
    invariants: ['settles', 'old-serves', 'bounded'],
    stage: 'disk',
    async run(stage) {
      // Random text, so that compression does not make it fit.
      await stage.ends(
        await stage.releaseBroken({ ballast: randomBytes(7_000_000).toString('base64') }),
        'failed',
        'disk_full',
      );
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'disk full on a deploy node',
    answer: '`failed` (`disk_full`); projects on the node keep serving',
    invariants: ['settles', 'old-serves'],
    stage: 'disk',
    async run(stage) {
      const empty = await fill(stage.small.engine);
      try {
        await stage.ends(
          await stage.releaseBroken({ 'www/index.html': 'no room for it\n' }),
          'failed',
          'disk_full',
        );
      } finally {
        await empty();
      }
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'disk full on the control plane',
    answer:
      'writes get errors; reads and routes work; acknowledged writes survive, also a kill; ' +
      'when there is room again, Berth continues by itself',
    invariants: ['acknowledged-stays', 'settles'],
    stage: 'disk',
    async run(stage) {
      const { api, controlPlane } = stage.berth;
      const empty = await fill(stage.small.controlPlane);
      const kept: string[] = [];
      const ids: string[] = [];
      let refused: unknown;
      try {
        // The rest of the write-ahead log still accepts some writes.
        for (let i = 0; i < 200 && refused === undefined; i++) {
          const value = `${i} ${randomBytes(BIG / 2).toString('hex')}`;
          const body = {
            name: `full-${stage.version()}-${i}`,
            git_url: stage.project.git_url,
            domain_prefix: `full-${stage.version()}-${i}`,
            env: Object.fromEntries(
              Array.from({ length: 8 }, (_, n) => [n === 0 ? 'BIG' : `BIG_${n}`, value]),
            ),
          };
          await api.call('createProject', { body }).then(
            (created) => {
              kept.push(value);
              ids.push(created.id);
            },
            (error: unknown) => (refused = error),
          );
        }
        expect(refused).toBeInstanceOf(ApiError);
        expect((refused as ApiError).status).toBeGreaterThanOrEqual(500);
        expect((await api.call('listProjects', { query: {} })).items.length).toBeGreaterThan(0);
        await stage.serves(stage.version(), 5_000);
      } finally {
        await empty();
      }
      const there = async (): Promise<(string | undefined)[]> =>
        Promise.all(
          ids.map(async (id) => (await api.call('getProject', { params: { id } })).env?.['BIG']),
        );
      expect(await there()).toEqual(kept);
      await stage.ends(await stage.release(), 'running');
      await controlPlane.crash();
      await controlPlane.start();
      expect(await there()).toEqual(kept);
      for (const id of ids) await api.call('deleteProject', { params: { id } });
    },
  },
];
