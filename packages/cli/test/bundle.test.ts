/**
 * The bundle of set-up: its stand-in for typebox makes the same schemas, so options and requests
 * are the same as from the sources.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROUTES } from '@berth/wire/routes';
import { build, type Plugin } from 'esbuild';
import { expect, onTestFinished, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../../..');

test('every route has the same schemas with and without typebox', async () => {
  const bundle = pathToFileURL(path.join(ROOT, 'scripts/lib/bundle.mjs')).href;
  const { lightSchemas } = (await import(bundle)) as { lightSchemas: Plugin };
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-bundle-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const outfile = path.join(dir, 'routes.mjs');
  const entry = path.join(ROOT, 'packages/wire/src/routes.ts');
  const { metafile } = await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    metafile: true,
    plugins: [lightSchemas],
  });
  expect(
    Object.keys(metafile.inputs).filter((input) => input.includes('node_modules/typebox')),
  ).toEqual([]);
  const light = (await import(pathToFileURL(outfile).href)) as { ROUTES: unknown };
  // The schemas of typebox carry symbols and hidden fields, which are not JSON Schema.
  const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
  expect(plain(light.ROUTES)).toEqual(plain(ROUTES));
});
