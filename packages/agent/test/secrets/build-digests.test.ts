/** With which build secrets a builder built a project last. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { expect, it } from 'vitest';
import { createBuildDigests } from '../../src/build/build-digests.ts';

const path = (): string =>
  join(mkdtempSync(join(tmpdir(), 'berth-digests-')), 'build-secrets.json');

it('asks for a build without cache only when the secrets changed, also after a restart', async () => {
  const file = path();
  const digests = await createBuildDigests(file, silentLogger());
  expect([digests.changed('p', null), digests.changed('p', 'a')]).toEqual([false, true]);
  await digests.begins('p');
  await digests.built('p', 'a');
  const later = await createBuildDigests(file, silentLogger());
  expect([later.changed('p', 'a'), later.changed('p', 'b'), later.changed('p', null)]).toEqual([
    false,
    true,
    true,
  ]);
});

it.each<[string, string | null]>([
  ['back', 'a'],
  ['away', null],
])(
  'a failed build with new secrets leaves its layers in the cache, so the build after a change %s has no cache either',
  async (_, next) => {
    const file = path();
    const digests = await createBuildDigests(file, silentLogger());
    await digests.built('p', 'a');
    await digests.begins('p');
    // The build with b failed.
    const later = await createBuildDigests(file, silentLogger());
    expect(later.changed('p', next)).toBe(true);
    await later.built('p', next);
    expect(later.changed('p', next)).toBe(false);
  },
);
