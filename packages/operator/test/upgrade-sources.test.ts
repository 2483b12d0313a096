import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readBuild } from '../src/upgrade/sources.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-build-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

test('reads an artefact', async () => {
  const dir = folder();
  writeFileSync(
    join(dir, 'berth-build.json'),
    '{"version":"0.1.0","arch":"amd64","schema":[{"name":"0001_a","needed":true}],"oldest_agent":"0.1.0"}',
  );
  expect(await readBuild(dir)).toEqual({
    version: '0.1.0',
    arch: 'amd64',
    commit: null,
    schema: [{ name: '0001_a', needed: true }],
    oldest_agent: '0.1.0',
  });
  // A version before this command.
  writeFileSync(join(dir, 'berth-build.json'), '{"version":"0.1.0"}');
  expect(await readBuild(dir)).toMatchObject({ schema: null, oldest_agent: null });
});

test.each([
  ['a missing file', (dir: string) => join(dir, 'none.deb'), /does not exist/],
  ['a folder without an artefact', (dir: string) => dir, /berth-build\.json is missing/],
])('%s is named', async (_, at, message) => {
  await expect(readBuild(at(folder()))).rejects.toThrow(message);
});

test.each(['{', '{}', '{"version":"1.0.0","schema":[1]}', '{"version":"1.0.0","schema":"all"}'])(
  '%s is refused',
  async (text) => {
    const dir = folder();
    writeFileSync(join(dir, 'berth-build.json'), text);
    await expect(readBuild(dir)).rejects.toThrow(`${dir} cannot be read`);
  },
);
