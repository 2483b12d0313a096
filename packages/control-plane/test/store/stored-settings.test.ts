/** Settings that an earlier version stored with a deployment, after a way back to it. */
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import { expect, test } from 'vitest';
import { storedSettings } from '../../src/store/rows/project.ts';

test('columns that an earlier version copied as they are become settings again', () => {
  // Version 0.2.0 does not know these columns, so its deployments have them as the table does.
  const stored = storedSettings(
    JSON.stringify({
      container_port: 3000,
      env: { A: 'ü' },
      submodules: true,
      processes: JSON.stringify(PROJECT_DEFAULTS.processes),
      requires: '{"labels":{"zone":"a"}}',
      sticky: 1,
      spread: 'nodes',
      data_copies: 2,
      replace_set: 0,
      auth_epoch: 3,
    }),
  );
  expect(stored).toEqual({
    container_port: 3000,
    env: { A: 'ü' },
    submodules: true,
    processes: PROJECT_DEFAULTS.processes,
    requires: { labels: { zone: 'a' } },
    sticky: true,
    spread: 'nodes',
    data_copies: 2,
  });
});

test('settings of this version stay as they are', () => {
  const settings = { processes: [{ name: 'web', count: 2 }], sticky: false, env: { P: '[1]' } };
  expect(storedSettings(JSON.stringify(settings))).toEqual(settings);
});
