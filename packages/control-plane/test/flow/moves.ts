/**
 * A project with a volume, and a move of it: `from` (home) is drained, and `to` (away) receives.
 */
import type { TaskReport } from '@berth/wire/task';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import type { VolumeCopy } from '../../src/domain/data/volume-copy.ts';
import { node, NOW, SETTINGS, task } from './fixtures.ts';

export const volumes = [{ name: 'data', mount_path: '/data' }];
export const settings = { ...SETTINGS, replace: 'recreate' as const, volumes };

export const can = { capabilities: ['volumes', 'volume_moves'] };
export const drain = { started_at: NOW, finished_at: null, moved: 0, tries: {} };
export const from = node({ ...can, hostname: 'home', schedulable: false, drain });
export const to = node({ ...can, id: 'n2', hostname: 'away', host_ip: '10.0.0.2' });

export const copy: VolumeCopy = {
  id: 'v1',
  project_id: 'p1',
  project: 'shop',
  node_id: 'n1',
  hostname: 'home',
  state: 'current',
  names: ['data'],
  bytes: 1_200_000,
  source: null,
  digest: null,
  sizes: {},
  seen: { containers: {}, proven_at: null },
  created_at: NOW,
  changed_at: NOW,
};
export const incoming: VolumeCopy = {
  ...copy,
  id: 'v2',
  node_id: 'n2',
  hostname: 'away',
  state: 'incoming',
  source: 'v1',
};

export const move = (role: 'send' | 'receive'): TaskRecord =>
  task('move', {
    id: role,
    node_id: role === 'send' ? 'n1' : 'n2',
    payload: {
      project_id: 'p1',
      project: 'shop',
      role,
      copy: 'v1',
      to: 'v2',
      other: role === 'send' ? 'away' : 'home',
      bytes: null,
    },
  });
export const result = { digest: 'a'.repeat(64), files: 2, bytes: 1_200_000 };
export const done: TaskReport = { status: 'completed', result: result as Record<string, unknown> };
/** Both ends have reported the same files, and the next list of `from` showed nothing that ran. */
export const proven: VolumeCopy[] = [
  { ...copy, digest: result.digest, seen: { containers: {}, proven_at: NOW - 10 } },
  { ...incoming, digest: result.digest },
];
