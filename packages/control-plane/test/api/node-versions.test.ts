import { expect, it } from 'vitest';
import type { NodeRegister } from '@berth/wire/node';
import { createNodeVersions } from '../../src/api/node-versions.ts';

it('notes Berth agents that are older than the control plane, until they are upgraded or silent', () => {
  let now = 0;
  const versions = createNodeVersions({ now: () => now, offlineMs: 1000 }, '0.10.0');
  const register = (id: string, agent_version?: string) =>
    versions.registered({ id, hostname: id }, {
      ...(agent_version === undefined ? {} : { agent_version }),
    } as NodeRegister);
  register('contract-only');
  register('same', '0.10.0');
  register('newer', '0.11.0-rc.1');
  expect(versions.notes()).toEqual([]);
  register('old', '0.9.3');
  register('older', '0.1');
  expect(versions.notes()).toEqual([
    'the agents of 2 nodes are older than this control plane (0.10.0): berth node list shows ' +
      'them; install its package there',
  ]);
  register('old', '0.10.0');
  expect(versions.notes()).toEqual([
    'the agents of 1 node are older than this control plane (0.10.0): berth node list shows ' +
      'them; install its package there',
  ]);
  now = 1001;
  expect(versions.notes()).toEqual([]);
});
