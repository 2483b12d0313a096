/**
 * The bundle of set-up: its stand-in for typebox makes the same schemas, so options and requests
 * are the same as from the sources.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROUTES } from '@berth/wire/routes';
import { build, type Metafile, type Plugin } from 'esbuild';
import { expect, onTestFinished, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../../..');

interface Bundler {
  lightSchemas: Plugin;
  bundleCommandLine: (outdir: string) => Promise<Metafile>;
}
const bundler = async () =>
  (await import(pathToFileURL(path.join(ROOT, 'scripts/lib/bundle.mjs')).href)) as Bundler;

function folder(): string {
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-bundle-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

test('every route has the same schemas with and without typebox', async () => {
  const { lightSchemas } = await bundler();
  const dir = folder();
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

test('berth.toml is checked with the real typebox, which the start does not load', async () => {
  const { bundleCommandLine } = await bundler();
  const dir = folder();
  const { outputs } = await bundleCommandLine(dir);
  const real = (name: string) =>
    Object.keys(outputs[name]?.inputs ?? {}).some((input) =>
      input.includes('node_modules/typebox'),
    );
  const started = new Set<string>();
  const start = (name: string) => {
    if (started.has(name)) return;
    started.add(name);
    for (const { path: next, kind } of outputs[name]?.imports ?? [])
      if (kind === 'import-statement') start(next);
  };
  start(Object.keys(outputs).find((name) => name.endsWith('/main.js')) ?? '');
  expect([...started].filter(real)).toEqual([]);
  const lazy = Object.keys(outputs).filter(real);
  expect(lazy).not.toEqual([]);

  const file = path.join(dir, 'berth.toml');
  writeFileSync(file, 'container_port = "x"\n');
  const program = "import { main } from './main.js'; await main(process.argv.slice(1));";
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '-e', program, 'config', 'check', file],
    { cwd: dir, encoding: 'utf8' },
  );
  expect(stderr).toContain('berth.toml line 1: container_port must be a whole number');
  expect(status).toBe(1);
});
